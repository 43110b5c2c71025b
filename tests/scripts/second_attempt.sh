#!/usr/bin/env bash
# Tests scripts/test.sh: if a test with several processes fails, it is run again by itself, and named if it then passes.
# Other failures, and tests that cannot be run at all, remain failures.
#   second_attempt.sh FOLDER
set -euo pipefail
folder=$1
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
rm -rf "$folder" && mkdir -p "$folder/scripts" "$folder/build"
cp "$scripts/test.sh" "$scripts/steps.sh" "$folder/scripts"
for script in setup build; do
  printf '#!/bin/sh\n' >"$folder/scripts/$script.sh" && chmod +x "$folder/scripts/$script.sh"
done
unset STRATA_BUILD

# try EXIT_CODE LAST_LINE TEST...: each TEST is NAME:LABEL:SHELL COMMAND.
try() {
  local code=$1 last=$2 status=0 name label command
  shift 2
  rm -f "$folder/once" && : >"$folder/build/CTestTestfile.cmake"
  for test in "$@"; do
    IFS=: read -r name label command <<<"$test"
    printf 'add_test(%s %s)\nset_tests_properties(%s PROPERTIES LABELS %s)\n' "$name" "$command" "$name" "$label" \
      >>"$folder/build/CTestTestfile.cmake"
  done
  bash "$folder/scripts/test.sh" >"$folder/output.txt" 2>&1 </dev/null || status=$?
  if [ "$status" != "$code" ] || [ "$(tail -n 1 "$folder/output.txt")" != "$last" ]; then
    echo "should end with $code and '$last', not with $status and" && sed 's/^/  | /' "$folder/output.txt" && exit 1
  fi
}
later="sh -c \"test -e '$folder/once' || { touch '$folder/once'; echo not yet; exit 1; }\""
try 0 "2 passed, 0 failed, 0 skipped" "a.Good:unit:true" "cluster.Later:cluster:$later"
grep -q '^passed at the second attempt, alone: cluster.Later; the first said$' "$folder/output.txt"
grep -q '  | not yet$' "$folder/output.txt"
try 8 "1 passed, 1 failed, 0 skipped" "cluster.Later:cluster:$later" "cluster.Bad:cluster:false"
try 8 "1 passed, 1 failed, 0 skipped" "a.Good:unit:true" "a.Later:unit:$later"
try 8 "1 passed, 0 failed, 1 skipped" "cluster.Later:cluster:$later" "cluster.None:cluster:$folder/none"
