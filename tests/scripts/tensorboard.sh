#!/usr/bin/env bash
# Reads the files of report.tensorboard with the tensorboard package: every step occurs once under the documented tags,
# even if the run was stopped, lost steps after its last checkpoint, and was resumed.
#   tensorboard.sh STRATA FOLDER     STRATA_PYTHON: a Python with tensorboard (scripts/setup.sh --dev makes .dev)
set -euo pipefail
strata=$1 folder=$2 python=${STRATA_PYTHON:-$(dirname "$0")/../../.dev/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
"$python" -c "import tensorboard" 2>/dev/null ||
  { echo "Skipped: $python has no tensorboard (scripts/setup.sh --dev, or STRATA_PYTHON)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder"
head -c 4096 /dev/zero | tr '\0' '\1' >"$folder/tokens.bin" # of two bytes each: 257
train() {
  "$strata" train --set model.preset=tiny-gpt2 --set model.config.n_layer=1 --set model.config.vocab_size=300 \
    --set data.train="$folder/tokens.bin" --set data.seq_len=16 --set training.max_steps=6 \
    --set checkpoint.dir="$folder/checkpoints" --set report.dir="$folder/report" "$@" 2>"$folder/log" ||
    [ $? = 75 ] || { cat "$folder/log"; exit 1; }
}
train --set checkpoint.stop_after=4
# This is the state after a crash: the newest checkpoint is older than the newest reported step.
train --set checkpoint.stop_after=5
rm -r "$folder"/checkpoints/step-00000005
train
"$python" - "$folder/report" <<'END' 2>"$folder/python.log" || { cat "$folder/python.log"; echo "the tensorboard package read something else"; exit 1; }
import json, math, sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1] + "/tensorboard")
events.Reload()
steps = [json.loads(line) for line in open(sys.argv[1] + "/report.jsonl")]
assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
tags = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "lr", "train/epoch": "epoch",
        "speed/tokens_per_s": "tokens_per_s", "speed/step_ms": "step_ms"}
found = events.Tags()["scalars"]
assert set(tags) | {"memory/device_gib", "memory/process_gib"} <= set(found), found
for tag, key in tags.items():
    read = events.Scalars(tag)
    assert [event.step for event in read] == [1, 2, 3, 4, 5, 6], (tag, read)
    for event, step in zip(read, steps):
        digits = {"speed/step_ms": 5e-4, "speed/tokens_per_s": 0.05}.get(tag, 0)  # those that the line leaves out
        assert math.isclose(event.value, step[key], rel_tol=1e-6, abs_tol=1.01 * digits), (tag, event, step)
        assert abs(event.wall_time - step["time"]) < 1e-2
END
