#!/usr/bin/env bash
# Plants faults in the sources, one at a time, and reports those that no test detects.
#   scripts/mutate.sh N [FOLDER] [--seed S] [--seconds T] [--dry-run]
# Plants N random faults, of the kinds below in turn, in the sources of FOLDER or of all folders, in a copy of the tree.
# Shows each fault as file:line and diff, and builds and runs its folder's tests (GTEST_FILTER applies to them). --seed:
# selects other random faults. --seconds: the limit for a fault's build, and for its tests; tests that exceed it detect
# the fault. --dry-run: only shows the faults. The last line counts them; the exit code is 1 if one survived. Kinds:
#   border   < for <=, and the like            wait    a wait, barrier, flush or sync is dropped
#   one      a + 1, - 1 or = 0 is off by one   result  a check is made and its outcome ignored
#   swap     two arguments change places
. "$(dirname "$0")/steps.sh"

# Each folder, with the programs that test it (tests/CMakeLists.txt).
programs='
  base                base_test
  text                text_test
  device              device_test
  comm                comm_test dist_test
  models              models_test
  offload             offload_test
  runtime/recipe      recipe_test
  runtime/plan        plan_test
  runtime/forecast    forecast_test
  runtime/data        data_test
  runtime/memory      memory_test run_test
  runtime/tasks       tasks_test run_test
  runtime/planner     planner_test
  runtime/execute     execute_test run_test
  runtime/weights     weights_test run_test
  runtime/checkpoint  checkpoint_test
  runtime/objective   objective_test
  runtime/job         job_test
  runtime/run         run_test
  launcher            launcher_test fault_test
  launcher/commands/predict  launcher_test dist_test
  launcher/control    launcher_test dist_test
  launcher/launch     launcher_test dist_test
'

count= only= seed=1 seconds=900 dry=
while [ $# -gt 0 ]; do
  case $1 in
    --seed | --seconds)
      [[ ${2:-} =~ ^[0-9]{1,9}$ ]] || die "$1 takes a number"
      [ "$1" = --seed ] && seed=$2 || seconds=$2
      shift
      ;;
    --dry-run) dry=1 ;;
    -h | --help) sed -n '2,11s/^# //p' "$0" && exit 0 ;;
    -*) die "there is no option $1 (see --help)" ;;
    *) if [ -z "$count" ]; then count=$1; else only=${1%/}; fi ;;
  esac
  shift
