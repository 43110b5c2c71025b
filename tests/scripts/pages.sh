#!/usr/bin/env bash
# Tests the pages of `strata report` and `strata plan --html` in headless Chromium: there is no error in the console,
# and everything is drawn, at the width of a desktop and of a phone, in light and dark. The page of a 70B model on 512
# ranks is small and fast.
#   pages.sh STRATA FOLDER     screenshots stay in FOLDER
set -euo pipefail
strata=$1 folder=$2
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$chromium" ] || { echo "Skipped: there is no chromium (scripts/setup.sh --dev installs it)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
model=(--set model.preset=tiny-gpt2 --set model.config.n_layer=2 --set model.config.vocab_size=300
  --set data.seq_len=16 --set zero.stage=3)
head -c 4096 /dev/zero | tr '\0' '\1' >"$folder/tokens.bin"
"$strata" train "${model[@]}" --set data.train="$folder/tokens.bin" --set training.max_steps=20 \
  --set checkpoint.dir="$folder/checkpoints" --set checkpoint.every=8 --set report.dir="$folder/run" 2>"$folder/log"
# An evaluation, as a run with evaluation.every writes it.
echo '{"step":20,"eval_loss":3.5,"eval_tokens":100,"time":1700000000}' >>"$folder/run/report.jsonl"
"$strata" report "$folder/run" -o "$folder/run.html" 2>>"$folder/log"
"$strata" plan "${model[@]}" --ranks 4 --html "$folder/plan.html" >>"$folder/log"
"$strata" plan --ranks 512 --ranks-per-node 8 --set model.preset=llama-8b --set model.config.hidden_size=8192 \
  --set model.config.num_hidden_layers=80 --set model.config.intermediate_size=28672 \
  --set model.config.num_attention_heads=64 --set data.seq_len=4096 --set zero.stage=3 --set training.recompute=block \
  --set training.gradient_accumulation_steps=4 --set memory.device=75GiB --set memory.host=200GiB \
  --html "$folder/large.html" >>"$folder/log"
size=$(stat -c %s "$folder/large.html")
[ "$size" -lt 5000000 ] || { echo "the page of 70B on 512 ranks has $size bytes"; exit 1; }

# browse HTML NAME WIDTH HEIGHT SCHEME(0 dark, 1 light) ARGUMENT...
browse() {
  local page=$1 name=$2 width=$3 height=$4 scheme=$5
  shift 5
  timeout 120 "$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
    --enable-logging=stderr --blink-settings=preferredColorScheme="$scheme" --window-size="$width,$height" \
    --virtual-time-budget=8000 "$@" "file://$page" 2>"$folder/$name.log"
  if grep -E 'CONSOLE|Uncaught' "$folder/$name.log"; then
    echo "$name: the console is not empty"
    exit 1
  fi
}
for page in run plan large; do
  for width in 1280 390; do
    for scheme in 0 1; do
      name=$page-$width-$([ $scheme = 0 ] && echo dark || echo light)
      browse "$folder/$page.html" "$name" $width $([ $width = 390 ] && echo 4200 || echo 2400) $scheme \
        --screenshot="$folder/$name.png" >/dev/null
      [ "$(stat -c %s "$folder/$name.png")" -gt 20000 ] || { echo "$name: next to nothing is drawn"; exit 1; }
    done
  done
  # Checks what the scripts made of the data, and that nothing is wider than a phone.
  browse "$folder/$page.html" "$page-dom" 390 4200 1 --dump-dom >"$folder/$page.dom"
  grep -q '<canvas' "$folder/$page.dom" || { echo "$page: no canvas"; exit 1; }
done
for words in 'Loss, in nats per token' 'Learning rate' 'Gradient norm' 'Tokens/s' 'evaluation at the end' 'Memory of a rank' \
  'planned, and step 20 as ' "Where the step's time goes" 'step 20, measured' 'in no task' 'Events' 'checkpoint' 'Recipe'; do
  grep -q "$words" "$folder/run.dom" || { echo "the page of a run lacks \"$words\""; exit 1; }
done
for words in 'ZeRO-0' "ZeRO-3 (the recipe's)" 'Every buffer with its place' 'The step, simulated'; do
  grep -q "$words" "$folder/plan.dom" || { echo "the page of a plan lacks \"$words\""; exit 1; }
done
# The time until the page is loaded and drawn, without the browser's start, is two seconds on an idle machine.
milliseconds() {
  local begin
  begin=$(date +%s%N)
  browse "$1" "$2" 1280 2400 1 --virtual-time-budget=1 --dump-dom >"$folder/$2.dom"
  echo $((($(date +%s%N) - begin) / 1000000))
}
echo '<!doctype html><title>empty</title><canvas></canvas>' >"$folder/empty.html"
start=$(milliseconds "$folder/empty.html" empty)
took=$(($(milliseconds "$folder/large.html" large-time) - start))
echo "70B on 512 ranks: $size bytes, $took ms in addition to the $start ms in which the browser starts"
[ "$took" -lt 20000 ] || { echo "that is ten times the limit, more than a busy machine explains"; exit 1; }
