#!/usr/bin/env bash
# Installs missing packages, builds, and trains a small GPT on the King James Bible with two ranks at ZeRO-3. It shows
# planned and measured memory at ZeRO-0 and ZeRO-3, the loss before and after, and that the bits are the same. Then it
# trains a GPT that does not fit into its memory, with parameters and optimizer on NVMe, to the same bits.
#   scripts/demo.sh [--smoke] [--out DIR]
# --smoke: a few steps; installs and builds nothing. --out: the folder for its files (default: runs/demo).
. "$(dirname "$0")/steps.sh"

out=runs/demo
smoke=
steps=
shorter=()
while [ $# -gt 0 ]; do
  case $1 in
    --smoke)
      smoke=1
      steps=8
      ;;
    --out)
      out=${2:?--out needs a folder}
      shift
      ;;
    -h | --help) sed -n '2,6s/^# //p' "$0" && exit 0 ;;
    *) die "there is no option $1 (see --help)" ;;
  esac
  shift
done

recipe=examples/bible.toml
large=examples/bible-large.toml
strata=$build/strata
data=(--set "data.train=$out/bible.bin")
# --oversubscribe allows two ranks even on one core. Strata binds its ranks to cores itself.
ranks2=(mpirun -n 2 --oversubscribe --bind-to none)

# Print the first number under a key in a JSON file, and that under a kind of memory. The device tier comes first.
kind_bytes() { grep -o '"by_kind":{[^}]*}' "$1" | head -n 1 | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }
number() { grep -o "\"$2\":[-0-9.e+]*" "$1" | head -n 1 | cut -d: -f2; }
text() { grep -o "\"$2\":\"[^\"]*\"" "$1" | head -n 1 | cut -d'"' -f4; }

# Prints a row for ZeRO-0 and one for ZeRO-3, with the bytes that `strata plan` predicts and those that runs measure.
row() { # TITLE BYTES BYTES BYTES BYTES
  awk -v title="$1" -v bytes="$2 $3 $4 $5" 'BEGIN {
    printf "%-14s", title
    n = split(bytes, column, " ")
    for (i = 1; i <= n; ++i) if (column[i] == "-") printf "%16s", ""; else printf " %11.1f MiB", column[i] / 1048576
    print "" }'
}

if [ -z "$smoke" ]; then
  scripts/setup.sh
  scripts/build.sh
