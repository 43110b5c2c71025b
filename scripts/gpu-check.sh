#!/usr/bin/env bash
# Runs all checks that need a GPU, on a machine that has a GPU but no network.
#   scripts/gpu-check.sh --pack DIR [--own-attention]   here: copies build/'s programs, stripped, with their libraries;
#                                                       --own-attention: also a build without cuDNN's
#   DIR/gpu-check.sh [PART...]                          there: all parts, or those named, into ${OUT:-DIR/results}
# Parts: machine (GPU, driver, libraries), twins (every operation against its reference and the CPU's bits; NCCL on one
# rank), contract (whole runs: same bits for all stages, tiers, orders and ranks), kernels (memory-bound ones, against a
# copy), bench (against PyTorch, if TORCH_TRAIN named torch_train.py when packing), sanitizer (compute-sanitizer on
# whole runs and the twins). A part that fails does not stop the others. All parts end within GPU_CHECK_SECONDS (540):
# each gets its limit or the remaining time. If that is not enough for all of them, name parts and call it twice.
# gpu-DATE.json, gpu-DATE.md and logs.tar.gz are written after each part, so an interrupted run leaves them too.
set -euo pipefail

case ${1:-} in -h | --help) sed -n '2,12s/^# //p' "$0" && exit 0 ;; esac

