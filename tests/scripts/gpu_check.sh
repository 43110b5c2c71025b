#!/usr/bin/env bash
# Tests gpu-check.sh without a GPU. If programs pass, fail, hang, or leave no result, the report has every part and is
# complete in time, even if a signal stops the script. An incomplete build is not packed.
#   gpu_check.sh FOLDER     STRATA_PYTHON: a Python
set -euo pipefail
folder=$1
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
export PYTHON=${STRATA_PYTHON:-python3}
"$PYTHON" -c "" 2>/dev/null || { echo "Skipped: there is no $PYTHON (STRATA_PYTHON names another)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder/payload/bin" "$folder/payload/lib" "$folder/path"
cd "$folder"
mkdir check

wrong() {
  echo "$1" && sed 's/^/  | /' "${2:-/dev/null}" && exit 1
}
program() {
  cat >"$1" && chmod +x "$1"
}

program path/nvidia-smi <<'P'
#!/usr/bin/env bash
echo "NVIDIA H200, 580.159.04, 143771 MiB"
P
# The programs get their own libraries, but PyTorch does not.
program path/compute-sanitizer <<'P'
#!/usr/bin/env bash
[[ $LD_LIBRARY_PATH == "" && $* == *"/lib"* ]] || exit 1
[[ $* != *Planted* ]] || exit 9
[[ $* != *racecheck* ]] || exit 9
[[ $* != *synccheck* ]] || printf '[  PASSED  ] 0 tests.\n[  SKIPPED ] 8 tests, listed below:\n'
P
program payload/bin/device_gpu_test <<'P'
#!/usr/bin/env bash
[[ $LD_LIBRARY_PATH == */lib* && $CUDA_DEVICE_MAX_CONNECTIONS == 32 ]] || exit 1
[ -z "${FAKE_HANG:-}" ] || { trap '' TERM; echo hangs; for ((;;)); do sleep 1; done; }
printf '[  PASSED  ] 7 tests.\n[  SKIPPED ] 2 tests, listed below:\n[  FAILED  ] Norm.IsRight, where GetParam() = 1\n'
exit 1
P
program payload/bin/comm_gpu_test <<'P'
#!/usr/bin/env bash
[[ $LD_LIBRARY_PATH == */lib* ]] || exit 1
echo '[  PASSED  ] 2 tests.'
P
program payload/bin/run_test <<'P'
#!/usr/bin/env bash
[ "$CUDA_MODULE_LOADING" = EAGER ] || exit 1
kill -SEGV $$
P
program payload/bin/strata <<'P'
#!/usr/bin/env bash
case "$*" in
  tokenize*) exit "${FAKE_TOKENIZE:-0}" ;;
  bench*)
    while [ "$1" != --json ]; do shift; done
    echo '{"device":"a GPU","copy_gb_per_s":4000,"kernels":[{"kernel":"copy","bytes":1,"ms":1,"gb_per_s":4000,"of_copy":1},{"kernel":"gelu","bytes":1,"ms":1,"gb_per_s":3000,"of_copy":0.75}]}' >"$2"
    ;;
  *gpt2-124m*)
    for word in "$@"; do [[ $word != report.summary=* ]] || summary=${word#*=}; done
    echo "strata: attention by own kernels: no cuDNN" >&2
    echo '{"tokens_per_s":1000,"model_flops_per_token":1e9,"graph_steps":10,"memory":{"device":{"planned_peak_bytes":1000000000,"measured_peak_bytes":1000000000}},"gpu_memory":{"total_bytes":4000000000,"free_before_bytes":3000000000,"free_at_end_bytes":1995000000}}' >"$summary"
    ;;
  train*) echo '{"tokens' >"$(printf '%s\n' "$@" | sed -n 's/^report.summary=//p')" && exit 3 ;;
