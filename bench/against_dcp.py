#!/usr/bin/env python3
"""Strata's checkpoints compared with torch.distributed.checkpoint's on this machine: gpt2-124m, bf16, 2 ranks, ZeRO-3 / FSDP2,
one thread per rank; alternating, medians; prints a Markdown table.

    bench/against_dcp.py --fsdp-checkpoint FSDP_CHECKPOINT.py --python PYTHON_WITH_TORCH [--rounds 2] [--dir DIR]

FSDP_CHECKPOINT.py is the peer. Needs build/strata (scripts/build.sh).
"""
import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--fsdp-checkpoint", required=True)
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--rounds", type=int, default=2)
ap.add_argument("--dir", help="folder for checkpoints, on the file system to measure")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
env = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
scratch = tempfile.mkdtemp(dir=a.dir)
with open(os.path.join(scratch, "tokens.bin"), "wb") as f:  # any tokens: speed does not depend on them
    f.write(b"".join((i * 2654435761 % 50257 % 65536).to_bytes(2, "little") for i in range(300000)))
PARAMETERS = 124_475_904
AT = 6  # the step whose checkpoint is measured; two warm-up steps precede it, and steps during the write follow it


def ours():
    folder, lines, out = (os.path.join(scratch, x) for x in ("ours", "steps.jsonl", "summary.json"))
    shutil.rmtree(folder, ignore_errors=True)
    sets = ["model.preset=gpt2-124m", f"data.train={scratch}/tokens.bin", "data.seq_len=256", "training.precision=bf16",
            "training.micro_batch_size=2", f"training.max_steps={2 * AT}", "zero.stage=3", "device.threads=1",
            f"checkpoint.dir={folder}", f"checkpoint.every={AT}", f"report.jsonl={lines}", f"report.summary={out}"]
    cmd = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", strata, "train"]
    for s in sets:
        cmd += ["--set", s]
    subprocess.run(cmd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ms = [json.loads(line)["step_ms"] for line in open(lines)]
    plain = statistics.median(ms[2:AT] + ms[AT + 2:])
    figures = json.load(open(out))["checkpoints"]
    newest = os.path.join(folder, f"step-{2 * AT:08}")
    size = sum(os.path.getsize(os.path.join(newest, x)) for x in os.listdir(newest))
    return {"held_s": figures["held_ms"] / 1e3, "lost_s": (ms[AT] + ms[AT + 1] - 2 * plain) / 1e3,
            "durable_s": figures["last_ms"] / 1e3, "step_s": plain / 1e3, "bytes": size / PARAMETERS}


def theirs():
    folder = os.path.join(scratch, "theirs")
    cmd = [a.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", a.fsdp_checkpoint, "--dtype", "bf16",
           "--dir", folder]
    text = subprocess.run(cmd, env=dict(env, OMP_NUM_THREADS="1"), check=True, capture_output=True, text=True).stdout
    sync = re.search(r"total_blocked_s ([\d.]+) bytes/param ([\d.]+)", text)
    asynchronous = re.search(r"async save 1 blocked_s ([\d.]+)", text)
    shutil.rmtree(folder, ignore_errors=True)
    return {"blocked_s": float(sync[1]), "bytes": float(sync[2]), "async_blocked_s": float(asynchronous[1])}


runs = []
for _ in range(a.rounds):
    runs.append((ours(), theirs()))
    print(runs[-1], file=sys.stderr)
shutil.rmtree(scratch)
mine = {k: statistics.median(r[0][k] for r in runs) for k in runs[0][0]}
peer = {k: statistics.median(r[1][k] for r in runs) for k in runs[0][1]}
save = peer["blocked_s"]
print("| figure | Strata | torch.distributed.checkpoint | of its blocking save | target |\n|---|---|---|---|---|")
print(f"| training held | {mine['held_s']:.3f} s | {save:.2f} s blocking, {peer['async_blocked_s']:.2f} s async | "
      f"{mine['held_s'] / save:.3f} | 0.1 |")
print(f"| training lost in all (two steps during the write, of {mine['step_s']:.2f} s) | {mine['lost_s']:.2f} s | | "
      f"{mine['lost_s'] / save:.2f} | 0.3 |")
print(f"| from the step's end until durable | {mine['durable_s']:.2f} s | | | |")
print(f"| bytes per parameter | {mine['bytes']:.3f} | {peer['bytes']:.3f} | | 12 + 1% |")
