#!/usr/bin/env python3
"""Steps as `strata plan --machine` predicts them, compared with measured steps: calibrate, plan, train, case by case.

    bench/predicted.py --data TOKENS.bin --dir FOLDER [--strata build/strata] [--rounds 3] [--steps 6] [--case NAME ...]

The machine is calibrated right before each case. Prints a row per case: predicted and measured ms per step (the median
over the steps after the second), and the median of their ratio over rounds, with its minimum and maximum.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BIBLE = ["examples/bible.toml"]
GPT2 = ["--set", "model.preset=gpt2-124m", "--set", "data.seq_len=256", "--set", "training.micro_batch_size=4"]
ZERO3 = ["--set", "zero.stage=3"]
HOST = ["--set", "zero.optimizer=host"]
NVME = ["--set", "zero.optimizer=nvme"]
CASES = {  # name: ranks, arguments
    "bible": (1, BIBLE),
    "bible, optimizer on host": (1, BIBLE + HOST),
    "bible, optimizer on nvme": (1, BIBLE + NVME),
    "bible, 2 ranks": (2, BIBLE),
    "bible, 2 ranks, optimizer on nvme": (2, BIBLE + NVME),
    "gpt2-124m": (1, GPT2),
    "gpt2-124m, optimizer on host": (1, GPT2 + HOST),
    "gpt2-124m, optimizer on nvme": (1, GPT2 + NVME),
    "gpt2-124m, 2 ranks": (2, GPT2 + ZERO3),
    "gpt2-124m, 2 ranks, optimizer on nvme": (2, GPT2 + ZERO3 + NVME),
}


def run(command, ranks):
    if ranks > 1:
        command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] + command
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")


def measure(options, ranks, arguments, folder):
    machine, plan, steps = (os.path.join(folder, name) for name in ("machine.toml", "plan.json", "steps.jsonl"))
    sets = ["--set", f"data.train={options.data}", "--set", f'memory.nvme=["{options.dir}"]']
    count = options.steps if arguments[0] != BIBLE[0] else 5 * options.steps
    run([options.strata, "calibrate", "-o", machine, "--dir", options.dir], ranks)
    run([options.strata, "plan", *arguments, *sets, "--ranks", str(ranks), "--machine", machine, "--json", plan], 1)
    run([options.strata, "train", *arguments, *sets, "--set", f"training.max_steps={count + 2}",
         "--set", "scheduler.warmup_steps=0", "--set", f"report.jsonl={steps}"], ranks)
    with open(plan) as file:
        predicted = json.load(file)["step_ms"]
    with open(steps) as file:
        measured = statistics.median([json.loads(line)["step_ms"] for line in list(file)[2:]])
    return predicted, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--strata", default="build/strata")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--case", action="append", choices=CASES)
    options = parser.parse_args()
    names = options.case or list(CASES)
    found = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name in names:
                found[name].append(measure(options, *CASES[name], folder))
                print(f"  {name}: {found[name][-1][0]:.0f} ms, measured {found[name][-1][1]:.0f} ms", file=sys.stderr)
    print("| case | predicted ms | measured ms | ratio | from, to |\n|---|---|---|---|---|")
    for name, pairs in found.items():
        ratios = [predicted / measured for predicted, measured in pairs]
        print(f"| {name} | {statistics.median(p for p, _ in pairs):.0f} | {statistics.median(m for _, m in pairs):.0f} "
              f"| {statistics.median(ratios):.2f} | {min(ratios):.2f}, {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
