#!/usr/bin/env python3
"""Weights and checkpoints read from a cold page cache, and written, compared with plain reads and fio; prints a Markdown table.

    bench/cold_reads.py --model HF_DIRECTORY --dir FOLDER [--rounds 5] > docs/results/X.md

HF_DIRECTORY holds one model.safetensors; FOLDER is where checkpoints are written. Two ranks, ZeRO-3. fio (Debian's package)
runs with --ioengine=io_uring --direct=1 --bs=1M --iodepth=32. Needs build/strata (scripts/build.sh).
"""
import argparse, datetime, json, os, re, shutil, statistics, subprocess, tempfile, time

ap = argparse.ArgumentParser()
ap.add_argument("--model", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--rounds", type=int, default=5)
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
scratch = tempfile.mkdtemp(dir=a.dir)
for name, tokens in ("tokens.bin", 1000), ("few.bin", 200):  # any tokens
    with open(os.path.join(scratch, name), "wb") as f:
        f.write(b"".join((i * 2654435761 % 49152).to_bytes(2, "little") for i in range(tokens)))


def drop(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def plain_read(path):
    start, fd, into = time.time(), os.open(path, os.O_RDONLY), bytearray(1 << 20)
    while os.readv(fd, [into]):
        pass
    os.close(fd)
    return time.time() - start


def two_ranks(command, sets, seconds):
    cmd = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", strata, command]
    for s in sets:
        cmd += ["--set", s]
    out = subprocess.run(cmd, env=env, capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(out.stderr)
    return float(re.search(seconds, out.stderr)[1])


def fio(mode, size):
    file = os.path.join(scratch, "fio.dat")
    text = subprocess.run(["fio", "--name=strata", f"--filename={file}", f"--size={size}", "--ioengine=io_uring", "--direct=1",
                           "--bs=1M", "--iodepth=32", f"--rw={mode}", "--overwrite=1", "--end_fsync=1",
                           "--output-format=json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text[text.index("{"):])["jobs"][0][mode]["bw_bytes"] / 1e9


weights = os.path.join(a.model, "model.safetensors")
folder, summary = os.path.join(scratch, "checkpoints"), os.path.join(scratch, "summary.json")
common = [f"model.path={a.model}", "data.seq_len=64", "training.precision=fp32", "zero.stage=3"]
# Nothing trains during the write: the step's checkpoint is the run's last.
train = common + [f"data.train={scratch}/tokens.bin", "training.micro_batch_size=1", "training.max_steps=1", "device.threads=1",
                  f"checkpoint.dir={folder}", "checkpoint.every=1", f"report.summary={summary}"]
rows = {name: [] for name in ["plain", "cold", "warm", "write", "read", "fio write", "fio read"]}
SIZE = "1600M"  # about the size of a checkpoint, over both files
fio("write", SIZE)  # creates the file
for _ in range(a.rounds):
    drop([weights])
    rows["plain"].append(plain_read(weights))
    evaluate = common + [f"data.validation={scratch}/few.bin"]
    drop([weights])
    rows["cold"].append(two_ranks("eval", evaluate, r"weights read in ([\d.]+) s"))
    rows["warm"].append(two_ranks("eval", evaluate, r"weights read in ([\d.]+) s"))
    shutil.rmtree(folder, ignore_errors=True)
    two_ranks("train", train, r"weights read in ([\d.]+) s")
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    size = sum(map(os.path.getsize, files))
    rows["write"].append(size / json.load(open(summary))["checkpoints"]["last_ms"] / 1e6)
    drop(files)
    rows["read"].append(size / two_ranks("train", train, r"read in ([\d.]+) s") / 1e9)
    rows["fio write"].append(fio("write", SIZE))
    rows["fio read"].append(fio("read", SIZE))
shutil.rmtree(scratch)

m = {name: statistics.median(values) for name, values in rows.items()}
spread = lambda name: f"{min(rows[name]):.2f} to {max(rows[name]):.2f}"
cpu = next(l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name"))
print(f"# Cold reads\n\n{datetime.date.today()}, {cpu}, {os.cpu_count()} cores; `bench/cold_reads.py --rounds {a.rounds}`: in "
      f"turns, medians; model.safetensors of {os.path.getsize(weights) / 1e9:.2f} GB, checkpoints of {size / 1e9:.2f} GB.\n")
print("| what | figure | of | ratio |\n|---|---|---|---|")
print(f"| weights read by 2 ranks, cold | {m['cold']:.2f} s ({spread('cold')}) | a plain sequential read, cold: "
      f"{m['plain']:.2f} s ({spread('plain')}) | {m['cold'] / m['plain']:.2f} |")
print(f"| the same, in the page cache | {m['warm']:.2f} s ({spread('warm')}) | | |")
for way in ["write", "read"]:
    print(f"| checkpoint {way}, 2 ranks | {m[way]:.2f} GB/s ({spread(way)}) | fio {way}: {m['fio ' + way]:.2f} GB/s "
          f"({spread('fio ' + way)}) | {m[way] / m['fio ' + way]:.2f} |")
