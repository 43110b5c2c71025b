#!/usr/bin/env bash
# Installs missing packages, builds everything and runs every test.
#   scripts/test.sh [--asan | --tsan] [--quick] [-R REGEX]
# --asan: with AddressSanitizer and UBSan, in build-asan. --tsan: with ThreadSanitizer, in build-tsan, only tests whose
# ranks and lanes are threads. --quick: without the tests that start mpirun or scripts, and without the fuzz replays.
# -R: only tests whose name matches. A test of several processes or nodes that fails is run again, alone, because the
# tests share a few processors. If it passes then, the output says so.
# The last line is "N passed, N failed, N skipped"; the exit code is 0 if none failed.
. "$(dirname "$0")/steps.sh"

build_options=(--all)
select=()
# ThreadSanitizer sees the threads of this process, but not the synchronisation of MPI and OpenMP.
threads='^(comm|runtime|models|offload)\.|^device\.(Lane|Team|Abort)'
while [ $# -gt 0 ]; do
  case $1 in
    --asan)
      build_options+=(--sanitize address)
      build=${STRATA_BUILD:-build-asan}
      ;;
    --tsan)
      build_options+=(--sanitize thread)
      build=${STRATA_BUILD:-build-tsan}
      select+=(-R "$threads" -LE 'mpirun|scripts')
      ;;
    --quick) select+=(-LE 'mpirun|scripts|fuzz') ;;
    -R)
      select+=(-R "${2:?-R needs a regular expression}")
      shift
      ;;
    -h | --help) sed -n '2,9s/^# //p' "$0" && exit 0 ;;
    *) die "there is no option $1 (see --help)" ;;
  esac
  shift
done

# Prints results from the JUnit files of CTest, that of the second attempts first: skipped tests with reasons, failed
# tests with their output, and the summary line.
summarize() {
  awk -v again="$1" '
    function attribute(name,  text) {
      if (!match($0, " " name "=\"[^\"]*\"")) return ""
      text = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
      return plain(text)
    }
    function plain(text) {
      gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&apos;/, "\047", text)
      gsub(/&amp;/, "\\&", text)
      return text
    }
    /<testcase / { name = attribute("name"); status = attribute("status"); reason = ""; output = ""; reading = 0 }
    /<system-out>/ { reading = 1; sub(/.*<system-out>/, "") }
    reading {
      line = plain($0)
      end = sub(/<\/system-out>.*/, "", line)
      if (after_skip) { reason = line; after_skip = 0 }
      if (line ~ /: Skipped$/) after_skip = 1
      if (line ~ /^Skipped: /) reason = substr(line, 10)
      output = output "  | " line "\n"
      if (end) reading = 0
    }
    /<\/testcase>/ {
      if (FILENAME == again) { if (status == "run") second[name] = 1; next }
      if (status == "fail" && name in second) {
        ++passed
        seconds = seconds "passed at the second attempt, alone: " name "; the first said\n" output "\n"
      } else if (status == "run") ++passed
      else if (status == "fail") { ++failed; failures = failures "failed: " name "\n" output "\n" }
      else { ++skipped; skips = skips "skipped: " name ": " (reason == "" ? "no reason given" : reason) "\n" }
    }
    END {
      printf "%s%s%s", skips, seconds, failures
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$@"
}

scripts/setup.sh
STRATA_BUILD=$build scripts/build.sh "${build_options[@]}"

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/leaks.supp:print_suppressions=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/races.supp:second_deadlock_stack=1}
results=$PWD/$build/logs/tests.xml
[ "${build#/}" = "$build" ] || results=$build/logs/tests.xml
again=${results%.xml}-again.xml
start=$SECONDS
rm -f "$results" "$again"
# run_tests OUTPUT [OPTION...]
run_tests() {
  ctest --test-dir "$build" --no-tests=error --output-on-failure --test-output-size-failed 65536 --output-junit "$@"
}
# Runs the failed tests whose processes wait for each other once more, alone. True if these are all the failures and
# they now pass.
failed_pass_alone() {
  local names
  names=$(cut -d: -f2- "$build/Testing/Temporary/LastTestsFailed.log" | sed 's/[][().*+?^$|\\]/\\&/g')
  run_tests "$again" -R "^($(paste -sd '|' <<<"$names"))\$" -L 'mpirun|cluster' &&
    [ "$(grep -c '<testcase ' "$again")" = "$(wc -l <<<"$names")" ]
}
status=0
mkdir -p "$build/logs"
: >"$build/logs/tests.log"
# Tests with several processes or nodes spend much of their time waiting, and one test builds the program at low
# priority, so run two more tests than there are processors.
begin_step "running the tests" "$build/logs/tests.log"
run_tests "$results" --parallel $(($(jobs) + 2)) "${select[@]}" >"$build/logs/tests.log" 2>&1 </dev/null || status=$?
if [ "$status" != 0 ] && [ -s "$results" ] && failed_pass_alone >>"$build/logs/tests.log" 2>&1 </dev/null; then
  status=0
fi
end_step "$(printf ' %4d s' $((SECONDS - start)))"
if [ ! -s "$results" ]; then
  tail -n 40 "$build/logs/tests.log"
  die "ctest gave no result; the whole log is $build/logs/tests.log"
fi
[ -s "$again" ] || echo "<testsuite/>" >"$again"
[ -s "$again" ] || echo "<testsuite/>" >"$again"
[ "$status" = 0 ] || echo "the whole log is $build/logs/tests.log"
summarize "$again" "$results"
exit "$status"
