#!/usr/bin/env python3
"""Tensor parallelism and pipeline stages compared with PyTorch's on this machine: two ranks of one core each, alternating,
medians; prints a Markdown table, in which the third column is Strata on one rank of two threads.

    bench/against_torch_parallel.py --torch-parallel TORCH_PARALLEL.py --python PYTHON_WITH_TORCH [--rounds 3]

TORCH_PARALLEL.py is the peer: torchrun starts it on two ranks, and its last rank prints one JSON line with tokens_per_s
and its own peak_rss_bytes. This is compared with our last rank; the largest of our ranks is shown too. The model is a
GPT-2 of 124M parameters whose head is not tied, like the peer's. Needs build/strata.
"""
import argparse, datetime, json, os, platform, statistics, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--torch-parallel", required=True)
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--steps", type=int, default=6)
ap.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
ap.add_argument("--only", nargs="*")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
env = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMP_NUM_THREADS="1")
scratch = tempfile.mkdtemp()
with open(os.path.join(scratch, "tokens.bin"), "wb") as f:  # any tokens: speed does not depend on them
    f.write(b"".join((i * 2654435761 % 50257 % 65536).to_bytes(2, "little") for i in range(300000)))


def ours(ranks, threads, batch, micro_batches, keys):
    out = os.path.join(scratch, "summary.json")
    cmd = [strata, "train"]
    if ranks > 1:
        cmd = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] + cmd
    for s in ["model.preset=gpt2-124m", "model.config.vocab_size=50304", "model.config.tie_word_embeddings=false",
              f"data.train={scratch}/tokens.bin", "data.seq_len=256", f"training.precision={a.precision}",
              f"training.micro_batch_size={batch}", f"training.gradient_accumulation_steps={micro_batches}",
              f"training.max_steps={a.steps}", f"device.threads={threads}", f"report.summary={out}"] + keys:
        cmd += ["--set", s]
    subprocess.run(cmd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    r = json.load(open(out))
    for stage in r["stages"]:
        assert stage["planned_peak_bytes"] == stage["measured_peak_bytes"], r["stages"]
    return r["tokens_per_s"], r["process_peak_rss_bytes"][-1], max(r["process_peak_rss_bytes"])


def theirs(batch, micro_batches, words):
    cmd = [a.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", a.torch_parallel, "--batch", str(batch),
           "--micro-batches", str(micro_batches), "--seq", "256", "--dtype", a.precision, "--steps", str(a.steps)] + words
    out = subprocess.run(cmd, env=env, check=True, capture_output=True, text=True).stdout
    r = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    return r["tokens_per_s"], r["peak_rss_bytes"]


# name, batch, micro-batches, keys of two ranks, keys of one rank, words of the peer
cases = [("tensor 2, 4 x 256", 4, 1, ["parallel.tensor=2"], [], ["--tensor", "2"]),
         ("tensor 2 with divided rows, 4 x 256", 4, 1, ["parallel.tensor=2", "parallel.sequence=true"], [],
          ["--tensor", "2"]),
         ("2 stages of 2 chunks, 8 micro-batches of 1 x 256", 1, 8,
          ["parallel.stages=2", "parallel.schedule=interleaved", "parallel.chunks=2"], [], ["--stages", "2"]),
         ("2 stages, 8 micro-batches of 1 x 256", 1, 8, ["parallel.stages=2"], [], ["--stages", "2"]),
         ("4 virtual shards on one rank, 4 x 256", 4, 1, None, ["parallel.tensor_shards=4"], None)]
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
print(f"Two ranks of one core each against one rank of two threads, gpt2-124m untied, {a.precision}; {a.rounds} alternating "
      f"rounds, medians. {cpu}, {datetime.date.today()}.\n")
print("| case | strata, 2 ranks | PyTorch, 2 ranks | ratio | strata, 1 rank | of it | peak of the last rank (largest) | PyTorch's | ratio |")
print("|---|---|---|---|---|---|---|---|---|")
for name, batch, micro_batches, two, one, words in cases:
    if a.only and not any(word in name for word in a.only):
        continue
    mine, base, peer = [], [], []
    for _ in range(a.rounds):
        mine.append(ours(2, 1, batch, micro_batches, two) if two else ours(1, 2, batch, micro_batches, one))
        base.append(ours(1, 2, batch, micro_batches, []))
        if words:
            peer.append(theirs(batch, micro_batches, words))
    median = lambda rows, i: statistics.median(row[i] for row in rows)
    speed, memory = median(mine, 0), median(mine, 1)
    theirs_text = ("", "", "", "") if not words else (f"{median(peer, 0):.0f}", f"{speed / median(peer, 0):.2f}",
                                                      f"{median(peer, 1) / 1e9:.2f} GB",
                                                      f"{memory / median(peer, 1):.2f}")
    print(f"| {name} | {speed:.0f} tokens/s | {theirs_text[0]} | {theirs_text[1]} | {median(base, 0):.0f} | "
          f"{speed / median(base, 0):.2f} | {memory / 1e9:.2f} GB ({median(mine, 2) / 1e9:.2f}) | {theirs_text[2]} | "
          f"{theirs_text[3]} |", flush=True)
