# Sourced by tests that need a bare Debian in a folder. As root, with the network.
#   make_root SUITE ROOT: debootstraps SUITE into ROOT, from where this machine has its packages, with /proc and the network's
#     settings. The root is removed when the script ends; as bare as it began, it is kept next to it for a day, for the
#     other tests of a build. What it says goes to ROOT.log. Without root, debootstrap or an archive it says why and exits
#     with 77.
#   in_root COMMAND...: runs a command in there, with what it prints in ROOT.log; the log's end is shown if it fails.

make_root() {
  local suite=$1 archive
  root=$2
  [ "$(id -u)" = 0 ] || { echo "Skipped: a root of its own takes root" && exit 77; }
  command -v debootstrap >/dev/null ||
    { echo "Skipped: debootstrap is not installed (apt-get install debootstrap)" && exit 77; }
  archive=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' |
    awk '$1 == "Debian" && $2 ~ /^(bookworm|trixie)$/ && !seen++ { print $3 }')
  [ -n "$archive" ] || { echo "Skipped: apt knows no archive of Debian" && exit 77; }
  curl -fsS --max-time 20 -o /dev/null "${archive%/}/dists/$suite/Release" 2>/dev/null ||
    { echo "Skipped: Debian's archive has no $suite, or cannot be reached" && exit 77; }
  remove_root
  trap remove_root EXIT
  local bare
  bare=$(dirname "$root")/bare-$suite.tar
  exec 9>"$bare.lock"
  flock 9 # another test may be making it
  if [ -n "$(find "$bare" -mmin -1440 2>/dev/null)" ]; then
    mkdir "$root"
    tar -xf "$bare" -C "$root" && echo "unpacked $bare" >"$root.log"
  else
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$archive" >"$root.log" 2>&1 ||
      { tail "$root.log" && exit 1; }
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # which no loss of power hurts
    tar -cf "$bare.new" -C "$root" .
    mv "$bare.new" "$bare"
  fi
  exec 9>&-
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev" # or what is unmounted there would be unmounted here
  cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
  cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
  in_root apt-get update
}

remove_root() {
  local mounted
  for mounted in $(awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r); do umount -l "$mounted"; done
  rm -rf --one-file-system "$root"
}

in_root() {
  chroot "$root" env CUDA= DEBIAN_FRONTEND=noninteractive HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@" >>"$root.log" 2>&1 </dev/null || { tail -n 30 "$root.log" && exit 1; }
}
