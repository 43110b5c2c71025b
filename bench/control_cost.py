#!/usr/bin/env python3
"""The cost of watching a run: the control service, Prometheus metrics read once a second and `strata ctl watch`, all
together, compared with control.listen = "off" and no watching between nodes. Runs alternate in pairs, and the order
within a pair alternates too.

    bench/control_cost.py --dir FOLDER [--strata build/strata] [--pairs 10] [--seconds 30] [--ranks 1] [--set KEY=VALUE ...]

The time per step is the wall time between lines of report.jsonl, so that work between steps counts: the median over
one-second pieces of a run. Prints both medians in ms, and the median over pairs of their ratio with the interval that
holds it in 95 of 100 cases. Needs a machine without other work, and a core on which no rank computes.

With one rank, also prints the share of a core that the control service's threads (those of nice 10) took, as counted by
the kernel (schedstat): what a machine without a spare core would lose. Other work does not affect this figure.
"""
import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MODEL = ["model.preset=tiny-gpt2", "data.seq_len=64", "training.micro_batch_size=8", "training.precision=fp32",
         "device.threads=1", "report.every=1000000", "training.max_steps=100000000"]
OFF = ["control.listen=off", "control.timeout=0", "control.warn_after=0", "control.stuck_after=0"]
ON = ["control.listen=unix:{folder}/socket", "control.metrics=127.0.0.1:0"]


class Watched:
    """The clients that watch a run, one of each kind."""

    def __init__(self, strata, folder, log):
        self.client = subprocess.Popen([strata, "ctl", "watch", f"unix:{folder}/socket"], stdout=subprocess.PIPE)
        line = next(line for line in open(log) if line.startswith("strata: metrics"))
        self.metrics, self.over, self.reads, self.lines = line.split()[-1], threading.Event(), 0, 0
        self.threads = [threading.Thread(target=work) for work in (self.read_metrics, self.read_steps)]
        for thread in self.threads:
            thread.start()

    def read_metrics(self):
        while not self.over.wait(1):
            with urllib.request.urlopen(self.metrics, timeout=30) as answer:
                self.reads += b"strata_step_seconds" in answer.read()

    def read_steps(self):
        for _ in self.client.stdout:
            self.lines += 1

    def leave(self):
        self.over.set()
        self.client.terminate()
        for thread in self.threads:
            thread.join()
        if not self.reads or not self.lines:
            sys.exit(f"nobody watched: {self.reads} reads of metrics, {self.lines} steps")


def watching_seconds(pid):
    """Processor time so far of a process's threads of nice 10, which belong to the control service."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            nice = int(open(f"/proc/{pid}/task/{task}/stat").read().rpartition(")")[2].split()[16])
            total += int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) if nice == 10 else 0
        except FileNotFoundError:  # it has ended
            pass
    return total * 1e-9


def step_ms(steps):
    """Milliseconds per step: the median over one-second pieces, without the first two."""
    times = [json.loads(line)["time"] for line in open(steps) if line.endswith("\n")]
    pieces, begin = [], 0
    for i, at in enumerate(times):
        if at - times[begin] >= 1:
            pieces.append(1e3 * (at - times[begin]) / (i - begin))
            begin = i
    if len(pieces) < 5:
        sys.exit(f"{steps} has {len(times)} steps, which are too few: more --seconds")
    return statistics.median(pieces[2:])


def run(options, on):
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        steps, log = os.path.join(folder, "steps.jsonl"), os.path.join(folder, "log")
        sets = MODEL + [f"data.train={options.dir}/tokens.bin", f"report.jsonl={steps}"]
        sets += [key.format(folder=folder) for key in (ON if on else OFF)] + options.set
        command = [options.strata, "train"] + [word for key in sets for word in ("--set", key)]
        if options.ranks > 1:
            command = ["mpirun", "-n", str(options.ranks), "--bind-to", "none"] + command
        with open(log, "w") as file:
            process = subprocess.Popen(command, stderr=file)
        watched = None
        try:
            while not os.path.exists(steps) or not os.path.getsize(steps):
                if process.poll() is not None:
                    sys.exit(open(log).read())
                time.sleep(0.05)
            if on:
                watched = Watched(options.strata, folder, log)
            share = None
            if on and options.ranks == 1:
                before, begin = watching_seconds(process.pid), time.monotonic()
            time.sleep(options.seconds)
            if on and options.ranks == 1:
                share = (watching_seconds(process.pid) - before) / (time.monotonic() - begin)
        finally:
            if watched:
                watched.leave()
            process.send_signal(signal.SIGUSR1)
            process.wait()
        return step_ms(steps), share


def interval(ratios):
    """The order statistics between which the median lies in 95 of 100 cases; None if there are too few."""
    n, ordered = len(ratios), sorted(ratios)
    below = 0.0
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if below > 0.025:
            return (ordered[k - 1], ordered[n - k]) if k else None
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--strata", default="build/strata")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    with open(os.path.join(options.dir, "tokens.bin"), "wb") as file:
        file.write(b"".join(random.Random(1).randrange(250).to_bytes(2, "little") for _ in range(100000)))
    found, shares = [], []
    for pair in range(options.pairs):
        took = {on: run(options, on) for on in ((True, False) if pair % 2 else (False, True))}
        (on, share), (off, _) = took[True], took[False]
        found.append((on, off))
        if share is not None:
            shares.append(share)
        print(f"  pair {pair + 1}: on {on:.4f} ms, off {off:.4f} ms per step, {on / off:.4f}"
              + (f"; {100 * share:.3f}% of a core" if share is not None else ""), file=sys.stderr)
    ratios = [on / off for on, off in found]
    between = interval(ratios)
    print(f"on {statistics.median(on for on, _ in found):.4f} ms, off {statistics.median(off for _, off in found):.4f} ms "
          f"per step; on / off {statistics.median(ratios):.4f}, "
          + (f"95% interval {between[0]:.4f} to {between[1]:.4f}" if between else
             f"from {min(ratios):.4f} to {max(ratios):.4f}: too few pairs for an interval") + f" ({len(found)} pairs)")
    if shares:
        print(f"the control service's threads took {100 * statistics.median(shares):.3f}% of a core "
              f"(from {100 * min(shares):.3f}% to {100 * max(shares):.3f}%)")


if __name__ == "__main__":
    main()
