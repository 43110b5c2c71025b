# Sourced by the scripts next to it: changes to the top of the tree, sets the build folder, shows each step in a line
# with its time, keeps its output in a log, and stops at the first failure with the cause.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${STRATA_BUILD:-build}
steps_ticker=

# Open MPI refuses to start as root unless both variables are set.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# The number of compilers to run in parallel: one per processor, if there is a gigabyte of memory for each.
jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "${memory:-0}" -ge "$processors" ] || processors=$((memory > 1 ? memory : 1))
  echo "$processors"
}

# Prints "45 of 255 files" for ninja's log, "12 of 345 tests" for CTest's, and nothing for other logs.
progress() {
  tail -n 40 "$1" 2>/dev/null | tr '\r' '\n' | sed -nE \
    -e 's/^\[([0-9]+)\/([0-9]+)\] .*/\1 of \2 files/p' \
    -e 's/^ *([0-9]+)\/([0-9]+) Test +#.*/\1 of \2 tests/p' | tail -n 1
}

# begin_step TITLE LOG, then end_step with the text that ends the step's line. While the step runs, a terminal shows the
# elapsed time and the progress, or otherwise the last line of the log. A pipe gets a line of progress per minute.
steps_minute=60
begin_step() {
  local log=$2 shell=$$ every=$steps_minute
  steps_title=$1
  if [ -t 1 ]; then every=1; else printf '%-44s' "$steps_title"; fi
  (
    told=0 sleeper=
    trap 'kill $sleeper 2>/dev/null; exit $told' TERM
    seconds=0
    # Wait for a sleep in the background, so that the signal that ends this loop is handled immediately.
    while sleep "$every" >/dev/null 2>&1 & sleeper=$!; wait "$sleeper" && kill -0 "$shell" 2>/dev/null; do
      seconds=$((seconds + every))
      line=$(progress "$log")
      if [ -t 1 ]; then
        line=${line:-$(tail -n 1 "$log" 2>/dev/null | tr -d '\000-\037' | cut -c1-60)}
        printf '\r\033[K%-44s %4d s  %s' "$steps_title" "$seconds" "$line"
      else
        printf '\n%-44s %4d s  %s' "" "$seconds" "$line"
        told=1
      fi
    done
    # Bash prints a message if the signal arrives between the start of the sleep and the wait for it.
  ) 2>/dev/null &
  steps_ticker=$!
}
# Fails if the ticker has written something below the step's title.
stop_ticker() {
  [ -n "$steps_ticker" ] || return 0
  local told=0
  kill "$steps_ticker" 2>/dev/null || true
  wait "$steps_ticker" 2>/dev/null || told=$?
  steps_ticker=
  if [ -t 1 ]; then printf '\r\033[K'; fi
  [ "$told" != 1 ]
}
end_step() {
  # Bash may print that the ticker has already ended.
  if ! stop_ticker 2>/dev/null; then
    printf '\n%-44s%s\n' "$steps_title" "$1"
  elif [ -t 1 ]; then
    printf '%-44s%s\n' "$steps_title" "$1"
  else
    printf '%s\n' "$1"
  fi
}
trap 'stop_ticker 2>/dev/null || true' EXIT

# step LOG TITLE COMMAND... runs the command with its output in $build/logs/LOG.log.
step() {
  local log=$build/logs/$1.log title=$2 start=$SECONDS status=0
  shift 2
  mkdir -p "$build/logs"
  : >"$log"  # the contents from earlier runs are not progress
  begin_step "$title" "$log"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" = 0 ]; then
    end_step "$(printf ' %4d s' $((SECONDS - start)))"
    return 0
  fi
  end_step "$(printf ' failed with exit code %d after %d s' "$status" $((SECONDS - start)))"
  printf '\nThe end of %s:\n' "$log"
  tail -n 40 "$log" | sed 's/^/  | /'
  echo
  die "$title: failed; the whole log is $log"
}
