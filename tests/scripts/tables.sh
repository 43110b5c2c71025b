#!/usr/bin/env bash
# Checks the tables of planned memory in the documents: every figure in a row must be in the plan for that row.
#   tests/scripts/tables.sh STRATA
set -euo pipefail
strata=$(realpath "$1")
cd "$(dirname "$0")/../.."

# Workspaces of kernels differ slightly between instruction sets.
export STRATA_CPU_ISA=avx2
failures=0
# row PAGE BEGIN FIGURES: PAGE has a row of a table that begins with BEGIN and has FIGURES in its other columns.
row() {
  grep -qF "| $2 | $3 |" "$1" || { echo "$1: the row of \"$2\" should be | $2 | $3 |" && failures=1; }
}
# The figures are as `plan` prints them: a tier's peak; bytes sent; bytes read from a tier, and written to it.
peak() { sed -nE "s/^$1 +([0-9.]+ [KMGT]iB).*/\1/p" <<<"$plan"; }
sent() { sed -nE 's/^sent per rank and step: ([0-9.]+ [KMGT]iB).*/\1/p' <<<"$plan"; }
read_from() { sed -nE "s/^moved per rank and step: ([0-9.]+ [KMGT]iB) from $1, .*/\1/p" <<<"$plan"; }
written_to() { sed -nE "s/^moved per rank and step: .* from $1, ([0-9.]+ [KMGT]iB) to it.*/\1/p" <<<"$plan"; }

memory=(--set memory.device=16GiB --set memory.host=16GiB --set device.kind=cpu)
for stage in 0 2 3; do
  figures=()
  for reduce in ordered fast; do
    plan=$("$strata" plan --ranks 4 --set model.preset=gpt2-124m --set training.reduce=$reduce --set zero.stage=$stage \
      --set training.gradient_accumulation_steps=8 --set memory.order=horizontal "${memory[@]}" 2>/dev/null)
    figures+=("$(sent)" "$(peak 'RAM \(device\)')")
  done
  row docs/coming-from.md "stage $stage" "${figures[0]} | ${figures[2]} | ${figures[1]} | ${figures[3]}"
done

offload() { # BEGIN SETS
  local begin=$1
  shift
  plan=$("$strata" plan examples/gpt2-1558m-offload.toml --set device.kind=cpu "$@" 2>/dev/null)
  row docs/guide.md "$begin" \
    "$(peak 'RAM \(device\)') | $(peak host) | $(peak nvme) | $(read_from nvme) and $(written_to nvme)"
}
offload "one micro-batch, gradients (bf16) on the host"
offload "two micro-batches, gradients (fp32 sums) on NVMe" --set training.gradient_accumulation_steps=2 \
  --set zero.gradients=nvme
offload "the same in vertical order" --set training.gradient_accumulation_steps=2 --set zero.gradients=nvme \
  --set memory.order=vertical
exit "$failures"
