#!/usr/bin/env python3
"""Strata's fused AdamW compared with DeepSpeed's CPUAdam (ZeRO-Offload's optimizer) on this machine; prints a Markdown table.

    bench/against_deepspeed_adam.py --python PYTHON [--n 6000000] [--rounds 3] [--threads N]

PYTHON has torch and deepspeed (this script runs itself with it), which compiles its operation on first use. DeepSpeed's
step takes an fp32 gradient. A training step also widens the bf16 gradient before it and narrows the fp32 master after
it, in separate passes ("with casts"). Strata's step does both in its single pass. Runs alternate. The minimum over many
short passes, over more memory than the caches hold, excludes other work on the machine. Needs build/strata.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

ap = argparse.ArgumentParser()
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--n", type=int, default=6_000_000)
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--threads", type=int, default=os.cpu_count())
ap.add_argument("--peer", action="store_true")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
passes = max(9, 400_000_000 // a.n)  # the same number of rounds as `strata bench adam`


def peer():
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    p = torch.nn.Parameter(torch.randn(a.n) * 0.02)
    p.grad = torch.randn(a.n) * 1e-3
    g16, p16 = p.grad.to(torch.bfloat16), p.detach().to(torch.bfloat16)
    opt = DeepSpeedCPUAdam([p], lr=1e-4, weight_decay=0.1, adamw_mode=True)

    def with_casts():
        p.grad.copy_(g16)
        opt.step()
        p16.copy_(p.detach())

    times = {"step": [], "step with casts": []}
    for _ in range(passes):
        for name, f in (("step", opt.step), ("step with casts", with_casts)):
            f()
            start = time.perf_counter()
            f()
            times[name].append((time.perf_counter() - start) / a.n * 1e9)
    for name, ns in times.items():
        print(json.dumps(dict(what=f"DeepSpeed CPUAdam, {name}", median=statistics.median(ns), least=min(ns))))


def main():
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads), CUDA_VISIBLE_DEVICES="",
               PATH=os.path.dirname(os.path.abspath(a.python)) + ":" + os.environ["PATH"])
    times, triad = {}, 0
    for _ in range(a.rounds):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run([strata, "bench", "adam", "--n", str(a.n), "--threads", str(a.threads), "--json", out.name],
                           check=True, capture_output=True)
            figures = json.load(open(out.name))
        triad = max(triad, figures["best_triad_gb_per_s"])
        for row in figures["updates"]:
            times.setdefault("Strata " + row["update"], []).append((row["ns_per_param"], row["best_ns_per_param"]))
        lines = subprocess.run([a.python, os.path.abspath(__file__), "--peer", "--n", str(a.n)], env=env, check=True,
                               stdout=subprocess.PIPE, text=True).stdout
        for line in lines.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                times.setdefault(row["what"], []).append((row["median"], row["least"]))
    least = {name: min(t for _, t in rounds) for name, rounds in times.items()}
    ours = least["Strata adamw fp32"]
    print(f"{a.n:,} parameters, {a.threads} threads, {a.rounds} rounds of {passes} passes each; triad {triad:.1f} GB/s\n")
    print("| step | ns per parameter, median | least | least over Strata adamw fp32's |\n|---|---|---|---|")
    for name, rounds in times.items():
        print(f"| {name} | {statistics.median(t for t, _ in rounds):.3f} | {least[name]:.3f} | {least[name] / ours:.2f} |")


peer() if a.peer else main()
