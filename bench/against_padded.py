#!/usr/bin/env python3
"""Documents of different lengths: packed by Strata beside PyTorch with transformers, padded to the longest of a batch.

    bench/against_padded.py --python PYTHON_WITH_TRANSFORMERS [--rounds 3] [--steps 6] [--only NAME ...] > docs/results/X.md

Both start from the same config.json with random weights, take the same lengths in the same order, use two threads, and
keep masters and moments in fp32. A rate counts tokens of documents, not of padding. Runs alternate; medians are
printed. Needs build/strata (scripts/build.sh).
"""
import argparse, datetime, json, os, platform, random, resource, statistics, subprocess, sys, tempfile, time

SHAPES = {
    "smollm2-135m": dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=576, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536, vocab_size=49152,
                         max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000, tie_word_embeddings=True),
}
# name, shape, dtype, shortest and longest document, documents per padded batch, tokens per packed sequence
CASES = [("SmolLM2-135M, bf16", "smollm2-135m", "bf16", 20, 400, 8, 1024)]


def peer(folder, dtype, lengths, batch, steps):
    """One process of PyTorch: prints tokens per second and its peak resident set."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.set_num_threads(os.cpu_count())
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rates = []
    for step in range(steps):
        of = [lengths[(step * batch + i) % len(lengths)] for i in range(batch)]
        ids = torch.randint(0, 256, (batch, max(of)))
        mask = torch.arange(max(of))[None, :] < torch.tensor(of)[:, None]
        labels = ids.masked_fill(~mask, -100)
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rates.append((sum(of) - batch, time.perf_counter() - begin))
    timed = rates[2:]
    print(json.dumps({"tokens_per_s": sum(r[0] for r in timed) / sum(r[1] for r in timed),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--peer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        folder, dtype, lengths, batch, steps = options.peer
        return peer(folder, dtype, json.load(open(lengths)), int(batch), int(steps))

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
    scratch = tempfile.mkdtemp()
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

    def run(command):
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def ours(model, dtype, tokens, packing, seq):
        summary, steps = os.path.join(scratch, "s.json"), os.path.join(scratch, "s.jsonl")
        command = [strata, "train", "--force"]
        for s in [f"model.path={model}", "model.init=random", f"data.train={tokens}", "data.any_tokenizer=true",
                  f"data.packing={packing}", f"data.seq_len={seq}", f"training.precision={dtype}",
                  "training.micro_batch_size=2", f"training.max_steps={options.steps}", f"report.summary={summary}",
                  f"report.jsonl={steps}", "control.listen=off"]:
            command += ["--set", s]
        run(command)
        timed = [json.loads(line) for line in open(steps)][2:]
        rate = sum(l["labels"] for l in timed) / sum(l["step_ms"] for l in timed) * 1e3
        return rate, max(json.load(open(summary))["process_peak_rss_bytes"])

    def tokens_of(name, lengths):
        """Documents of these lengths, in bytes and thus in byte tokens; the end-of-text token is one of them."""
        draw, text, out = random.Random(1), os.path.join(scratch, name + ".jsonl"), os.path.join(scratch, name + ".bin")
        with open(text, "w") as f:
            for n in lengths:
                f.write(json.dumps({"text": "".join(chr(draw.randrange(97, 123)) for _ in range(n - 1))}) + "\n")
        run([strata, "tokenize", "--tokenizer", "byte", "-o", out, text])
        return out

    rows = []
    for name, shape, dtype, shortest, longest, batch, seq in CASES:
        if options.only and name not in options.only:
            continue
        model = os.path.join(scratch, shape)
        os.makedirs(model, exist_ok=True)
        json.dump(SHAPES[shape], open(os.path.join(model, "config.json"), "w"))
        draw = random.Random(0)
        lengths = [draw.randrange(shortest, longest + 1) for _ in range(2000)]
        lengths_file = os.path.join(scratch, "lengths.json")
        json.dump(lengths, open(lengths_file, "w"))
        mixed, whole = tokens_of("mixed", lengths), tokens_of("whole", [seq] * 400)
        got, want, stream, single = [], [], [], []
        for _ in range(options.rounds):
            got.append(ours(model, dtype, mixed, "documents", seq))
            result = json.loads(run([options.python, os.path.abspath(__file__), "--peer", model, dtype, lengths_file,
                                     str(batch), str(options.steps)]).splitlines()[-1])
            want.append((result["tokens_per_s"], result["rss"]))
            stream.append(ours(model, dtype, whole, "stream", seq))
            single.append(ours(model, dtype, whole, "documents", seq))
        median = lambda v, i: statistics.median(x[i] for x in v)
        rows.append((name, *(median(v, i) for v in (got, want) for i in (0, 1)), median(stream, 0), median(single, 0)))
        print(rows[-1], file=sys.stderr, flush=True)

    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    print(f"# Documents of different lengths, packed, beside PyTorch with transformers, padded\n\n{datetime.date.today()}, "
          f"{cpu}, {os.cpu_count()} cores; `bench/against_padded.py --rounds {options.rounds} --steps {options.steps}`: "
          "alternating, medians over rounds;\nlabel tokens per second from the third step on. The last two columns are "
          "sequences of one document each, as a stream and packed.\n")
    print("| run | Strata tokens/s | PyTorch | ratio | Strata peak RSS | PyTorch | ratio | stream | one document | ratio |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for name, t, r, u, s, a, b in rows:
        print(f"| {name} | {t:.0f} | {u:.0f} | {t / u:.2f} | {r / 1e9:.2f} GB | {s / 1e9:.2f} GB | {r / s:.2f} | {a:.0f} | "
              f"{b:.0f} | {b / a:.3f} |")


if __name__ == "__main__":
    main()