esac
P
cat >payload/torch_train.py <<'P'
import os, sys
assert "LD_LIBRARY_PATH" not in os.environ
print('{"tokens_per_s": 500, "mfu": 0.5, "peak_device_bytes": 2000000000}') if "gpt2-124m" in sys.argv else sys.exit(1)
P
cp "$scripts/gpu_check_report.py" payload/
cp "$scripts/gpu-check.sh" check/
tar -C payload -cJf check/payload.tar.xz .
unset LD_LIBRARY_PATH
export PATH=$PWD/path:$PATH

has() {
  grep -qE "$2" "$1"/gpu-*.md || wrong "the report in $1 lacks: $2" "$(ls "$1"/gpu-*.md)"
}

# The script's own text, which is packed too.
for option in -h --help; do
  check/gpu-check.sh $option >help.log 2>&1 || wrong "$option ended with $?" help.log
  if ! grep -q -- '--pack DIR' help.log || grep -q '^#\|pipefail' help.log; then wrong "$option prints" help.log; fi
done

# The report shows once how each part ended.
status=0
FAKE_TOKENIZE=1 OUT=$PWD/all check/gpu-check.sh >all.log 2>&1 || status=$?
[ "$status" = 1 ] || wrong "ended with $status, not 1" all.log
for line in 'gpu \| passed' 'doctor \| passed' 'twins \| ended with 1 \| 7 \| 2 ' 'Failed in twins: Norm.IsRight\.' 'nccl \| passed \| 2 ' \
  'contract \| ended with 139' 'kernels \| passed' 'tokens \| ended with 1' 'strata-gpt2-124m \| passed' \
  'torch-gpt2-124m \| passed' 'strata-qwen-7b \| ended with 3' 'torch-qwen-1.5b \| ended with 1' \
  'memcheck-planted \| passed' 'memcheck \| passed' 'racecheck \| ended with 9' 'synccheck \| no test ran \| 0 \| 8 ' \
  'NVIDIA H200, driver 580.159.04' 'gpt2-124m \| 1000 \| 0.1% \| 500 \| 50.0% \| 2.00 \| 10 ' \
  'gpt2-124m \| 1.000 \| 1.000 \| 1.005 \| 1.0050 \| 1.000 \| 2.000 ' 'attention by own kernels: no cuDNN' \
  'gelu \| 1.000 \| 3000 \| 0.75 .below.'; do
  has all "$line"
done
tar -xzOf all/logs.tar.gz ./twins.log >/dev/null 2>&1 || wrong "twins.log is not in logs.tar.gz"
"$PYTHON" -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["parts"]) == 18' all/gpu-*.json

# A program that hangs and ignores signals uses up the time of all others, but the script ends in time.
status=0
FAKE_HANG=1 GPU_CHECK_SECONDS=20 OUT=$PWD/late timeout 100 check/gpu-check.sh twins contract bench >late.log 2>&1 || status=$?
[ "$status" = 1 ] || wrong "ended with $status, not 1" late.log
for line in 'twins \| took longer than [0-9]+ s' 'contract \| skipped: no time' 'strata-qwen-7b \| skipped: no time'; do
  has late "$line"
done

# The script is told to stop during a part.
FAKE_HANG=1 OUT=$PWD/stopped check/gpu-check.sh machine twins >stopped.log 2>&1 &
script=$!
for ((try = 0; try < 600; ++try)); do
  ! grep -q '^== twins' stopped.log 2>/dev/null || break
  sleep 0.1
done
sleep 1
kill -TERM "$script"
status=0
wait "$script" || status=$?
[ "$status" = 143 ] || wrong "stopped with $status, not 143" stopped.log
has stopped 'doctor \| passed'
has stopped 'twins \| stopped'

# These are not packed.
mkdir build
printf 'nothing' | program build/strata
for lacks in 'without CUDA' 'without cuDNN'; do
  status=0
  STRATA_BUILD=$PWD/build "$scripts/gpu-check.sh" --pack "$PWD/packed" >pack.log 2>&1 || status=$?
  if [ "$status" != 2 ] || ! grep -q "$lacks" pack.log; then
    wrong "packing ended with $status, not as it is built $lacks" pack.log
  fi
  printf 'cublasLtMatmul' | program build/strata
done
echo "every part reported"