fi
[ -x "$strata" ] || die "$strata is not built: scripts/build.sh"
command -v bible >/dev/null || die "the program bible is not installed: scripts/setup.sh"
started=$SECONDS
mkdir -p "$out"
rm -rf "$out"/*.json "$out"/*.jsonl "$out"/bible.bin* "$out/report"

take_text() { bible -f gen1:1-rev22:21 >"$out/bible.txt"; }
step demo-text "text: the King James Bible" take_text
step demo-tokens "tokens: one per byte" "$strata" tokenize --tokenizer byte -o "$out/bible.bin" "$out/bible.txt"
plan_both() {
  local stage
  for stage in 0 3; do
    "$strata" plan $recipe "${data[@]}" --set zero.stage=$stage --ranks 2 --json "$out/plan-zero$stage.json"
  done
}
step demo-plan "plans of ZeRO-0 and ZeRO-3 on 2 ranks" plan_both
three_steps() { # SUMMARY [mpirun ...] SETS
  local summary=$1
  shift
  "$@" "${data[@]}" --set training.max_steps=3 --set scheduler.warmup_steps=0 --set "report.summary=$summary"
}
step demo-zero0 "3 steps at ZeRO-0 on 2 ranks" three_steps "$out/zero0.json" \
  "${ranks2[@]}" "$strata" train $recipe --set zero.stage=0
step demo-zero3 "3 steps at ZeRO-3 on 2 ranks" three_steps "$out/zero3.json" \
  "${ranks2[@]}" "$strata" train $recipe --set zero.stage=3
step demo-rank1 "3 steps on 1 rank, 2 micro-batches each" three_steps "$out/rank1.json" \
  "$strata" train $recipe

[ -z "$steps" ] || shorter=(--set "training.max_steps=$steps" --set scheduler.warmup_steps=0)
[ ! -t 2 ] || COLUMNS=$(tput cols 2>/dev/null || echo 120)
# Runs COMMAND with a live line on a terminal (which mpirun's pipe would hide), otherwise with a line every EVERY steps.
watch() { # EVERY COMMAND...
  local every=$1
  shift
  if [ -t 2 ]; then
    STRATA_PROGRESS=live COLUMNS=$COLUMNS "$@" </dev/null || die "training failed (see above)"
  else
    "$@" </dev/null 2>&1 | awk -v every="$every" \
      '/^step / { split($2, n, "/"); if (n[1] > 1 && n[1] % every && n[1] < n[2]) next } { print; fflush() }' ||
      die "training failed (see above)"
  fi
}
echo
echo "training: mpirun -n 2 $strata train $recipe"
watch 100 "${ranks2[@]}" "$strata" train $recipe "${data[@]}" "${shorter[@]}" \
  --set "report.dir=$out/report"
cp "$out/report/report.jsonl" "$out/train.jsonl"
cp "$out/report/summary.json" "$out/train.json"

echo
echo "memory of a rank on this run:"
printf '%-14s %31s %31s\n' '' 'ZeRO-0' 'ZeRO-3'
printf '%-14s %15s %15s %15s %15s\n' '' planned measured planned measured
plan0=$out/plan-zero0.json plan3=$out/plan-zero3.json zero0=$out/zero0.json zero3=$out/train.json
for kind in parameters gradients optimizer activations workspace staging; do
  row $kind "$(kind_bytes "$plan0" $kind)" "$(kind_bytes "$zero0" $kind)" \
    "$(kind_bytes "$plan3" $kind)" "$(kind_bytes "$zero3" $kind)"
done
peaks0=("$(number "$plan0" planned_peak_bytes)" "$(number "$zero0" measured_peak_bytes)")
peaks3=("$(number "$plan3" planned_peak_bytes)" "$(number "$zero3" measured_peak_bytes)")
row peak "${peaks0[@]}" "${peaks3[@]}"
rss() { grep -o '"process_peak_rss_bytes":\[[0-9]*' "$1" | cut -d'[' -f2; }
row "whole process" - "$(rss "$zero0")" - "$(rss "$zero3")"
echo "(each kind at its own largest moment; the process adds the program and its libraries)"
[ "${peaks0[0]}" = "${peaks0[1]}" ] || die "$zero0: the measured peak is not what $plan0 says"
[ "${peaks3[0]}" = "${peaks3[1]}" ] || die "$zero3: the measured peak is not what $plan3 says"
echo "planned and measured peaks are the same, to the byte"

echo
first=$(head -n 1 "$out/train.jsonl")
last=$(tail -n 1 "$out/train.jsonl")
loss() { printf '%.3f' "$(echo "$1" | grep -o '"loss":[0-9.e+-]*' | cut -d: -f2)"; }
echo "loss: $(loss "$first") nats per byte in step 1, $(loss "$last") in step $(number "$out/train.json" steps)," \
  "at $(printf %.0f "$(number "$out/train.json" tokens_per_s)") tokens/s"
step demo-report "the run as a page: $out/report.html" "$strata" report "$out/report" -o "$out/report.html" --force

echo
echo "weights after 3 steps, as a hash:"
for run in "zero0 ZeRO-0 on 2 ranks" "zero3 ZeRO-3 on 2 ranks" "rank1 1 rank, 2 micro-batches per step"; do
  printf '  %-34s %s\n' "${run#* }" "$(text "$out/${run%% *}.json" weights_hash)"
done
hashes=$(for run in zero0 zero3 rank1; do text "$out/$run.json" weights_hash; done | sort -u | wc -l)
[ "$hashes" = 1 ] || die "the weights are not the same: this must never happen; please report it with $out"
echo "  the same bits"

echo
echo "a model larger than memory: $large"
nvme=$out/nvme
mkdir -p "$nvme"
on_nvme=(--set zero.optimizer=nvme --set zero.parameters=nvme)
train_large() { # SUMMARY SETS
  local run=$1
  shift
  "${ranks2[@]}" "$strata" train $large "${data[@]}" --set "memory.nvme=$nvme" "${shorter[@]}" "$@" \
    --set "report.jsonl=$run.jsonl" --set "report.summary=$run.json"
}
echo "1. within its memory limit, it is refused: mpirun -n 2 $strata train $large"
status=0
train_large "$out/refused" >"$out/refused.txt" 2>&1 </dev/null || status=$?
# Keeps the lines that continue a sentence, and drops those of mpirun.
awk '/^strata: / { print; on = 1; next } on && /^ / { print; next } { on = 0 }' "$out/refused.txt"
[ "$status" = 3 ] || die "it should have been refused with exit code 3, not $status: see $out/refused.txt"
echo "2. with its state on NVMe it trains: ... ${on_nvme[*]}"
watch 10 train_large "$out/nvme-run" "${on_nvme[@]}"
step demo-fits "3. the same in memory that it fits into" train_large "$out/fits-run" \
  --set memory.device=1GiB --set memory.host=1GiB
io() { grep -o '"nvme":{"read":[0-9]*,"written":[0-9]*' "$1" | tr -cs '0-9' ' '; }
peak_of() { grep -o "\"$2\":{\"planned_peak_bytes\":[0-9]*" "$1" | head -n 1 | grep -o '[0-9]*$'; }
printf '%-34s %12s %12s %12s\n' 'a rank holds' device host nvme
for run in "fits-run all on the device" "nvme-run state on NVMe"; do
  file=$out/${run%% *}.json
  awk -v title="${run#* }" -v a="$(peak_of "$file" device)" -v b="$(peak_of "$file" host)" -v c="$(peak_of "$file" nvme)" \
    'BEGIN { printf "%-34s %8.1f MiB %8.1f MiB %8.1f MiB\n", "  " title, a / 1048576, b / 1048576, c / 1048576 }'
done
read -r bytes_read bytes_written <<<"$(io "$out/nvme-run.json")"
awk -v r="$bytes_read" -v w="$bytes_written" \
  'BEGIN { printf "a rank reads %.1f MiB and writes %.1f MiB of NVMe per step\n", r / 1048576, w / 1048576 }'
[ "${bytes_read:-0}" -gt 0 ] && [ "${bytes_written:-0}" -gt 0 ] || die "$out/nvme-run.json: nothing went through NVMe"
losses() { grep -o '"loss_hex":"[^"]*"' "$out/$1.jsonl"; }
[ "$(losses nvme-run)" = "$(losses fits-run)" ] ||
  die "the losses are not the same: this must never happen; please report it with $out"
hash_nvme=$(text "$out/nvme-run.json" weights_hash)
[ -n "$hash_nvme" ] && [ "$hash_nvme" = "$(text "$out/fits-run.json" weights_hash)" ] ||
  die "the weights are not the same: this must never happen; please report it with $out"
echo "losses of all $(losses nvme-run | wc -l) steps and the weights' hash $hash_nvme: the same bits"
[ -z "$(ls -A "$nvme")" ] || die "$nvme is not empty: a run leaves nothing there"

cat <<NEXT

what to try next:
  # what 1.5 billion parameters need on 8 ranks
  $strata plan --set model.preset=qwen-1.5b --set zero.stage=3 --ranks 8
  # this run with recomputed activations: less memory, the same losses
  mpirun -n 2 $strata train $recipe --set training.recompute=block
  # what this machine and this folder's drive offer, and every test
  $strata doctor $out
  scripts/test.sh

$out has the files of this demo; it took $((SECONDS - started)) s after the build
NEXT
