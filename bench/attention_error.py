#!/usr/bin/env python3
"""Errors of attention in bf16, Strata's and PyTorch's, against fp64 over random shapes; prints a Markdown table.

    bench/attention_error.py [--call build/bench/attention_call] [--shapes 50] [--seed 1] > docs/results/attention-error-X.md

The error of an output or a gradient is |x - x64| / |x64| in the Euclidean norm. PyTorch's is that of
F.scaled_dot_product_attention on the CPU. Shapes have windows, both directions, packed documents, grouped heads, and
heads of 32 to 256. Exits with 1 if one of Strata's errors exceeds PyTorch's by more than 2%, which is how much other
roundings of the same size may differ for one shape. The geometric mean over all shapes must not be larger at all.
"""
import argparse, datetime, math, os, random, subprocess, sys, tempfile
import torch, torch.nn.functional as F

ap = argparse.ArgumentParser()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ap.add_argument("--call", default=os.path.join(root, "build/bench/attention_call"))
ap.add_argument("--shapes", type=int, default=50)
ap.add_argument("--seed", type=int, default=1)
a = ap.parse_args()
pick = random.Random(a.seed)
torch.manual_seed(a.seed)
scratch = tempfile.mkdtemp()


def shape(i):
    kv, seq = pick.choice([1, 2, 3]), pick.randint(17, 700)
    documents, kinds = [seq], ["causal", "window", "bidirectional", "packed", "packed window"]
    kind = kinds[i % len(kinds)]
    if kind.startswith("packed"):
        cuts = sorted(pick.sample(range(1, seq), min(seq - 1, pick.randint(1, 5))))
        documents = [e - b for b, e in zip([0] + cuts, cuts + [seq])]
    return dict(kind=kind, batch=pick.choice([1, 2]), seq=seq, heads=kv * pick.choice([1, 2, 4]), kv_heads=kv,
                head_dim=pick.choice([32, 64, 80, 96, 128, 256]), causal=kind != "bidirectional", documents=documents,
                window=pick.randint(8, 300) if "window" in kind else 0)


def mask(s):
    document = torch.repeat_interleave(torch.arange(len(s["documents"])), torch.tensor(s["documents"]))
    rows = torch.arange(s["seq"])
    seen = document[:, None] == document[None, :]
    if s["causal"]:
        seen &= rows[None, :] <= rows[:, None]
    if s["window"]:
        seen &= rows[None, :] > rows[:, None] - s["window"]
    return seen


def reference(q, k, v, g, seen):
    """Attention in fp64, by its definition. The heads of a group share a key head."""
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    key, value = (x.repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
    scores = q.transpose(1, 2) @ key.transpose(-1, -2) / math.sqrt(q.shape[-1])
    o = (scores.masked_fill(~seen, -math.inf).softmax(-1) @ value).transpose(1, 2)
    return (o,) + torch.autograd.grad(o, (q, k, v), g.double())


def pytorch(q, k, v, g, seen, s):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    how = dict(is_causal=True) if s["kind"] == "causal" else dict(attn_mask=None if s["kind"] == "bidirectional" else seen)
    o = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=q.shape[2] != k.shape[2],
                                       **how).transpose(1, 2)
    return (o,) + torch.autograd.grad(o, (q, k, v), g)


def ours(q, k, v, g, s):
    before, after = os.path.join(scratch, "in"), os.path.join(scratch, "out")
    head = torch.tensor([s["batch"], s["seq"], s["heads"], s["kv_heads"], s["head_dim"], s["window"], s["causal"], 1])
    ranges, first = [], 0
    for rows in s["documents"]:
        ranges += [[first, first + rows]] * rows
        first += rows
    ranges = torch.tensor(ranges * s["batch"], dtype=torch.int32)
    with open(before, "wb") as f:
        f.write(head.numpy().tobytes() + ranges.numpy().tobytes())
        for x in (q, k, v, g):
            f.write(x.contiguous().view(torch.int16).numpy().tobytes())
    subprocess.run([a.call, before, after], check=True)
    flat = torch.frombuffer(bytearray(open(after, "rb").read()), dtype=torch.bfloat16)
    parts = flat.split([q.numel(), q.numel(), k.numel(), v.numel()])
    return tuple(p.view(x.shape) for p, x in zip(parts, (q, q, k, v)))


names, ratios, worst, rows = ("o", "dq", "dk", "dv"), {}, {}, []
for i in range(a.shapes):
    s = shape(i)
    make = lambda heads: torch.randn(s["batch"], s["seq"], heads, s["head_dim"]).bfloat16()
    q, k, v, g = make(s["heads"]), make(s["kv_heads"]), make(s["kv_heads"]), make(s["heads"])
    seen = mask(s)
    exact, mine, theirs = reference(q, k, v, g, seen), ours(q, k, v, g, s), pytorch(q, k, v, g, seen, s)
    cells = []
    for name, x, y, z in zip(names, exact, mine, theirs):
        error = lambda t: float((t.double() - x).norm() / x.norm())
        ratios.setdefault(name, []).append(error(y) / error(z))
        cells.append(f"{error(y) * 1e3:.3f} / {error(z) * 1e3:.3f}")
    rows.append(f"| {s['kind']} | {s['batch']} x {s['seq']} | {s['heads']} / {s['kv_heads']} x {s['head_dim']} | "
                f"{s['window'] or ''} | {' | '.join(cells)} |")
    print(rows[-1], file=sys.stderr, flush=True)

cpu = next(l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name"))
print(f"# Errors of bf16 attention, Strata's and PyTorch's\n\n{datetime.date.today()}, {cpu}, PyTorch {torch.__version__}; "
      f"`bench/attention_error.py --shapes {a.shapes} --seed {a.seed}`. Each cell is |x - x64| / |x64| in thousandths, "
      "Strata's / PyTorch's; q, k, v and the output's gradient are normal, rounded to bf16.\n")
print("| ratio of errors | " + " | ".join(names) + " |\n|---|---|---|---|---|")
mean = {n: math.exp(sum(map(math.log, r)) / len(r)) for n, r in ratios.items()}
print("| geometric mean | " + " | ".join(f"{mean[n]:.3f}" for n in names) + " |")
print("| largest | " + " | ".join(f"{max(ratios[n]):.3f}" for n in names) + " |\n")
print("| kind | rows | heads / kv heads x size | window | o | dq | dk | dv |\n|---|---|---|---|---|---|---|---|")
print("\n".join(rows))
sys.exit(any(m > 1 for m in mean.values()) or any(max(r) > 1.02 for r in ratios.values()))
