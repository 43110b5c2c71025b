#!/usr/bin/env bash
# Makes the pictures of README.md and docs/guide.md in docs/pictures, light and dark: the memory of a rank at ZeRO-0 to
# 3 and with offload, measured by runs and drawn by the report page, and screenshots of the pages of a run and a plan.
#   scripts/pictures.sh [FOLDER]   FOLDER keeps the runs (default: a new one); runs that it already contains are reused
# Needs build/strata, mpirun, python3 and chromium (scripts/setup.sh --dev). GPT-2 124M on four ranks takes about 10 GiB.
. "$(dirname "$0")/steps.sh"

[ "${1:-}" != --help ] || { sed -n '2,5s/^# //p' "$0" && exit 0; }
strata=${STRATA:-build/strata}
[ -x "$strata" ] || die "$strata is not built: scripts/build.sh"
chromium=$(command -v chromium || command -v google-chrome) || die "there is no chromium: scripts/setup.sh --dev"
folder=${1:-$(mktemp -d)}
mkdir -p "$folder/drive" docs/pictures

model=(--set model.preset=gpt2-124m --set data.seq_len=256 --set memory.device=4GiB --set memory.host=4GiB)
[ -f "$folder/train.bin" ] || "$strata" tokenize --tokenizer byte -o "$folder/train.bin" README.md docs/*.md
run() { # NAME SETS...: three steps on four ranks
  local name=$1
  shift
  [ ! -s "$folder/$name/summary.json" ] || return 0
  mpirun --oversubscribe -n 4 "$strata" train "${model[@]}" --set device.threads=1 --set data.train="$folder/train.bin" \
    --set training.max_steps=3 --set memory.nvme="$folder/drive" --set report.dir="$folder/$name" "$@"
}
for stage in 0 1 2 3; do run "zero$stage" --set zero.stage=$stage; done
run host --set zero.stage=3 --set zero.optimizer=host --set zero.gradients=host
run nvme --set zero.stage=3 --set zero.optimizer=nvme --set zero.gradients=nvme --set zero.parameters=nvme \
  --set training.recompute=block --set zero.activations=nvme
"$strata" plan "${model[@]}" --set zero.stage=3 --ranks 4 --html "$folder/plan.html" --force >"$folder/plan.txt"

# Draws the bars from the summaries of the runs, with the script and style of the report page.
python3 - "$folder" >"$folder/memory.html" <<'PAGE'
import json, sys
folder = sys.argv[1]
names = [("zero0", "ZeRO-0"), ("zero1", "ZeRO-1"), ("zero2", "ZeRO-2"), ("zero3", "ZeRO-3"),
         ("host", "ZeRO-3, optimizer and gradients in host memory"), ("nvme", "ZeRO-3, all state on NVMe")]
tiers = [("device", "device"), ("host", "host"), ("nvme", "NVMe")]
rows = []
for name, label in names:
    memory = json.load(open(f"{folder}/{name}/summary.json"))["memory"]
    used = [(key, tier) for key, tier in tiers if memory.get(key) and memory[key]["measured_peak_bytes"]]
    for key, tier in used:
        rows.append({"label": label if len(used) == 1 else f"{label}: {tier}" if key == used[0][0] else f"{tier}",
                     "peak": memory[key]["measured_peak_bytes"], "kinds": memory[key]["by_kind"]})
style, charts = (open(f"launcher/report/{f}").read() for f in ("style.css", "charts.js"))
print(f"""<!doctype html><meta charset="utf-8"><style>{style} main {{ padding: 4px; }} section {{ margin: 0; }}
.bars .l {{ text-align: right; }}</style><main></main>
<script type="application/json" id="data">{json.dumps(rows)}</script><script>{charts}
const data_kinds = () => ["parameters", "gradients", "optimizer", "activations", "workspace", "staging"];
const most = Math.max(...data.map((r) => r.peak)), bars = el("div", {{ class: "bars" }});
for (const r of data) bars.append(...stackedBar(r.label, data_kinds().map((k) => r.kinds[k] || 0), most, r.peak, bytes(r.peak)));
section("GPT-2 124M in bf16 on 4 ranks: memory of a rank, measured at its peak", legend(data_kinds().map((k, i) => [k, i])), bars);
</script>""")
PAGE

# shoot PAGE NAME WIDTH HEIGHT SCALE: writes NAME-light.png and NAME-dark.png.
shoot() {
  local scheme
  for scheme in light dark; do
    "$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
      --blink-settings=preferredColorScheme=$([ $scheme = dark ] && echo 0 || echo 1) --window-size="$3,$4" \
      --force-device-scale-factor="$5" --virtual-time-budget=8000 --screenshot="docs/pictures/$2-$scheme.png" "file://$1" 2>/dev/null
  done
}
folder=$(cd "$folder" && pwd)
shoot "$folder/memory.html" memory 1000 325 2
shoot "$PWD/examples/report.html" report 1240 1060 1
shoot "$folder/plan.html" plan 1240 1080 1
ls -l docs/pictures
