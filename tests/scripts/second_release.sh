#!/usr/bin/env bash
# Builds the program, runs a few steps of the demo and compares recorded bits on the other release of Debian that Strata
# supports, in a root made by debootstrap: Debian 13 if this machine has Debian 12, else Debian 12. A warning is an error.
# It takes minutes, so only CI runs it.
#   tests/scripts/second_release.sh FOLDER
# The compiler's cache is kept in ~/.cache/strata, so that the next run compiles only what has changed.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
[ -n "${CI:-}" ] || { echo "Skipped: only CI builds on a second release (set CI=true)" && exit 77; }
git -C "$source" rev-parse --verify -q HEAD >/dev/null || { echo "Skipped: $source is not a clone" && exit 77; }
. "$source/tests/scripts/debian_root.sh"
case $(. /etc/os-release && echo "$VERSION_CODENAME") in
  trixie) suite=bookworm ;;
  *) suite=trixie ;;
esac
make_root "$suite" "$1"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/strata/ccache-$suite
mkdir -p "$cache" "$root/root/.cache/ccache"
mount --bind "$cache" "$root/root/.cache/ccache"
git clone -q --depth 1 "file://$source" "$root/root/strata"
in_root apt-get install -y --no-install-recommends ccache
in_root /root/strata/scripts/setup.sh
# -O0 compiles in half the time. Kernels still have -O3, and no flag may change a bit.
in_root env CI=true CCACHE_MAXSIZE=2G STRATA_HOST_FLAGS="-O0 -g0" /root/strata/scripts/build.sh
in_root /root/strata/scripts/demo.sh --smoke
grep -q 'the same bits' "$root.log"
! grep -n 'warning:' "$root/root/strata/build/logs/build.log" || { echo "the compiler warns" && exit 1; }
# Compares the bits recorded for this kind of processor and that release's oneDNN, if there are any.
in_root bash -c 'cd /root/strata && { tests/scripts/recorded_bits.sh build/strata /root/bits || [ $? = 77 ]; }'
echo "$suite: $(sed -n 's/^compiled: /compiled /p' "$root.log")"
grep -A4 '^weights after 3 steps' "$root.log"
