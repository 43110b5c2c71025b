#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one and no network.
#   scripts/gpu-check.sh --pack DIR      here: what build/ holds, stripped, with the libraries it needs, into DIR
#   DIR/gpu-check.sh [PART...]           there: all parts, or those named, into ${OUT:-DIR/results}
# Parts: machine (GPU, driver, libraries), twins (every operation against its reference, and the CPU's bits), contract
# (whole runs: same bits over stages, tiers, orders and ranks), sanitizer (compute-sanitizer over the twins), bench
# (beside PyTorch; TORCH_TRAIN names torch_train.py, packed along where it is set). A part that fails does not stop the
# others. Under 9 minutes. Writes gpu-DATE.json and gpu-DATE.md.
set -euo pipefail

if [ "${1:-}" = --pack ]; then
  cd "$(dirname "$0")/.."
  to=${2:?--pack wants a folder}
  build=${STRATA_BUILD:-build}
  mkdir -p "$to"
  payload=$(mktemp -d)
  trap 'rm -rf "$payload"' EXIT
  mkdir "$payload/bin" "$payload/lib"
  for program in strata tests/device_gpu_test tests/runtime_test; do
    strip -o "$payload/bin/$(basename "$program")" "$build/$program"
  done
  # The C library is that machine's own; CUDA's libraries are loaded from what is installed there.
  for program in "$payload"/bin/*; do
    ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|ld-linux[^/]*|libpthread|libdl|librt)\.so' || true
  done | sort -u | while read -r library; do
    strip -o "$payload/lib/$(basename "$library")" "$library"
  done
  [ -z "${TORCH_TRAIN:-}" ] || cp "$TORCH_TRAIN" "$payload/torch_train.py"
  cp scripts/gpu_check_report.py "$payload/"
  tar -C "$payload" -czf "$to/payload.tar.gz" .
  cp scripts/gpu-check.sh "$to/"
  echo "packed: $(du -sh "$to" | cut -f1) in $to; there: $to/gpu-check.sh"
  exit 0
fi

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/results}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$here/payload.tar.gz" 2>/dev/null || {
  echo "gpu-check: no payload.tar.gz beside this script: make one with scripts/gpu-check.sh --pack DIR, run DIR/gpu-check.sh" >&2
  exit 2
}
bin=$work/bin
export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# PyTorch's wheels bring CUDA's libraries along.
python=${PYTHON:-python3}
if [ -z "${STRATA_CUDA_LIBRARIES:-}" ]; then
  STRATA_CUDA_LIBRARIES=$("$python" - <<'P' 2>/dev/null || true
import glob, importlib.util, os
spec = importlib.util.find_spec("nvidia")
roots = list(spec.submodule_search_locations) if spec else []
print(":".join(p for root in roots for p in sorted(glob.glob(os.path.join(root, "*", "lib")))))
P
)
  [ -z "$STRATA_CUDA_LIBRARIES" ] || export STRATA_CUDA_LIBRARIES
fi

say() { printf '\n== %s (%s)\n' "$1" "$(date +%T)"; }
# Runs a command under a limit, its output in $out/NAME.log; keeps its status for the report.
part() {
  local name=$1 limit=$2 status=0 start=$SECONDS
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  printf '%s\t%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - start))" "$*" >>"$work/parts.tsv"
  tail -n 4 "$out/$name.log"
  [ "$status" = 0 ] || echo "gpu-check: $name ended with $status (log: $out/$name.log)"
}

machine() {
  say machine
  part nvidia-smi 30 nvidia-smi
  part doctor 60 "$bin/strata" doctor
}

twins() {
  say "twins: every operation"
  part twins 150 "$bin/device_gpu_test"
}

contract() {
  say "contract: whole runs"
  part contract 120 "$bin/runtime_test" --gtest_filter='*GpuRun*'
}

sanitizer() {
  say "sanitizer: memcheck and racecheck over the twins"
  if ! command -v compute-sanitizer >/dev/null; then
    printf 'sanitizer\t127\t0\tcompute-sanitizer is not on the path\n' >>"$work/parts.tsv"
    return
  fi
  for tool in memcheck racecheck; do
    part "sanitizer-$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/device_gpu_test" \
      --gtest_filter="${SANITIZER_FILTER:-*Norm*:*Embedding*:*CrossEntropy*:*GradientS*:*Optimizer*}"
  done
}

# Tokens are text's bytes: speed does not depend on them.
tokens() {
  [ -f "$work/tokens.bin" ] && return
  head -c 8000000 "$bin/strata" | base64 >"$work/text"
  "$bin/strata" tokenize --tokenizer byte -o "$work/tokens.bin" "$work/text" >/dev/null
}

# strata_run NAME PRESET BATCH SEQ STEPS [--set ...]; torch_run NAME MODEL BATCH SEQ STEPS [flags]
strata_run() {
  local name=$1 preset=$2 batch=$3 seq=$4 steps=$5
  shift 5
  tokens
  part "strata-$name" 150 "$bin/strata" train --set device.kind=cuda --set model.preset="$preset" \
    --set data.train="$work/tokens.bin" --set data.seq_len="$seq" --set training.micro_batch_size="$batch" \
    --set training.max_steps="$steps" --set training.precision=bf16 --set training.seed=1 \
    --set report.summary="$out/strata-$name.json" "$@"
}
torch_run() {
  local name=$1 model=$2 batch=$3 seq=$4 steps=$5
  shift 5
  [ -f "$work/torch_train.py" ] || return 0
  part "torch-$name" 150 "$python" "$work/torch_train.py" --device cuda --dtype bf16 --model "$model" --batch "$batch" \
    --seq "$seq" --steps "$steps" --peak-tflops 989 "$@"
}

bench() {
  say "bench: beside PyTorch"
  strata_run gpt2-124m gpt2-124m 32 1024 12
  torch_run gpt2-124m gpt2-124m 32 1024 10 --compile
  strata_run qwen-1.5b qwen-1.5b 8 2048 8
  torch_run qwen-1.5b qwen-1.5b 8 2048 6 --compile
  strata_run qwen-7b qwen-7b 4 2048 5 --set optimizer.name=adamw8bit --set training.recompute=block
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(machine twins contract bench sanitizer)
for name in "${parts[@]}"; do
  case $name in
    machine | twins | contract | sanitizer | bench) "$name" ;;
    *)
      echo "gpu-check: no part is called $name: machine, twins, contract, sanitizer, bench" >&2
      exit 2
      ;;
  esac
done
"$python" "$work/gpu_check_report.py" "$work/parts.tsv" "$out"
