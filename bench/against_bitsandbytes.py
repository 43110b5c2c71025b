#!/usr/bin/env python3
"""Strata's adamw8bit compared with bitsandbytes' AdamW8bit: the loss curve of a small GPT-2 on this repository's own text.

    bench/against_bitsandbytes.py --python PYTHON [--steps 200]

PYTHON has torch, transformers and bitsandbytes (this script runs itself with it). Both sides have the same weights,
batches, schedule, clipping and betas, and keep matrices of blocks in 8 bits and the rest in fp32. The noise of
bitsandbytes is the change of its curve if the initial weights are nudged by a hundred-thousandth. Below about 2e-5 of a
block's largest number, its CPU quantiser does not choose the nearest codes; "nearest codes" replaces that function.
Prints a Markdown table. Needs build/strata.
"""
import argparse, glob, json, math, os, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--nudges", type=int, default=3)
ap.add_argument("--peer")  # runs the peer and writes its losses to this folder
a = ap.parse_args()
SEQ, BATCH, RATE, WARMUP = 64, 8, 2e-3, 20
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def peer(folder):
    import numpy, torch, transformers, bitsandbytes
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=256, n_positions=SEQ, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0)
    start = transformers.GPT2LMHeadModel(config)
    start.save_pretrained(f"{folder}/model")
    state = {k: v.clone() for k, v in start.state_dict().items()}
    tokens = torch.from_numpy(numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.uint16).astype(numpy.int64))

    def run(eight, nudge):
        model = transformers.GPT2LMHeadModel(config)
        generator = torch.Generator().manual_seed(nudge)
        model.load_state_dict({k: v * (1 + 1e-5 * torch.randn(v.shape, generator=generator)) if nudge else v
                               for k, v in state.items()})
        named = list(model.named_parameters())
        in_blocks = [p for n, p in named if ".h." in n and p.dim() == 2]
        tables = [p for n, p in named if ".h." not in n and p.dim() == 2]
        vectors = [p for n, p in named if p.dim() == 1]
        args = dict(lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        opts = [torch.optim.AdamW([dict(params=tables, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)], **args),
                (bitsandbytes.optim.AdamW8bit if eight else torch.optim.AdamW)(in_blocks, weight_decay=0.1, **args)]
        losses = []
        for step in range(1, a.steps + 1):
            t = (step - WARMUP) / (a.steps - WARMUP)
            rate = RATE * (step / WARMUP if step <= WARMUP else 0.1 + 0.9 * (1 + math.cos(math.pi * t)) / 2)
            first = (step - 1) * BATCH
            rows = [tokens[(first + i) * SEQ:(first + i + 1) * SEQ + 1] for i in range(BATCH)]
            x, y = torch.stack([r[:-1] for r in rows]), torch.stack([r[1:] for r in rows])
            loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
            for o in opts:
                o.zero_grad()
                for g in o.param_groups:
                    g["lr"] = rate
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for o in opts:
                o.step()
            losses.append(loss.item())
        return losses

    curves = {"torch AdamW": run(False, 0), "bitsandbytes": run(True, 0)}
    for nudge in range(1, a.nudges + 1):
        curves[f"bitsandbytes, nudge {nudge}"] = run(True, nudge)

    def nearest(x, code, absmax, out, blocksize):
        blocks = x.reshape(-1, blocksize)
        absmax.copy_(blocks.abs().amax(1))
        parts = blocks / absmax.clamp(min=1e-38).unsqueeze(1)
        out.view(-1).copy_(torch.bucketize(parts.flatten(), (code[1:] + code[:-1]) / 2))

    from bitsandbytes.backends.cpu import ops
    ops._quant_blockwise_fp32_direct = nearest
    curves["bitsandbytes, nearest codes"] = run(True, 0)
    json.dump(curves, open(f"{folder}/curves.json", "w"))


def ours(folder, *sets):
    strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
    out = f"{folder}/ours.jsonl"
    if os.path.exists(out):
        os.remove(out)
    values = [f"model.path={folder}/model", f"data.train={folder}/tokens.bin", f"data.seq_len={SEQ}",
              "data.order=sequential", f"training.max_steps={a.steps}", f"training.micro_batch_size={BATCH}",
              "training.precision=fp32", f"optimizer.learning_rate={RATE}", f"scheduler.warmup_steps={WARMUP}",
              f"report.jsonl={out}", "device.threads=1", *sets]
    subprocess.run([strata, "train"] + [x for v in values for x in ("--set", v)], check=True, capture_output=True)
    return [json.loads(line)["loss"] for line in open(out)]


def main():
    folder = tempfile.mkdtemp()
    text = b"".join(open(f, "rb").read() for f in sorted(glob.glob(f"{root}/*/**/*.cc", recursive=True)))
    text = text[: (a.steps * BATCH + 1) * SEQ + 1]
    with open(f"{folder}/tokens.bin", "wb") as f:
        f.write(b"".join(bytes((byte, 0)) for byte in text))
    subprocess.run([a.python, os.path.abspath(__file__), "--peer", folder, "--steps", str(a.steps), "--nudges",
                    str(a.nudges)], check=True)
    curves = json.load(open(f"{folder}/curves.json"))
    curves["strata adamw"] = ours(folder)
    curves["strata adamw8bit"] = ours(folder, "optimizer.name=adamw8bit")
    curves["strata adamw, bf16 moments"] = ours(folder, "optimizer.moments=bf16")
    quarter = a.steps // 4
    print(f"| run ({a.steps} steps) | mean loss, last {quarter} steps | mean difference from bitsandbytes' curve "
          "| from that of nearest codes |")
    print("|---|---|---|---|")
    for name, curve in curves.items():
        far = [sum(abs(x - y) for x, y in zip(curve, curves[of])) / a.steps
               for of in ("bitsandbytes", "bitsandbytes, nearest codes")]
        print(f"| {name} | {sum(curve[-quarter:]) / quarter:.4f} | {far[0]:.5f} | {far[1]:.5f} |")


if a.peer:
    peer(a.peer)
else:
    main()
