#!/usr/bin/env bash
# Installs the Debian packages that Strata needs and that are missing, with apt-get (through sudo if not root).
#   scripts/setup.sh [--dev] [--cuda] [--cluster]
#     --dev: also the developers' tools (clang-format, clang-tidy, clang, ccache; for tests of reports, chromium and, in
#       .dev, tensorboard; a gRPC client for Python; the packages of --cluster)
#     --cuda: also the headers of cuDNN's frontend, from its Python package, into .cuda/include, for cuDNN's attention
#       on GPUs. Install CUDA itself according to NVIDIA's instructions.
#     --cluster: also the packages for tests on a cluster of network namespaces (sshd, Slurm)
# With STRATA_SKIP_SETUP=1 it changes nothing, for systems that get the libraries from elsewhere.
. "$(dirname "$0")/steps.sh"

packages=(
  g++ cmake ninja-build pkg-config
  dpkg-dev file # cpack
  openmpi-bin libopenmpi-dev
  libdnnl-dev libsimdjson-dev libtomlplusplus-dev libcli11-dev libspdlog-dev libfmt-dev libxxhash-dev libhwloc-dev
  liburing-dev libaio-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev # tokenizers
  zlib1g-dev libzstd-dev liblzma-dev libbz2-dev # compressed data
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libssl-dev prometheus-cpp-dev # control service
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  bible-kjv bible-kjv-text # the text of the demo
)
cluster=(iproute2 openssh-server openssh-client procps slurm-wlm munge python3-yaml)
frontend=nvidia-cudnn-frontend==1.32.0
python=(tensorboard==2.21.0 grpcio==1.85.1 grpcio-health-checking==1.85.1 grpcio-reflection==1.85.1)
cuda=
dev=
for argument in "$@"; do
  case $argument in
    --cuda)
      cuda=1
      packages+=(python3-pip unzip)
      ;;
    --dev)
      dev=1
      packages+=(clang-format clang-tidy clang libclang-rt-dev ccache chromium python3-venv debootstrap "${cluster[@]}")
      ;;
    --cluster) packages+=("${cluster[@]}") ;;
    -h | --help) sed -n '2,9s/^# //p' "$0" && exit 0 ;;
    *) die "there is no option $argument (see --help)" ;;
  esac
done

[ -z "${STRATA_SKIP_SETUP:-}" ] || exit 0
[ -z "${CI:-}" ] || packages+=(debootstrap) # CI also builds on the other release of Debian
command -v dpkg-query >/dev/null ||
  die "this is not Debian: install the counterparts of ${packages[*]}, then set STRATA_SKIP_SETUP=1"

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done

fetch_frontend() {
  [ -n "$cuda" ] || return 0
  if [ -f .cuda/include/cudnn_frontend.h ]; then
    echo "headers of cuDNN's frontend: nothing is missing"
    return 0
  fi
  mkdir -p .cuda
  step cudnn-frontend "headers of cuDNN's frontend" python3 -m pip download --no-deps --dest .cuda "$frontend"
  unzip -q -o .cuda/nvidia_cudnn_frontend-*.whl 'include/*' -d .cuda
  rm .cuda/nvidia_cudnn_frontend-*.whl
}

fetch_python() {
  [ -n "$dev" ] || return 0
  if [ "$(cat .dev/installed 2>/dev/null)" = "${python[*]}" ]; then
    return 0
  fi
  step python-venv "a Python of its own, in .dev" python3 -m venv .dev
  step python-packages "tensorboard and a gRPC client, in .dev" .dev/bin/python -m pip install -q "${python[@]}"
  echo "${python[*]}" >.dev/installed
}

if [ ${#missing[@]} = 0 ]; then
  echo "packages: nothing is missing"
  fetch_frontend
  fetch_python
  exit 0
fi

sudo=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || die "as root: apt-get install ${missing[*]} (there is no sudo here)"
  # Ask for the password here, because the steps below have no terminal.
  sudo -v || die "as root: apt-get install ${missing[*]}"
  sudo=(sudo DEBIAN_FRONTEND=noninteractive)
fi
export DEBIAN_FRONTEND=noninteractive
echo "packages: ${#missing[@]} missing: ${missing[*]}"
step apt-update "package lists" "${sudo[@]}" apt-get update
step apt-install "installing packages" "${sudo[@]}" apt-get install -y --no-install-recommends "${missing[@]}"
fetch_frontend
fetch_python
