#!/usr/bin/env bash
# Compares the bits of a few dozen runs with the recorded ones: the last step's loss and the hash of the weights, over
# families, precisions, stages, tiers, optimizers, orders and numbers of ranks.
#   recorded_bits.sh STRATA FOLDER [--record]
# They are in tests/golden/bits/KIND.txt, where KIND is oneDNN's version and instruction set as in `strata doctor`.
# Another kind may round differently, and is skipped until somebody records it. --record writes the file, with lines
# NAME LOSS_HEX WEIGHTS_HASH.
set -euo pipefail
strata=$1 folder=$2 record=${3:-}
golden=$(cd "$(dirname "$0")/../golden" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$folder/nvme"

kind=$("$strata" doctor "$folder" 2>/dev/null | sed -n 's/.* oneDNN \([^,]*\), instruction set \([^,]*\),.*/onednn-\1-\2/p')
[ -n "$kind" ] || { echo "strata doctor names no instruction set" >&2 && exit 1; }
recorded=$golden/bits/$kind.txt
[ -n "$record" ] || [ -f "$recorded" ] || { echo "Skipped: no bits are recorded for processors of kind $kind" && exit 77; }

seen=$folder/bits.txt
: >"$seen"
# run NAME RANKS FAMILY KEY=VALUE...
run() {
  local name=$1 ranks=$2 family=$3 sets=() start=()
  shift 3
  for set in "training.gradient_accumulation_steps=$((4 / ranks))" "$@"; do sets+=(--set "$set"); done
  [ "$ranks" = 1 ] || start=(mpirun -n "$ranks" --oversubscribe --bind-to none)
  rm -f "$folder"/run.json*
  "${start[@]}" "$strata" train "$golden/$family/recipe.toml" "${sets[@]}" --set "memory.nvme=$folder/nvme" \
    --set device.kind=cpu --set "report.jsonl=$folder/run.jsonl" --set "report.summary=$folder/run.json" \
    >"$folder/run.log" 2>&1 </dev/null || { echo "$name failed:" && cat "$folder/run.log" && exit 1; }
  echo "$name $(tail -n 1 "$folder/run.jsonl" | grep -o '"loss_hex":"[^"]*"' | cut -d'"' -f4)" \
    "$(grep -o '"weights_hash":"[^"]*"' "$folder/run.json" | cut -d'"' -f4)" >>"$seen"
  rm -f "$folder/run.jsonl" "$folder/run.json"
}

for family in gpt2 llama mistral qwen2 qwen3; do
  run "$family-fp32" 1 $family
  run "$family-bf16-zero3" 2 $family training.precision=bf16 zero.stage=3
done
run gpt2-fp16 1 gpt2 training.precision=fp16
run gpt2-fp16-zero2 2 gpt2 training.precision=fp16 zero.stage=2
run gpt2-dropout 1 gpt2 model.config.resid_pdrop=0.1 model.config.attn_pdrop=0.1 model.config.embd_pdrop=0.1
run gpt2-zero1 2 gpt2 training.precision=bf16 zero.stage=1
run gpt2-vertical-host 2 gpt2 training.precision=bf16 zero.stage=3 memory.order=vertical zero.optimizer=host
run gpt2-nvme 1 gpt2 training.precision=bf16 zero.optimizer=nvme zero.parameters=nvme zero.gradients=nvme
run gpt2-recompute 1 gpt2 training.recompute=block zero.activations=host training.precision=bf16
run gpt2-fast 2 gpt2 training.precision=bf16 training.reduce=fast zero.stage=2
run gpt2-clipped 2 gpt2 training.precision=bf16 training.max_grad_norm=0.05 zero.stage=1
run gpt2-one-micro-batch 1 gpt2 training.precision=bf16 training.gradient_accumulation_steps=1
run llama-lion 1 llama optimizer.name=lion training.precision=bf16
run llama-sgd-zero3 2 llama optimizer.name=sgd zero.stage=3
run llama-bf16-moments 2 llama optimizer.moments=bf16 training.precision=bf16 zero.stage=3
wide=(model.init=random model.config.n_embd=96 model.config.n_head=4)
run gpt2-wide-8bit 1 gpt2 "${wide[@]}" optimizer.name=adamw8bit training.precision=bf16
run gpt2-wide-8bit-nvme 2 gpt2 "${wide[@]}" optimizer.name=adamw8bit zero.stage=3 zero.optimizer=nvme
run gpt2-wide-bf16-moments 2 gpt2 "${wide[@]}" optimizer.moments=bf16 training.precision=fp16 zero.stage=1
run mistral-tiles 2 mistral training.precision=bf16 zero.stage=3 memory.prefetch=0 zero.parameters=host
run mistral-wsd 1 mistral scheduler.name=wsd data.order=shuffle training.seed=7
run qwen3-four-ranks 4 qwen3 training.precision=bf16 zero.stage=3 zero.gradients=host

if [ -n "$record" ]; then
  mkdir -p "$golden/bits"
  cp "$seen" "$recorded"
  echo "recorded $(wc -l <"$seen") runs for $kind"
elif ! diff "$recorded" "$seen"; then
  echo "these bits are not those that were recorded (<): a change of the numerics must say so and record them again" >&2
  exit 1
else
  echo "$(wc -l <"$seen") runs have the recorded bits of $kind"
fi
