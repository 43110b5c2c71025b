#!/usr/bin/env python3
"""Strata's I/O engine compared with fio in the same folder: alternating, medians; prints a Markdown table.

    bench/against_fio.py --dir DIR [--rounds 5] [--size 1GiB] > docs/results/X.md

fio (Debian's package fio) runs with --ioengine=io_uring --direct=1 --bs=1M --iodepth=32, on a file that already exists,
like the swap file. Needs build/strata (scripts/build.sh).
"""
import argparse, datetime, json, os, platform, statistics, subprocess, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--dir", required=True)
ap.add_argument("--rounds", type=int, default=5)
ap.add_argument("--size", default="1GiB")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")


def ours(scratch):
    out = os.path.join(scratch, "io.json")
    subprocess.run([strata, "bench", "io", "--dir", a.dir, "--size", a.size, "--rounds", "1", "--json", out], check=True,
                   stdout=subprocess.DEVNULL)
    r = json.load(open(out))
    return r["write_gb_per_s"], r["read_gb_per_s"], r["rung"]


def theirs(file, mode):
    text = subprocess.run(["fio", "--name=strata", f"--filename={file}", f"--size={a.size.removesuffix('iB')}",
                           "--ioengine=io_uring", "--direct=1", "--bs=1M", "--iodepth=32", f"--rw={mode}", "--overwrite=1",
                           "--refill_buffers=0", "--output-format=json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text[text.index("{"):])["jobs"][0][mode]["bw_bytes"] / 1e9


mine, peer = [], []
with tempfile.TemporaryDirectory(dir=a.dir) as scratch:
    file = os.path.join(scratch, "fio.dat")
    theirs(file, "write")  # creates the file
    for _ in range(a.rounds):
        mine.append(ours(scratch))
        peer.append((theirs(file, "write"), theirs(file, "read")))

median = lambda rows, i: statistics.median(row[i] for row in rows)
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
fio = subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip()
print(f"# The I/O engine compared with {fio}\n\n{datetime.date.today()}, {cpu}, {os.cpu_count()} cores; "
      f"`bench/against_fio.py --rounds {a.rounds} --size {a.size}`: alternating, medians.\nMode of I/O: {mine[0][2]}.\n")
print("| GB/s | Strata | fio | ratio | Strata from, to | fio from, to |\n|---|---|---|---|---|---|")
for i, name in enumerate(["write", "read"]):
    s, f = median(mine, i), median(peer, i)
    low_high = lambda rows: f"{min(r[i] for r in rows):.2f}, {max(r[i] for r in rows):.2f}"
    print(f"| {name} | {s:.2f} | {f:.2f} | {s / f:.2f} | {low_high(mine)} | {low_high(peer)} |")
