#!/usr/bin/env bash
# Installs the Debian packages that Strata needs and that are missing, with apt-get (through sudo where not root).
#   scripts/setup.sh [--dev]      --dev: also what its developers use (clang-format, clang-tidy, clang, ccache)
# Where the libraries come from elsewhere: STRATA_SKIP_SETUP=1 leaves the system alone.
. "$(dirname "$0")/steps.sh"

packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev
  libdnnl-dev libsimdjson-dev libtomlplusplus-dev libcli11-dev libspdlog-dev libfmt-dev libxxhash-dev libhwloc-dev
  liburing-dev libaio-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev # tokenizers
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  bible-kjv bible-kjv-text # the text of the demo
)
for argument in "$@"; do
  case $argument in
    --dev) packages+=(clang-format clang-tidy clang libclang-rt-14-dev ccache) ;;
    -h | --help) sed -n '2,4s/^# //p' "$0" && exit 0 ;;
    *) die "there is no option $argument (see --help)" ;;
  esac
done

[ -z "${STRATA_SKIP_SETUP:-}" ] || exit 0
command -v dpkg-query >/dev/null ||
  die "this is not Debian: install the counterparts of ${packages[*]}, then set STRATA_SKIP_SETUP=1"

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
  echo "packages: nothing is missing"
  exit 0
fi

sudo=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || die "as root: apt-get install ${missing[*]} (there is no sudo here)"
  # Asks for the password here, as the steps below have no terminal.
  sudo -v || die "as root: apt-get install ${missing[*]}"
  sudo=(sudo DEBIAN_FRONTEND=noninteractive)
fi
export DEBIAN_FRONTEND=noninteractive
echo "packages: ${#missing[@]} missing: ${missing[*]}"
step apt-update "package lists" "${sudo[@]}" apt-get update
step apt-install "installing packages" "${sudo[@]}" apt-get install -y --no-install-recommends "${missing[@]}"
