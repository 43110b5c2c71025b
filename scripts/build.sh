#!/usr/bin/env bash
# Configures and builds the program as build/strata.
#   scripts/build.sh [--all] [--sanitize address|thread] [--clean]
# --all: also the tests and benchmarks. --sanitize: with sanitizers, in build-asan or build-tsan. --clean: from scratch.
# STRATA_BUILD names another folder. ccache is used if it is installed; GPU kernels are built if nvcc is installed.
. "$(dirname "$0")/steps.sh"

target=strata
sanitize=
clean=
while [ $# -gt 0 ]; do
  case $1 in
    --all) target=all ;;
    --sanitize)
      sanitize=${2:-}
      case $sanitize in
        address) build=${STRATA_BUILD:-build-asan} ;;
        thread) build=${STRATA_BUILD:-build-tsan} ;;
        *) die "--sanitize takes address or thread" ;;
      esac
      shift
      ;;
    --clean) clean=1 ;;
    -h | --help) sed -n '2,5s/^# //p' "$0" && exit 0 ;;
    *) die "there is no option $1 (see --help)" ;;
  esac
  shift
done

[ -z "$clean" ] || rm -rf "$build"
options=(-DSTRATA_SANITIZE="$sanitize" -DSTRATA_WERROR=OFF)
# Warnings are errors only for developers, who can fix them: in CI and after scripts/setup.sh --dev.
if [ -n "${CI:-}" ] || [ -d .dev ]; then options+=(-DSTRATA_WERROR=ON); fi
# CI needs no debug information and has no GPU, so code for one architecture is enough to see the compiler's warnings.
if [ -n "${CI:-}" ]; then
  options+=(-DSTRATA_HOST_FLAGS="${STRATA_HOST_FLAGS:--O2 -g0}" -DSTRATA_CUDA_ARCHITECTURES=90-real)
fi
# A unity build takes half the time, which suits users, who build once. Developers rebuild after every edit.
if [ ! -d .dev ]; then options+=(-DCMAKE_UNITY_BUILD=ON); fi
if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
step configure "configuring $build" cmake -S . -B "$build" -G Ninja "${options[@]}"
sed -n 's/^-- \(CUDA: .*\)/\1/p' "$build/logs/configure.log"
started=$SECONDS
step build "building $build ($target)" cmake --build "$build" --parallel "$(jobs)" --target "$target"
objects=$(grep -cE '^\[[0-9]+/[0-9]+\] Building .* object ' "$build/logs/build.log" || true)
echo "compiled: $objects objects in $((SECONDS - started)) s"
