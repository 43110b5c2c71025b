#!/usr/bin/env bash
# The RUN lines of the Containerfile's second stage, in a root made by debootstrap, and then the program in there: that
# it starts, and that its sshd takes a key. As root, with the network; minutes.
#   tests/scripts/container.sh STRATA FOLDER
set -euo pipefail
strata=$1 root=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "Skipped: a root of its own takes root" && exit 77; }
command -v debootstrap >/dev/null || { echo "Skipped: debootstrap is not installed (apt-get install debootstrap)" && exit 77; }
# From where this machine has its packages.
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk '$1 == "bookworm" && !seen++ { print $2 }')
[ -n "$mirror" ] || { echo "Skipped: apt knows no archive of Debian bookworm" && exit 77; }
curl -fsS --max-time 20 -o /dev/null "${mirror%/}/dists/bookworm/Release" 2>/dev/null ||
  { echo "Skipped: $mirror cannot be reached" && exit 77; }

rm -rf "$root"
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || { tail "$root.log" && exit 1; }
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true

# Of the last FROM on, each RUN with the lines that go on behind a backslash; without CUDA.
awk '/^FROM /{text = ""} /^RUN /{on = 1; sub(/^RUN /, "")} on{text = text $0 "\n"} on && !/\\$/{on = 0; text = text "\n"}
  END{printf "%s", text}' "$source/launcher/container/Containerfile" >"$root/run.sh"
grep -q openmpi-bin "$root/run.sh"
chroot "$root" env CUDA= DEBIAN_FRONTEND=noninteractive sh -ex /run.sh >>"$root.log" 2>&1 || { tail "$root.log" && exit 1; }

cp "$strata" "$root/usr/local/bin/strata"
chroot "$root" strata --version
# Texts go through a file: a reader that ends early would leave its writer a broken pipe, which pipefail counts.
chroot "$root" strata launch --help >"$root.help"
grep -q -- --hosts "$root.help"
chroot "$root" /usr/sbin/sshd -t
chroot "$root" sshd -T >"$root.sshd"
grep -qi '^strictmodes no' "$root.sshd"
chroot "$root" mpirun --version >"$root.mpirun"
head -n 1 "$root.mpirun"
