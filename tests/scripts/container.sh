#!/usr/bin/env bash
# Runs the RUN lines of the Containerfile's second stage in a root made by debootstrap, and then checks that the program
# starts there and that its sshd accepts a key. Needs root and the network, and takes minutes.
#   tests/scripts/container.sh STRATA FOLDER
set -euo pipefail
strata=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/scripts/debian_root.sh"
make_root bookworm "$2"

# Takes each RUN after the last FROM, with its continuation lines, without CUDA.
awk '/^FROM /{text = ""} /^RUN /{on = 1; sub(/^RUN /, "")} on{text = text $0 "\n"} on && !/\\$/{on = 0; text = text "\n"}
  END{printf "%s", text}' "$source/launcher/container/Containerfile" >"$root/run.sh"
grep -q openmpi-bin "$root/run.sh"
in_root sh -ex /run.sh

cp "$strata" "$root/usr/local/bin/strata"
chroot "$root" strata --version
# Texts go through a file: if a reader ended early, its writer would get a broken pipe, which pipefail reports.
chroot "$root" strata launch --help >"$root.help"
grep -q -- --hosts "$root.help"
chroot "$root" /usr/sbin/sshd -t
chroot "$root" sshd -T >"$root.sshd"
grep -qi '^strictmodes no' "$root.sshd"
chroot "$root" mpirun --version >"$root.mpirun"
head -n 1 "$root.mpirun"