done
[[ $count =~ ^[1-9][0-9]{0,5}$ ]] || die "how many faults? (see --help)"
tests_of() { awk -v folder="$1" '$1 == folder { $1 = ""; print }' <<<"$programs"; }
# Prints the folder in the table to which a file belongs.
folder_of() {
  local folder=${1%/*}
  while [ -z "$(tests_of "$folder")" ] && [[ $folder == */* ]]; do folder=${folder%/*}; done
  echo "$folder"
}
folders=${only:-$(awk 'NF { print $1 }' <<<"$programs")}
[ -z "$only" ] || [ -n "$(tests_of "$(folder_of "$only/any")")" ] ||
  die "no tests are known for the folder $only (the table in $0)"

# Prints every possible fault, one per line: KIND, FILE, LINE, and the line with the fault, separated by tabs.
candidates() {
  find "$@" \( -name '*.cc' -o -name '*.h' \) 2>/dev/null | LC_ALL=C sort | xargs -r awk '
    # Whether the text at `at` is code: it is not in a comment, and the number of quotes before it is even.
    function is_code(at,  before) {
      before = substr($0, 1, at - 1)
      return before !~ /\/\// && gsub(/"/, "", before) % 2 == 0
    }
    # The place of the parenthesis that closes the one at `at`; 0 if it is on another line.
    function closing(at,  depth, c) {
      for (; at <= length($0); ++at) {
        c = substr($0, at, 1)
        depth += c == "(" ? 1 : c == ")" ? -1 : 0
        if (depth == 0) return at
      }
      return 0
    }
    function plant(kind, at, size, text) {
      if (is_code(at)) print kind "\t" FILENAME "\t" FNR "\t" substr($0, 1, at - 1) text substr($0, at + size)
    }
    # Handles each occurrence of `old` in the line.
    function each(kind, old, new,  from, at) {
      for (from = 1; at = index(substr($0, from), old); from += at) plant(kind, from + at - 1, length(old), new)
    }
    /\t/ || /^ *(\/\/|#|\*)/ || /(STRATA_CHECK|static_assert|template|operator|using )/ { next }
    {
      each("border", " < ", " <= "); each("border", " <= ", " < "); each("border", " > ", " >= "); each("border", " >= ", " > ")
      for (from = 1; match(substr($0, from), / [+-] 1[^0-9.xu]/); from += RSTART)
        plant("one", from + RSTART - 1, 4, "")
      if (match($0, /for \([a-z:_ ]+ = 0;/)) plant("one", RSTART + RLENGTH - 2, 1, "1")
    }
    # A call that is a statement, at the beginning of the line or after a condition.
    match($0, /(^ +|\) )([A-Za-z_][A-Za-z_0-9]*(\(\)|\[[^]]*\])?(\.|->|::))*[a-z_]*(wait|synchronize|barrier|drain|flush|sync|join)[a-z_]*\(.*\);$/) {
      lead = match($0, /^ +/) ? RLENGTH : 0
      match($0, /([A-Za-z_][A-Za-z_0-9]*(\(\)|\[[^]]*\])?(\.|->|::))*[a-z_]*(wait|synchronize|barrier|drain|flush|sync|join)[a-z_]*\(/)
      if (RSTART == lead + 1 || substr($0, RSTART - 2, 2) == ") ")
        if (closing(RSTART + RLENGTH - 1) == length($0) - 1) {
          of = substr($0, RSTART, RLENGTH)  # use the object, because an unused variable does not compile
          sub(/(\.|->)?[A-Za-z_0-9]*\($/, "", of)
          plant("wait", RSTART, length($0) - RSTART, "(void)" (of == "" || of ~ /::/ ? "0" : of))
        }
    }
    match($0, /^ *(\} else )?if \(/) {
      open = RLENGTH
      end = closing(open)
      asked = substr($0, open + 1, end - open - 1)
      if (end && asked ~ /[a-z_]\(/ && asked !~ /;|const |auto /) plant("result", open + 1, length(asked), "((void)(" asked "), false)")
    }
    {
      for (from = 1; match(substr($0, from), /[A-Za-z_0-9]\([A-Za-z_][A-Za-z_0-9.]*, [A-Za-z_][A-Za-z_0-9.]*[,)]/); from = at + 1) {
        at = from + RSTART
        both = substr($0, at + 1, RLENGTH - 3)
        split(both, word, ", ")
        if (word[1] != word[2] && substr($0, 1, at - 1) !~ /(min|max|swap|minmax)$/) plant("swap", at + 1, length(both), word[2] ", " word[1])
      }
    }'
}

# Selects `count` of them at random, from each kind in turn, so that rare kinds get their share.
draw() {
  awk -F '\t' -v seed="$seed" -v count="$count" '
    function random(below) {
      state = (state * 16807) % 2147483647
      return int(state / 2147483647 * below)
    }
    BEGIN { state = seed % 2147483646 + 1; for (i = 0; i < 8; ++i) random(1) }
    { if (!($1 in sizes)) kinds[++n] = $1; all[$1, sizes[$1]++] = $0 }
    END {
      for (left = n; count > 0 && left > 0;)
        for (k = 1; k <= n && count > 0; ++k) {
          kind = kinds[k]
          if (!sizes[kind]) continue
          at = random(sizes[kind])
          print all[kind, at]
          all[kind, at] = all[kind, --sizes[kind]]
          if (!sizes[kind]) --left
          --count
        }
    }'
}

work=$(mkdir -p "$build/mutants" && cd "$build/mutants" && pwd)
tree=$work/tree
log=$work/log
exec 9>"$work/lock"
flock -n 9 || die "another run is at work in $work"
mkdir -p "$tree"
# Keep the build for the next run. It is inside this tree, so that ccache finds the objects of the tree above.
find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  [ ! -e "$file" ] || printf '%s\0' "$file"
done | tar -c --null -T - | tar -x -C "$tree"
cd "$tree"
# Objects that were built from an earlier fault are newer than their sources.
[ ! -e "$work/planted" ] || xargs -r touch -c <"$work/planted"

# shellcheck disable=SC2086  # folders and programs are lists
candidates $folders | draw >"$work/faults"
[ -s "$work/faults" ] || die "nothing to plant a fault in: ${folders//$'\n'/, }"

limited() { { timeout -k 10 "$seconds" nice "$@"; } >"$log" 2>&1 </dev/null; }
build_tests() { limited cmake --build build --parallel "$(jobs)" --target "$@"; }
# Whether anything in the build depends on the file.
is_built() { [ "$(ninja -C build -t deps 2>/dev/null | grep -cE "^ .*[/ ]$1$")" != 0 ]; }
run_tests() {
  local program
  for program in "$@"; do
    limited "$(find build -type f -name "$program" | head -n 1)" --gtest_brief=1 --gtest_fail_fast || return
  done
}

if [ -z "$dry" ]; then
  ccache=()
  ! command -v ccache >/dev/null || ccache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  limited cmake -S . -B build -G Ninja -DSTRATA_CUDA=OFF "${ccache[@]}" || die "configuring failed: see $log"
  for folder in $(cut -f 2 "$work/faults" | while read -r file; do folder_of "$file"; done | LC_ALL=C sort -u); do
    printf '%s without a fault: ' "$folder"
    build_tests $(tests_of "$folder") || die "the tests do not build within $seconds s: see $log"
    start=$SECONDS
    run_tests $(tests_of "$folder") || die "the tests fail or take more than $seconds s, so they tell nothing: see $log"
    echo "its tests pass in $((SECONDS - start)) s"
  done
fi

seen=0 survived=0 broken=0 absent=0
while IFS=$'\t' read -r kind file line text; do
  printf '\n%s:%s (%s)\n' "$file" "$line" "$kind"
  echo "$file" >>"$work/planted"
  cp "$file" "$work/original"
  # Do not pass the text with awk -v, which interprets escapes.
  TEXT=$text awk -v line="$line" 'FNR == line { print ENVIRON["TEXT"]; next } { print }' "$work/original" >"$file"
  diff "$work/original" "$file" | sed -n 's/^[<>]/  &/p' || true
  if [ -z "$dry" ]; then
    programs_here=$(tests_of "$(folder_of "$file")") status=0
    if ! is_built "$file"; then
      absent=$((absent + 1)) outcome="is not built here"
    elif ! build_tests $programs_here; then
      broken=$((broken + 1)) outcome="does not compile"
    elif run_tests $programs_here || { status=$? && false; }; then
      survived=$((survived + 1)) outcome="SURVIVED"
    else
      seen=$((seen + 1)) outcome="seen"
      [ "$status" != 124 ] || outcome="seen: the tests took more than $seconds s"
    fi
    echo "  $outcome"
  fi
  cp "$work/original" "$file"
done <"$work/faults"

total=$(wc -l <"$work/faults")
if [ -n "$dry" ]; then
  printf '\n%s faults, none planted (seed %s)\n' "$total" "$seed"
else
  printf '\n%s faults: %s seen, %s survived, %s did not compile, %s are not built here (seed %s)\n' "$total" \
    "$seen" "$survived" "$broken" "$absent" "$seed"
fi
[ "$survived" = 0 ]
