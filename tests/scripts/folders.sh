#!/usr/bin/env bash
# Checks the order of the folders: reports file and line of every #include of a header that its folder may not see,
# every cycle of headers or units, and every folder without an entry header.
#   tests/scripts/folders.sh [DIR]      DIR: another tree than this one
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

# The folders that each folder may see besides itself and base, in the order of the libraries in CMakeLists.txt.
runtime_folders="runtime/recipe runtime/data runtime/plan runtime/forecast runtime/memory runtime/tasks runtime/planner
  runtime/execute runtime/weights runtime/checkpoint runtime/objective runtime/job runtime/run"
sees() {
  case $1 in
    base | text) ;;
    device) ;;
    models | offload | comm) echo device ;;
    runtime/recipe) echo models offload comm device ;;
    runtime/data) echo "$(sees runtime/recipe) runtime/recipe" ;;
    runtime/plan) echo "$(sees runtime/data) runtime/data" ;;
    runtime/forecast | runtime/memory | runtime/objective) echo "$(sees runtime/plan) runtime/plan" ;;
    runtime/tasks) echo "$(sees runtime/memory) runtime/memory" ;;
    runtime/planner | runtime/execute) echo "$(sees runtime/tasks) runtime/tasks" ;;
    runtime/weights) echo "$(sees runtime/execute) runtime/execute" ;;
    runtime/checkpoint) echo "$(sees runtime/weights) runtime/weights" ;;
    runtime/job) echo "$(sees runtime/checkpoint) runtime/checkpoint runtime/forecast runtime/planner" ;;
    runtime/run) echo "$(sees runtime/job) runtime/job runtime/objective text" ;;
    bench) echo launcher $(sees launcher) ;;
    launcher) echo text models offload comm device $runtime_folders ;;
    *) return 1 ;;
  esac
}

# A test may see what its folder sees. Tests of complete jobs may see every folder.
test_sees() {
  case $1 in
    tests/runtime* | tests/launcher* | tests/dist* | tests/cluster* | tests/fault* | tests/fuzz* | tests/golden*) sees launcher ;;
    tests/*) sees "$(echo "${1#tests/}" | cut -d/ -f1)" ;;
  esac
}

includes() { grep -HnE '^ *# *include *"' "$@" /dev/null | sed -E 's/^([^:]*):([0-9]+):.*"([^"]*)".*/\1 \2 \3/'; }

wrong=0
# check PATH SEEN...: the sources below PATH see the headers below SEEN (folders, or headers by name) and no others.
check() {
  local path=$1 sources
  shift
  [ -d "$path" ] || return 0
  mapfile -t sources < <(find "$path" -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | sort)
  [ ${#sources[@]} -gt 0 ] || return 0
  local line
  while IFS= read -r line; do
    echo "$line: $path may include headers of ${*//$'\n'/ } only"
    wrong=1
  done < <(includes "${sources[@]}" | awk -v seen="$*" '
    BEGIN { n = split(seen, prefixes, " ") }
    { for (i = 1; i <= n; ++i) if ($3 == prefixes[i] || index($3, prefixes[i] "/") == 1) next
      print $1 ":" $2 ": " $3 }')
}
# Subfolders that may not see the rest of their folder.
check text/template text/template text/unicode/utf8.h base
check base/json base/json
check runtime/recipe/names runtime/recipe/names
check runtime/plan/layout runtime/plan/layout base $(sees runtime/recipe) runtime/recipe
# The proof of a plan may not see how plans are made.
check runtime/plan/proof runtime/plan/proof runtime/plan/layout runtime/plan/plan.h runtime/plan/task_kind.h base
# Subfolders that the rest of their folder may not see.
for subfolder in runtime/plan/proof runtime/job/search runtime/weights/adapter runtime/checkpoint/export; do
  [ -d "$subfolder" ] || continue
  folder=${subfolder%/*}
  if grep -rnE "^ *# *include *\"$subfolder/" "$folder" --exclude-dir="${subfolder##*/}"; then
    echo "$folder: only $subfolder itself and other folders may include headers of $subfolder"
    wrong=1
  fi
done
for path in base text device models offload comm runtime/* launcher bench; do
  [ -d "$path" ] || continue
  seen=$(sees "$path") || { echo "$path: has no place in the order of the folders" && wrong=1 && continue; }
  check "$path" "$path" base $seen
done
if [ -d tests ]; then
  for path in tests/*/; do
    path=${path%/}
    seen=$(test_sees "$path") || continue
    folder=${path#tests/}
    [ -d "$folder" ] || folder=
    check "$path" tests base $folder $seen
  done
fi

# Finds cycles of headers, which include guards hide (the order of includes then decides what is declared first), and of
# units, each a header with its source. Units in a cycle cannot be understood, tested or linked separately.
# cycle WHAT: prints the cycle in the edges "FROM TO" on stdin, if there is one.
cycle() {
  local found
  found=$(sort -u | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([^-].*\)/\1/p' || true)
  [ -n "$found" ] || return 0
  echo "these $1 include each other in a cycle:"
  echo "$found"
  wrong=1
}
mapfile -t all < <(find base text device models offload comm runtime launcher -name '*.h' -o -name '*.cuh' -o \
  -name '*.cc' -o -name '*.cu' 2>/dev/null | sort)
edges=$(includes "${all[@]}" | awk '{ print $1, $3 }')
cycle headers < <(grep -E '^[^ ]*\.(h|cuh) ' <<<"$edges" || true)
cycle units < <(awk '{
  gsub(/\.(h|cuh|cc|cu)( |$)/, " "); if ($1 != $2) print $1, $2 }' <<<"$edges")

# The entry header of a folder begins with "// FOLDER/ ", and says what the folder is for and what to open next.
while IFS= read -r folder; do
  count=$(grep -lE "^// $folder/ " "$folder"/*.h | wc -l || true)
  [ "$count" -eq 1 ] && continue
  echo "$folder: $count of its headers say what the folder is for (\"// $folder/ ...\")"
  wrong=1
done < <(find base text device models offload comm runtime launcher -name '*.h' -printf '%h\n' 2>/dev/null | sort -u |
  grep -vE '^device/(ops(/.*)?|cpu/.*|cuda/.*)$')
exit $wrong
