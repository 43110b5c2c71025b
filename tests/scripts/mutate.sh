#!/usr/bin/env bash
# Tests mutate.sh on a tree of one file: which faults the test detects, which it misses, and which do not compile or
# end; that the tree stays unchanged, and that a seed selects the same faults again.
#   mutate.sh FOLDER
set -euo pipefail
folder=$1
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
command -v ninja >/dev/null && command -v git >/dev/null || { echo "Skipped: ninja and git are needed"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder/scripts" "$folder/offload"
cd "$folder"
git init -q .
cp "$scripts/mutate.sh" "$scripts/steps.sh" scripts/
echo build >.gitignore
unset STRATA_BUILD GTEST_FILTER

cat >CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.20)
project(tiny CXX)
add_executable(offload_test offload/limits.cc offload/main.cc)
C
cat >offload/limits.cc <<'C'
#include <string>
int waits = 0, limit = 8;
void wait() { ++waits; }
bool fits(int n) { return n <= limit; }
bool spare(int n) { return n < limit; }  // "a < b" in a comment: n < 3
int length(const std::string& text, int more) { return static_cast<int>(text.size()) + more; }
int total(const std::string& name, int more) {
  wait();
  if (fits(more)) return length(name, more);
  return 0;
}
int difference(int a, int b) { return a - b; }
int pair(int a, int b) { return difference(a, b); }
bool ends(int n) {
  for (int i = n; i > 0; i = i - 1);
  return true;
}
C
echo "bool above(int n) { return n > 3; }" >offload/elsewhere.cc
cat >offload/main.cc <<'C'
bool fits(int n);
bool ends(int n);
int pair(int a, int b);
int main() { return fits(8) && !fits(9) && pair(3, 1) == 2 && ends(2) ? 0 : 1; }
C
cp -r offload before

wrong() {
  echo "$1" && sed 's/^/  | /' "$2" && exit 1
}
has() {
  grep -qF -- "$2" "$1" || wrong "this lacks: $2" "$1"
}
# The result for the fault in that line of offload/limits.cc.
outcome() {
  awk -v head="offload/limits.cc:$2 ($3)" '$0 == head { here = 1 } here && /^  [^<>]/ { print substr($0, 3); exit }' "$1"
}
expect() {
  [ "$(outcome "$1" "$2" "$3")" = "$4" ] || wrong "line $2 ($3) is not: $4" "$1"
}

scripts/mutate.sh 99 offload --dry-run >dry.log || wrong "the dry run failed" dry.log
has dry.log '  >   (void)0;'
has dry.log '  >   if (((void)(fits(more)), false)) return length(name, more);'
has dry.log 'none planted (seed 1)'
! grep -q 'comment.*<= 3' dry.log || wrong "a fault in a comment" dry.log

status=0
scripts/mutate.sh 99 offload --seconds 40 >all.log 2>&1 || status=$?
[ "$status" = 1 ] || wrong "ended with $status, not 1" all.log
expect all.log 4 border seen
expect all.log 5 border SURVIVED
expect all.log 8 wait SURVIVED
expect all.log 9 result SURVIVED
expect all.log 9 swap 'does not compile'
expect all.log 13 swap seen
expect all.log 15 one 'seen: the tests took more than 40 s'
grep -A3 "^offload/elsewhere.cc:1 (border)" all.log | grep -q "is not built here" || wrong "elsewhere.cc is built" all.log
total=$(grep -c '^offload/' all.log) survived=$(grep -c "^  SURVIVED" all.log) broken=$(grep -c 'does not compile' all.log)
has all.log "$total faults: $((total - survived - broken - 1)) seen, $survived survived, $broken did not compile, 1 are not built here (seed 1)"
diff -r before offload || wrong "the tree has changed" all.log
# Objects that an earlier run built from a fault are not reused for the tree itself.
scripts/mutate.sh 1 offload --seed 2 >again.log 2>&1 || true
has again.log 'offload without a fault: its tests pass'

for draw in 1 2 3; do
  scripts/mutate.sh 4 offload --seed $((draw == 3 ? 4 : 3)) --dry-run >draw.log
  grep '^offload/' draw.log >"drawn.$draw"
done
cmp -s drawn.1 drawn.2 || wrong "a seed draws other faults again" drawn.2
! cmp -s drawn.1 drawn.3 || wrong "another seed draws the same" drawn.3
status=0
scripts/mutate.sh 3 nowhere >refused.log 2>&1 || status=$?
[ "$status" = 1 ] || wrong "ended with $status, not 1" refused.log
has refused.log 'no tests are known for the folder nowhere'
status=0
(flock 8 && scripts/mutate.sh 1 offload) 8>build/mutants/lock >busy.log 2>&1 || status=$?
[ "$status" = 1 ] || wrong "ended with $status, not 1" busy.log
has busy.log 'another run is at work'
echo "every fault accounted for"
