#!/usr/bin/env python3
"""`strata tokenize` compared with the tokenizers library: every id of a large mixed text, and speed.

    bench/against_tokenizers.py [--size BYTES] [--vocab N] [--only KIND ...] [--rounds N] [--no-speed]

Trains a tokenizer of each kind (tests/golden/make_tokenizers.py) on the mixed text, encodes all of it with both, and
compares id by id. Then both, alternating, encode the same documents, a quarter of the text: the library's
encode_batch_fast in one thread, and ours with --threads 1, which reads JSONL and writes tokens, minus the time for
starting and loading. Speeds are per second of processor time, which other work on the machine disturbs less than wall
time; the last column uses wall time. Run it with a Python that has the packages tokenizers and sentencepiece. Prints a
Markdown table.
"""
import argparse, array, json, os, resource, statistics, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(root, "tests", "golden"))
import make_tokenizers as make  # noqa: E402

ap = argparse.ArgumentParser()
ap.add_argument("--size", type=int, default=5_000_000)
ap.add_argument("--vocab", type=int, default=16000)
ap.add_argument("--only", nargs="*")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--no-speed", action="store_true")
ap.add_argument("--keep", help="folder in which tokenizers are stored, and from which they are read if present")
a = ap.parse_args()
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
scratch = a.keep or tempfile.mkdtemp()
os.makedirs(scratch, exist_ok=True)


def tokens(path):
    side = json.load(open(path + ".json"))
    data = open(path, "rb").read()
    ids = array.array("H" if side["width"] == 2 else "I")
    ids.frombytes(data)
    assert len(ids) == side["count"]
    return ids.tolist()


def run(folder, threads, out, *inputs):
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([strata, "tokenize", "--tokenizer", folder, "--no-eot", "--threads", str(threads), "-o", out, *inputs],
                   check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, time.perf_counter() - began


text_path = os.path.join(scratch, "mixed.txt")
if not os.path.exists(text_path):
    made = make.mixed(a.size, 3)
    with open(text_path, "wb") as f:
        f.write(made)
raw = open(text_path, "rb").read()
text = raw.decode("utf-8", errors="replace")
docs = [text[i:i + 20000] for i in range(0, len(text), 20000)][::4]  # for speed
jsonl = os.path.join(scratch, "docs.jsonl")
with open(jsonl, "w") as f:
    f.writelines(json.dumps({"text": d}) + "\n" for d in docs)
empty = os.path.join(scratch, "small.jsonl")
with open(empty, "w") as f:
    f.write(json.dumps({"text": "a"}) + "\n")
learn = [text[:1500000], make.bible()[:1500000]]
print("| kind | ids compared | differing | library MB/s | Strata MB/s | ratio | Strata, 2 threads to 1 |")
print("|---|---|---|---|---|---|---|")
bad = 0
for kind, train in make.KINDS.items():
    if a.only and kind not in a.only:
        continue
    folder = os.path.join(scratch, kind)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        train(learn, a.vocab).save(path)
    tok = make.Tokenizer.from_file(path)
    out = os.path.join(scratch, kind + ".bin")
    run(folder, 2, out, text_path)
    got, want = tokens(out), tok.encode(text, add_special_tokens=False).ids
    differing = abs(len(got) - len(want)) + sum(x != y for x, y in zip(got, want))
    if differing:
        bad += 1
        at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
        print(kind, "first difference at", at, [tok.id_to_token(i) for i in got[at - 3:at + 5]],
              [tok.id_to_token(i) for i in want[at - 3:at + 5]], file=sys.stderr)
    row = [kind, len(want), differing]
    if not a.no_speed:
        theirs, one, two = [], [], []
        for _ in range(a.rounds):
            began = time.process_time()
            tok.encode_batch_fast(docs, add_special_tokens=False)
            theirs.append(time.process_time() - began)
            start = run(folder, 1, out, empty)
            first, second = run(folder, 1, out, jsonl), run(folder, 2, out, jsonl)
            one.append(first[0] - start[0])
            two.append((first[1] - start[1]) / (second[1] - start[1]))
        mb = sum(len(d.encode()) for d in docs) / 1e6
        t, o = mb / statistics.median(theirs), mb / statistics.median(one)
        row += [f"{t:.2f}", f"{o:.2f}", f"{o / t:.2f}", f"{statistics.median(two):.2f}"]
    print("| " + " | ".join(map(str, row)) + " |", flush=True)
sys.exit(bad)
