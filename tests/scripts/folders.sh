#!/usr/bin/env bash
# The order of the folders: names file and line of every #include of a header that its folder may not see.
#   tests/scripts/folders.sh [DIR]      DIR: another tree than this one
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

# What a folder sees besides itself; a test sees what the folder that it tests sees.
sees() {
  case $1 in
    device) ;;
    models | offload | comm) echo device ;;
    runtime) echo models offload comm device ;;
    launcher | bench | dist | fault | fuzz | golden) echo runtime models offload comm device ;;
    *) return 1 ;;
  esac
}

wrong=0
for path in device models offload comm runtime launcher bench tests/*/; do
  path=${path%/}
  folder=${path#tests/}
  [ -d "$path" ] || continue
  seen=$(sees "$folder") || continue
  [ "$path" = "$folder" ] || seen="$seen tests $folder"
  allowed=$(echo "$folder" $seen | tr ' ' '|')
  while IFS= read -r line; do
    echo "$line: $path may include headers of ${allowed//|/, } only"
    wrong=1
  done < <(grep -rnE --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' '^ *# *include *"' "$path" |
    grep -vE "^[^:]*:[0-9]+: *# *include *\"($allowed)/" || true)
done
exit $wrong