if [ "${1:-}" = --pack ]; then
  cd "$(dirname "$0")/.."
  to=${2:?--pack wants a folder}
  build=${STRATA_BUILD:-build}
  [ -x "$build/strata" ] || {
    echo "gpu-check: there is no $build/strata: scripts/build.sh --all" >&2
    exit 2
  }
  # The programs contain the names of the libraries that they load.
  grep -q cublasLtMatmul "$build/strata" || {
    echo "gpu-check: $build/strata is built without CUDA: build it on a machine with nvcc" >&2
    exit 2
  }
  if ! grep -q cudnnBackendExecute "$build/strata" && [ "${3:-}" != --own-attention ]; then
    echo "gpu-check: $build/strata is built without cuDNN, so Strata's own attention would be measured: scripts/setup.sh --cuda," >&2
    echo "scripts/build.sh --all, then run this again; or use --pack $to --own-attention if that is intended" >&2
    exit 2
  fi
  mkdir -p "$to"
  payload=$(mktemp -d)
  trap 'rm -rf "$payload"' EXIT
  mkdir "$payload/bin" "$payload/lib"
  for program in strata tests/comm_gpu_test tests/device_gpu_test tests/run_test; do
    [ -x "$build/$program" ] || {
      echo "gpu-check: there is no $build/$program: build it on a machine with nvcc and nccl.h, scripts/build.sh --all" >&2
      exit 2
    }
    strip -o "$payload/bin/$(basename "$program")" "$build/$program"
  done
  # The C library must be the target machine's own, and CUDA's libraries are loaded from its installation.
  for program in "$payload"/bin/*; do
    ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|ld-linux[^/]*|libpthread|libdl|librt)\.so' || true
  done | sort -u | while read -r library; do
    strip -o "$payload/lib/$(basename "$library")" "$library"
  done
  if [ -n "${TORCH_TRAIN:-}" ]; then
    cp "$TORCH_TRAIN" "$payload/torch_train.py"
  else
    echo "gpu-check: no PyTorch program is packed for comparison: TORCH_TRAIN names no torch_train.py" >&2
  fi
  cp scripts/gpu_check_report.py "$payload/"
  tar -C "$payload" -c . | xz -T0 -3 >"$to/payload.tar.xz"
  cp scripts/gpu-check.sh "$to/"
  echo "packed: $(du -sh "$to" | cut -f1) in $to; there: $to/gpu-check.sh"
  exit 0
fi

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(machine twins contract kernels bench sanitizer)
for name in "${parts[@]}"; do
  case $name in
    machine | twins | contract | kernels | bench | sanitizer) ;;
    *)
      echo "gpu-check: no part is called $name: machine, twins, contract, kernels, bench, sanitizer" >&2
      exit 2
      ;;
  esac
done

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/results}
deadline=${GPU_CHECK_SECONDS:-540}
python=${PYTHON:-python3}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xJf "$here/payload.tar.xz" 2>/dev/null || {
  echo "gpu-check: no payload.tar.xz next to this script: make one with scripts/gpu-check.sh --pack DIR, run DIR/gpu-check.sh" >&2
  exit 2
}
bin=$work/bin
logs=$work/logs
mkdir "$logs"
: >"$work/parts.tsv"

# PyTorch's wheels come with CUDA's libraries.
if [ -z "${STRATA_CUDA_LIBRARIES:-}" ]; then
  STRATA_CUDA_LIBRARIES=$(
    timeout 30 "$python" - <<'P' 2>/dev/null || true
import glob, importlib.util, os
spec = importlib.util.find_spec("nvidia")
roots = list(spec.submodule_search_locations) if spec else []
print(":".join(p for root in roots for p in sorted(glob.glob(os.path.join(root, "*", "lib")))))
P
  )
fi
[ -z "$STRATA_CUDA_LIBRARIES" ] || export STRATA_CUDA_LIBRARIES

# Only Strata's programs see the packed libraries, because PyTorch has its own. The packed libraries need those of CUDA.
# Every lane gets a stream: see device/cuda/context.cc.
libraries=$work/lib${STRATA_CUDA_LIBRARIES:+:$STRATA_CUDA_LIBRARIES}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ours=(env "LD_LIBRARY_PATH=$libraries" CUDA_DEVICE_MAX_CONNECTIONS=32 "STRATA_ALGORITHMS=$logs/algorithms.txt")

# Adds a line to the report: NAME, the exit status or a word instead, seconds, command.
record() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4//"$work/"/}" >>"$work/parts.tsv"; }

# Writes a report of the results so far. Its status is 0 if all parts passed.
report() {
  local status=0
  # Uses PyTorch's Python or any other. Without Python, prints the plain lines.
  timeout 30 "$python" "$work/gpu_check_report.py" "$work/parts.tsv" "$logs" "$out" >"$work/report.log" 2>&1 || status=$?
  if [ "$status" -gt 1 ]; then
    cp "$work/report.log" "$logs/report.log"
    { echo "gpu_check_report.py ended with $status; part, status, seconds, command:" && cat "$work/parts.tsv"; } \
      >"$out/gpu-$(date +%F).md"
  fi
  tar -C "$logs" -czf "$work/logs.tar.gz" . 2>/dev/null && mv "$work/logs.tar.gz" "$out/logs.tar.gz"
  return "$status"
}

child='' running='' began=0 command=''
stop() {
  trap '' TERM INT HUP
  if [ -n "$child" ]; then
    kill -TERM "$child" 2>/dev/null
    record "$running" stopped $((SECONDS - began)) "$command"
  fi
  exit 143
}
finish() {
  local status=$?
  trap - EXIT
  report || [ "$status" != 0 ] || status=1
  cat "$out"/gpu-*.md 2>/dev/null
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap stop TERM INT HUP

# part NAME LIMIT COMMAND... writes the output to $logs/NAME.log and the status to the report. The command runs in the
# background, because the shell handles a signal only while it waits. `expected` is the status that counts as passed.
expected=0
part() {
  local name=$1 limit=$2 left=$((deadline - SECONDS - 10)) status=0
  shift 2
  command=$*
  command=${command//"${ours[*]} "/}
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -le 5 ]; then
    record "$name" "skipped: no time" 0 "$command"
    echo "gpu-check: $name: no time is left"
    return 0
  fi
  running=$name began=$SECONDS
  timeout --kill-after=5 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null &
  child=$!
  wait "$child" || status=$?
  child=
  tail -n 4 "$logs/$name.log"
  case $status in
    "$expected") status=0 ;;
    0) status="ended with 0, not $expected" ;;
    124 | 137) status="took longer than $limit s" ;;
  esac
  record "$name" "$status" $((SECONDS - began)) "$command"
  [ "$status" = 0 ] || echo "gpu-check: $name: $status (its log is in logs.tar.gz)"
}

machine() {
  part gpu 30 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  part nvidia-smi 30 nvidia-smi
  part doctor 60 "${ours[@]}" "$bin/strata" doctor
}

twins() {
  part twins 150 "${ours[@]}" "$bin/device_gpu_test"
  part nccl 90 "${ours[@]}" "$bin/comm_gpu_test"
}

# The ranks are threads that share the CUDA state of the process. Loading a kernel at its first call may wait for the
# streams of all ranks.
contract() {
  part contract 120 "${ours[@]}" CUDA_MODULE_LOADING=EAGER "$bin/run_test" --gtest_filter='*GpuRun*'
}

kernels() {
  part kernels 90 "${ours[@]}" "$bin/strata" bench kernels --set device.kind=cuda --size 2GiB --json "$logs/kernels.json"
}

sanitizer() {
  local tool checker='' filter=${SANITIZER_FILTER:-*Norm*:*Embedding*:*CrossEntropy*:*GradientS*:*Optimizer*:*Consensus*}
  for tool in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer \
    /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    if [ -z "$checker" ] && [ -x "$tool" ]; then checker=$tool; fi
  done
  if [ -z "$checker" ]; then
    record sanitizer "skipped: no compute-sanitizer on the path or in /usr/local/cuda" 0 ''
    return
  fi
  # The checker's verdict is valid only if it detects a planted error. It checks the GPU's memory, which holds the
  # operands of whole runs, but not the pinned memory in the tests of the twins.
  local apart=("$checker" --target-processes all --error-exitcode 9 --tool)
  expected=9
  part memcheck-planted 60 "${apart[@]}" memcheck "${ours[@]}" "$bin/device_gpu_test" \
    --gtest_filter='Planted*' --gtest_also_run_disabled_tests
  expected=0
  for tool in racecheck synccheck; do
    part "$tool" 90 "${apart[@]}" "$tool" "${ours[@]}" "$bin/device_gpu_test" --gtest_filter="$filter"
  done
  part memcheck 120 "${apart[@]}" memcheck "${ours[@]}" CUDA_MODULE_LOADING=EAGER "$bin/run_test" \
    --gtest_filter='*GpuRun.HasTheSameBits*'
}

# The tokens are the bytes of a text, because speed does not depend on the tokens.
tokens() {
  [ ! -f "$work/tokens.bin" ] || return 0
  head -c 8000000 "$bin/strata" | base64 >"$work/text"
  part tokens 30 "${ours[@]}" "$bin/strata" tokenize --tokenizer byte -o "$work/tokens.bin" "$work/text"
}

# strata_run NAME PRESET BATCH SEQ STEPS [--set ...]; torch_run NAME MODEL BATCH SEQ STEPS [flags]
strata_run() {
  local name=$1 preset=$2 batch=$3 seq=$4 steps=$5
  shift 5
  part "strata-$name" 150 "${ours[@]}" "$bin/strata" train --set device.kind=cuda --set model.preset="$preset" \
    --set data.train="$work/tokens.bin" --set data.seq_len="$seq" --set training.micro_batch_size="$batch" \
    --set training.max_steps="$steps" --set training.precision=bf16 --set training.seed=1 \
    --set report.summary="$logs/strata-$name.json" "$@"
}
torch_run() {
  local name=$1 model=$2 batch=$3 seq=$4 steps=$5
  shift 5
  if [ ! -f "$work/torch_train.py" ]; then
    record "torch-$name" "skipped: TORCH_TRAIN named no torch_train.py when this was packed" 0 ''
    return 0
  fi
  part "torch-$name" 150 "$python" "$work/torch_train.py" --device cuda --dtype bf16 --model "$model" --batch "$batch" \
    --seq "$seq" --steps "$steps" --peak-tflops 989 "$@"
}

# Planned on 139 GiB: 21, 54, 133 and 86 GiB. PyTorch needs more than Strata, above all for logits, so in the comparison
# qwen-1.5b has half the batch that fits.
bench() {
  tokens
  strata_run gpt2-124m gpt2-124m 64 1024 12
  torch_run gpt2-124m gpt2-124m 64 1024 10 --compile
  strata_run qwen-1.5b qwen-1.5b 8 2048 8
  torch_run qwen-1.5b qwen-1.5b 8 2048 6 --compile
  strata_run qwen-7b qwen-7b 8 2048 6 --set optimizer.name=adamw8bit
  strata_run qwen-1.5b-batch16 qwen-1.5b 16 2048 8
}

for name in "${parts[@]}"; do
  printf '\n== %s (%s)\n' "$name" "$(date +%T)"
  # The || keeps any exit status from ending the script.
  "$name" || record "$name" "the script itself failed" 0 ''
  report || true
done
