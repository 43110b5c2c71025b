#!/usr/bin/env bash
# Formats every C++ source with clang-format and .clang-format.
#   scripts/format.sh [--check]   --check: changes nothing; fails if something would change, 77 without clang-format 14
. "$(dirname "$0")/steps.sh"

mode=(-i)
case ${1:-} in
  '') ;;
  --check) mode=(--dry-run -Werror) ;;
  -h | --help) sed -n '2,3s/^# //p' "$0" && exit 0 ;;
  *) die "there is no option $1 (see --help)" ;;
esac
if ! command -v clang-format >/dev/null; then
  echo "Skipped: clang-format is not installed (scripts/setup.sh --dev)"
  exit 77
fi
if ! clang-format --version | grep -q 'version 14[.]'; then
  echo "Skipped: the sources are formatted by clang-format 14 (Debian 12), and this is $(clang-format --version)"
  exit 77
fi
folders=()
for folder in base bench comm device launcher models offload runtime tests text; do
  [ ! -d "$folder" ] || folders+=("$folder")
done
find "${folders[@]}" \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format "${mode[@]}"
