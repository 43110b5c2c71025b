#!/usr/bin/env bash
# Tests scripts/steps.sh: a long step shows its progress, in one line per minute (here per second) into a pipe and in a
# single line on a terminal. A short step prints one line. A step that fails ends the script with the end of its log.
#   steps.sh FOLDER
set -euo pipefail
folder=$1
steps=$(cd "$(dirname "$0")/../../scripts" && pwd)/steps.sh
rm -rf "$folder" && mkdir -p "$folder"

cat >"$folder/long.sh" <<P
#!/usr/bin/env bash
STRATA_BUILD=$folder/build
. "$steps"
steps_minute=1
build() { echo "[1/7] Building CXX object a.o" && sleep 3 && echo "[3/7] Building CXX object b.o" && sleep 3; }
tests() { printf '      Start  9: a\n 2/44 Test  #9: a ....   Passed    0.1 sec\n      Start 10: b\n' && sleep 3; }
step build "a long step" build
step tests "a step of tests" tests
step short "a short step" true
step wrong "a wrong step" ls /nowhere
P

wrong() {
  echo "$1" && sed 's/^/  | /' "$2" && exit 1
}
status=0
bash "$folder/long.sh" >"$folder/pipe.txt" 2>&1 </dev/null || status=$?
[ "$status" = 1 ] || wrong "a failed step should end the script with 1, not $status" "$folder/pipe.txt"
for line in '^ +1 s  1 of 7 files$' '^ +[0-9]+ s  3 of 7 files$' '^a long step +[0-9]+ s$' '^ +1 s  2 of 44 tests$' \
  '^a step of tests +[0-9]+ s$' '^a short step +[0-9]+ s$' '^a wrong step +failed with exit code 2' \
  '^  [|] ls: .*nowhere'; do
  grep -qE "$line" "$folder/pipe.txt" || wrong "no line of the pipe is $line:" "$folder/pipe.txt"
done

command -v script >/dev/null || { echo "Skipped: without the program script there is no terminal here"; exit 77; }
script -qec "bash $folder/long.sh" /dev/null >"$folder/terminal.txt" 2>&1 </dev/null || true
tr '\r' '\n' <"$folder/terminal.txt" | sed 's/^\x1b\[K//' >"$folder/lines.txt"
for line in '^a long step +1 s  1 of 7 files$' '^a step of tests +1 s  2 of 44 tests$' '^a short step +[0-9]+ s$'; do
  grep -qE "$line" "$folder/lines.txt" || wrong "no line of the terminal is $line:" "$folder/lines.txt"
done
