#!/usr/bin/env python3
"""Strata's step compared with PyTorch's on this machine: same shapes, alternating, medians; prints a Markdown table.

    bench/against_torch.py --torch-train TORCH_TRAIN.py --python PYTHON_WITH_TORCH [--rounds 2] [--only NAME ...] > docs/results/X.md

TORCH_TRAIN.py is the peer: one JSON line with tokens_per_s and peak_rss_bytes. Needs build/strata (scripts/build.sh).
"""
import argparse, datetime, json, os, platform, statistics, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--torch-train", required=True)
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--rounds", type=int, default=2)
ap.add_argument("--steps", type=int, default=6)
ap.add_argument("--only", nargs="*")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
env = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
scratch = tempfile.mkdtemp()
with open(os.path.join(scratch, "tokens.bin"), "wb") as f:  # any tokens: speed does not depend on them
    f.write(b"".join((i * 2654435761 % 50257 % 65536).to_bytes(2, "little") for i in range(300000)))


def ours(ranks, batch, dtype, extra):
    out = os.path.join(scratch, "summary.json")
    cmd = [strata, "train"]
    if ranks > 1:
        cmd = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] + cmd
    for s in ["model.preset=gpt2-124m", f"data.train={scratch}/tokens.bin", "data.seq_len=256", f"training.precision={dtype}",
              f"training.micro_batch_size={batch}", f"training.max_steps={a.steps}", f"report.summary={out}"] + extra:
        cmd += ["--set", s]
    subprocess.run(cmd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    r = json.load(open(out))
    return r["tokens_per_s"], max(r["process_peak_rss_bytes"])


def theirs(ranks, batch, dtype, extra):
    cmd = [a.python]
    e = dict(env)
    if ranks > 1:
        cmd += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        e["OMP_NUM_THREADS"] = "1"
    cmd += [a.torch_train, "--model", "gpt2-124m", "--batch", str(batch), "--seq", "256", "--dtype", dtype, "--steps",
            str(a.steps)] + extra
    text = subprocess.run(cmd, env=e, check=True, capture_output=True, text=True).stdout
    r = json.loads([l for l in text.splitlines() if l.startswith("{")][-1])
    return r["tokens_per_s"], r["peak_rss_bytes"]


cases = [  # name, ranks, batch, dtype, our settings, their options
    ("bf16", 1, 4, "bf16", [], []),
    ("fp32", 1, 4, "fp32", [], []),
    ("bf16, recompute", 1, 4, "bf16", ["training.recompute=block"], ["--recompute"]),
    ("bf16, 2 ranks, ZeRO-3 / FSDP2", 2, 2, "bf16", ["zero.stage=3", "device.threads=1"], ["--fsdp"]),
    ("fp32, 2 ranks, ZeRO-3 / FSDP2", 2, 2, "fp32", ["zero.stage=3", "device.threads=1"], ["--fsdp"]),
]
rows = []
for name, ranks, batch, dtype, mine, peer in cases:
    if a.only and name not in a.only:
        continue
    got, want = [], []
    for _ in range(a.rounds):
        got.append(ours(ranks, batch, dtype, mine))
        want.append(theirs(ranks, batch, dtype, peer))
    m = lambda v, i: statistics.median(x[i] for x in v)
    rows.append((name, m(got, 0), m(want, 0), m(got, 1), m(want, 1)))
    print(rows[-1], file=sys.stderr, flush=True)

cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
print(f"# GPT-2 124M, 4 sequences of 256 tokens per step, compared with PyTorch\n\n{datetime.date.today()}, {cpu}, {os.cpu_count()} cores; "
      f"`bench/against_torch.py --rounds {a.rounds} --steps {a.steps}`: alternating, medians of each run's median step.\n")
print("| run | Strata tokens/s | PyTorch tokens/s | ratio | Strata peak RSS a process | PyTorch | ratio |\n|---|---|---|---|---|---|---|")
for name, t, u, r, s in rows:
    print(f"| {name} | {t:.0f} | {u:.0f} | {t / u:.2f} | {r / 1e9:.2f} GB | {s / 1e9:.2f} GB | {r / s:.2f} |")
