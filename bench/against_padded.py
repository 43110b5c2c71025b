#!/usr/bin/env python3
"""Documents of different lengths: packed by Strata, compared with PyTorch and transformers, padded to the longest of a batch.

    bench/against_padded.py --python PYTHON_WITH_TRANSFORMERS [--rounds 3] [--steps 6] [--only NAME ...] > docs/results/X.md

Both start from the same config.json with random weights, take the same lengths, use all cores (two on the machine of
the results), drop out as configured, and keep masters and moments in fp32. A rate counts tokens of documents, not of
padding. Runs alternate; medians are printed. `--list` prints the names. Needs build/strata (scripts/build.sh).
"""
import argparse, datetime, json, os, platform, random, resource, statistics, subprocess, sys, tempfile, time

SHAPES = {
    "smollm2-135m": dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=576, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536, vocab_size=49152,
                         max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000, tie_word_embeddings=True),
    "minilm": dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=384,
                   num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, vocab_size=30522,
                   max_position_embeddings=512),
    "bert-base": dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=768,
                      num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=30522,
                      max_position_embeddings=512),
    "roberta-base": dict(model_type="roberta", architectures=["RobertaForMaskedLM"], hidden_size=768,
                         num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=50265,
                         max_position_embeddings=514, type_vocab_size=1, pad_token_id=1),
}
# What the steps learn: the next token, a class per document, masked tokens.
NEXT, CLASS, MASKED = "next token", "class", "masked tokens"
LABELS = 2
# Name, shape, what, dtype, shortest and longest document, documents per padded batch, tokens per packed sequence,
# sequences per step (which hold about as many documents as a batch).
CASES = [
    ("SmolLM2-135M, bf16", "smollm2-135m", NEXT, "bf16", 20, 400, 8, 1024, 2),
    ("MiniLM, classes, bf16", "minilm", CLASS, "bf16", 16, 256, 16, 512, 4),
    ("MiniLM, classes, fp32", "minilm", CLASS, "fp32", 16, 256, 16, 512, 4),
    ("BERT base, classes, bf16", "bert-base", CLASS, "bf16", 16, 256, 16, 512, 4),
    ("BERT base, classes, fp32", "bert-base", CLASS, "fp32", 16, 256, 16, 512, 4),
    ("RoBERTa base, masked words, bf16", "roberta-base", MASKED, "bf16", 16, 256, 16, 512, 4),
]
WIDTH = 2  # bytes per token in the files: all vocabularies here are below 65,536
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def peer(folder, what, dtype, lengths, batch, steps):
    """One process of PyTorch: prints tokens per second and its peak resident set."""
    import torch, transformers
    torch.set_num_threads(os.cpu_count())
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = {NEXT: "CausalLM", CLASS: "SequenceClassification", MASKED: "MaskedLM"}[what]
    model = getattr(transformers, "AutoModelFor" + kind).from_config(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rates = []
    for step in range(steps):
        of = [lengths[(step * batch + i) % len(lengths)] for i in range(batch)]
        mask = torch.arange(max(of))[None, :] < torch.tensor(of)[:, None]
        ids = torch.randint(len(SPECIALS), 256 if what == NEXT else config.vocab_size, mask.shape)
        if what == NEXT:
            labels = ids.masked_fill(~mask, -100)
        elif what == CLASS:
            ids, labels = ids.masked_fill(~mask, config.pad_token_id), torch.randint(0, LABELS, (batch,))
        else:  # chosen as in DataCollatorForLanguageModeling
            chosen = (torch.rand(mask.shape) < 0.15) & mask
            labels = ids.masked_fill(~chosen, -100)
            ids = ids.masked_fill(~mask, config.pad_token_id)
            ids = ids.masked_fill(chosen & (torch.rand(mask.shape) < 0.8), SPECIALS.index("[MASK]"))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rates.append((sum(of) - (batch if what == NEXT else 0), time.perf_counter() - begin))
    timed = rates[2:]
    print(json.dumps({"tokens_per_s": sum(r[0] for r in timed) / sum(r[1] for r in timed),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def write_tokenizer(folder, vocabulary):
    """A tokenizer of BERT's kind with its own words, one token each."""
    words = SPECIALS + [f"w{i}" for i in range(len(SPECIALS), vocabulary)]
    special = lambda id: {"SpecialToken": {"id": id, "type_id": 0}}
    sequence = lambda id, type: {"Sequence": {"id": id, "type_id": type}}
    added = [dict(id=i, content=w, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for i, w in enumerate(SPECIALS)]
    template = dict(type="TemplateProcessing", single=[special("[CLS]"), sequence("A", 0), special("[SEP]")],
                    pair=[special("[CLS]"), sequence("A", 0), special("[SEP]"), sequence("B", 1), special("[SEP]")],
                    special_tokens={w: dict(id=w, ids=[SPECIALS.index(w)], tokens=[w]) for w in ("[CLS]", "[SEP]")})
    model = dict(type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
                 vocab={w: i for i, w in enumerate(words)})
    json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=added,
                   normalizer=dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True,
                                   strip_accents=None, lowercase=True),
                   pre_tokenizer=dict(type="BertPreTokenizer"), post_processor=template,
                   decoder=dict(type="WordPiece", prefix="##", cleanup=True), model=model),
              open(os.path.join(folder, "tokenizer.json"), "w"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--peer", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        folder, what, dtype, lengths, batch, steps = options.peer
        return peer(folder, what, dtype, json.load(open(lengths)), int(batch), int(steps))
    if options.list:
        return print("\n".join(case[0] for case in CASES))
    unknown = set(options.only or []) - {case[0] for case in CASES}
    if unknown:
        sys.exit(f"no case is called {sorted(unknown)[0]}: --list names them")

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
    scratch = tempfile.mkdtemp()
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

    def run(command):
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def ours(model, what, dtype, tokens, packing, seq, micro_batch):
        summary, steps = os.path.join(scratch, "s.json"), os.path.join(scratch, "s.jsonl")
        command = [strata, "train", "--force"]
        sets = [f"model.path={model}", "model.init=random", f"data.train={tokens}", "data.any_tokenizer=true",
                f"data.packing={packing}", f"data.seq_len={seq}", f"training.precision={dtype}",
                f"training.micro_batch_size={micro_batch}", f"training.max_steps={options.steps}",
                f"report.summary={summary}", f"report.jsonl={steps}", "control.listen=off"]
        if what == CLASS:
            sets.append("training.objective=sequence_classification")
        for s in sets:
            command += ["--set", s]
        run(command)
        lines = [json.loads(line) for line in open(steps)]
        timed = lines[2:]
        per_step = statistics.mean(l["labels"] for l in timed)
        if what != NEXT:  # counts only the rows that belong to documents
            sequences = round(len(lines) * micro_batch / lines[-1]["epoch"])
            per_step = micro_batch * seq * (os.path.getsize(tokens) / WIDTH) / (sequences * seq)
        rate = per_step * len(timed) / sum(l["step_ms"] for l in timed) * 1e3
        return rate, max(json.load(open(summary))["process_peak_rss_bytes"])

    def tokens_of(name, model, what, lengths):
        """Documents of these lengths, including special tokens. For the next token: bytes and an end of text."""
        draw, text, out = random.Random(1), os.path.join(scratch, name + ".jsonl"), os.path.join(scratch, name + ".bin")
        words = SHAPES[os.path.basename(model)]["vocab_size"]
        with open(text, "w") as f:
            for n in lengths:
                if what == NEXT:
                    line = {"text": "".join(chr(draw.randrange(97, 123)) for _ in range(n - 1))}
                else:
                    of = (draw.randrange(len(SPECIALS), words) for _ in range(n - 2))
                    line = {"text": " ".join(f"w{i}" for i in of), "label": f"class {draw.randrange(LABELS)}"}
                f.write(json.dumps(line) + "\n")
        how = {NEXT: ["--tokenizer", "byte"], CLASS: ["--tokenizer", model, "--labels", "label"],
               MASKED: ["--tokenizer", model, "--add-special", "--no-eot"]}[what]
        run([strata, "tokenize", "--force", *how, "-o", out, text])
        return out

    rows = []
    for name, shape, what, dtype, shortest, longest, batch, seq, micro_batch in CASES:
        if options.only and name not in options.only:
            continue
        model = os.path.join(scratch, shape)
        os.makedirs(model, exist_ok=True)
        json.dump(SHAPES[shape], open(os.path.join(model, "config.json"), "w"))
        if what != NEXT:
            write_tokenizer(model, SHAPES[shape]["vocab_size"])
        draw = random.Random(0)
        lengths = [draw.randrange(shortest, longest + 1) for _ in range(2000)]
        lengths_file = os.path.join(scratch, "lengths.json")
        json.dump(lengths, open(lengths_file, "w"))
        mixed = tokens_of("mixed", model, what, lengths)
        whole = tokens_of("whole", model, what, [seq] * 400) if what == NEXT else None
        got, want, stream, single = [], [], [], []
        for _ in range(options.rounds):
            got.append(ours(model, what, dtype, mixed, "documents", seq, micro_batch))
            result = json.loads(run([options.python, os.path.abspath(__file__), "--peer", model, what, dtype,
                                     lengths_file, str(batch), str(options.steps)]).splitlines()[-1])
            want.append((result["tokens_per_s"], result["rss"]))
            if whole:
                stream.append(ours(model, what, dtype, whole, "stream", seq, micro_batch))
                single.append(ours(model, what, dtype, whole, "documents", seq, micro_batch))
        median = lambda v, i: statistics.median(x[i] for x in v)
        others = (median(stream, 0), median(single, 0)) if whole else (None, None)
        rows.append((name, *(median(v, i) for v in (got, want) for i in (0, 1)), *others))
        print(rows[-1], file=sys.stderr, flush=True)

    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    print(f"# Documents of different lengths, packed, compared with PyTorch and transformers, padded\n\n{datetime.date.today()}, "
          f"{cpu}, {os.cpu_count()} cores; `bench/against_padded.py --rounds {options.rounds} --steps {options.steps}`: "
          "alternating, medians over rounds;\ntokens of documents per second from the third step on. The last columns "
          "are sequences of one document each, as a stream and packed.\n")
    print("| run | Strata tokens/s | PyTorch | ratio | Strata peak RSS | PyTorch | ratio | stream | one document | ratio |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for name, t, r, u, s, a, b in rows:
        last = f"{a:.0f} | {b:.0f} | {b / a:.3f}" if a else "| |"
        print(f"| {name} | {t:.0f} | {u:.0f} | {t / u:.2f} | {r / 1e9:.2f} GB | {s / 1e9:.2f} GB | {r / s:.2f} | {last} |")


if __name__ == "__main__":
    main()
