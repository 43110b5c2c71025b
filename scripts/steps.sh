# Sourced by the scripts beside it: goes to the top of the tree, names the build folder, says each step in a line with
# its time, keeps what the step prints in a log, and stops at the first failure with the cause.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${STRATA_BUILD:-build}
steps_ticker=

# Open MPI refuses to start as root unless told twice.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# How many compilers at once: one a processor, and a gigabyte of memory for each.
jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "${memory:-0}" -ge "$processors" ] || processors=$((memory > 1 ? memory : 1))
  echo "$processors"
}

# On a terminal a long step shows how long it has run and the last line of its log.
start_ticker() {
  [ -t 1 ] || return 0
  local title=$1 log=$2 shell=$$
  (
    trap 'exit 0' TERM
    seconds=0
    # Waiting for a sleep behind, not in front, so that the signal that ends this is heard at once.
    while { sleep 1 >/dev/null 2>&1 & } && wait "$!" && kill -0 "$shell" 2>/dev/null; do
      seconds=$((seconds + 1))
      line=$(tail -n 1 "$log" 2>/dev/null | tr -d '\000-\037' | cut -c1-60)
      printf '\r\033[K%-44s %4d s  %s' "$title" "$seconds" "$line"
    done
  ) &
  steps_ticker=$!
}
stop_ticker() {
  [ -n "$steps_ticker" ] || return 0
  kill "$steps_ticker" 2>/dev/null || true
  wait "$steps_ticker" 2>/dev/null || true
  steps_ticker=
  printf '\r\033[K'
}
trap stop_ticker EXIT

# step LOG TITLE COMMAND...: runs the command with its output in $build/logs/LOG.log.
step() {
  local log=$build/logs/$1.log title=$2 start=$SECONDS status=0
  shift 2
  mkdir -p "$build/logs"
  [ -t 1 ] || printf '%-44s' "$title"
  start_ticker "$title" "$log"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  stop_ticker
  [ ! -t 1 ] || printf '%-44s' "$title"
  if [ "$status" = 0 ]; then
    printf ' %4d s\n' $((SECONDS - start))
    return 0
  fi
  printf ' failed with exit code %d after %d s\n\nThe end of %s:\n' "$status" $((SECONDS - start)) "$log"
  tail -n 40 "$log" | sed 's/^/  | /'
  echo
  die "$title: failed; the whole log is $log"
}
