#!/usr/bin/env bash
# Checks every C++ source with clang-tidy and .clang-tidy; needs a configured build folder.
#   scripts/lint.sh [FILE...]   default: all sources; 77 without clang-tidy
. "$(dirname "$0")/steps.sh"

case ${1:-} in
  -h | --help) sed -n '2,3s/^# //p' "$0" && exit 0 ;;
esac
if ! command -v clang-tidy >/dev/null; then
  echo "Skipped: clang-tidy is not installed (scripts/setup.sh --dev)"
  exit 77
fi
[ -f "$build/compile_commands.json" ] || die "$build is not configured: run scripts/build.sh --all first"
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(find base comm device launcher models offload runtime text -name '*.cc'); fi
# Turn precompiled headers off, because clang cannot read those of GCC.
mkdir -p "$build/lint"
sed 's/ -Winvalid-pch -include [^ ]*cmake_pch\.hxx//' "$build/compile_commands.json" >"$build/lint/compile_commands.json"
# clang 14 does not evaluate some built-in functions that GCC and later versions do.
printf '%s\n' "${files[@]}" |
  xargs -P "$(jobs)" -n 1 clang-tidy -p "$build/lint" --quiet --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-invalid-constexpr
