#!/usr/bin/env python3
"""The loss of a model in NF4, computed in bf16 by Strata and by transformers with bitsandbytes, against fp64.

    bench/nf4_error.py --python PYTHON [--steps 300] [--batches 20] [--layers 12] [--seed 1] [--folder DIR]
    bench/nf4_error.py --python PYTHON --model DIR [--batches 20] [--folder DIR]

PYTHON has torch, transformers and bitsandbytes (this script runs itself with it). The model is a Llama of SmolLM2's
proportions that is trained on this repository's sources or, with --model, the Llama in DIR (bf16, with its tokenizer),
which reads this repository's pages. bitsandbytes quantises and saves it, and every row of the table reads these codes.
Batches have 2 sequences of 256 tokens. "exact" is fp64 with the codes' values. "rounded" is fp64 with these values
rounded to bf16, as bitsandbytes and Strata round them for a product in bf16. Prints a Markdown table. Needs
build/strata.
"""
import argparse, array, glob, hashlib, json, os, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--steps", type=int, default=300)
ap.add_argument("--batches", type=int, default=20)
ap.add_argument("--layers", type=int, default=12)
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--model")
ap.add_argument("--folder")  # keeps the model and the peer's losses; with the same options and text they are read again
ap.add_argument("--peer")  # runs the peer and writes its results to this folder
a = ap.parse_args()
SEQ, ROWS = 256, 2
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")


def train(folder, to):
    import numpy, torch, transformers
    torch.manual_seed(a.seed)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=192, intermediate_size=512, num_hidden_layers=a.layers,
                                      num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=SEQ,
                                      rope_theta=1e5, tie_word_embeddings=True)
    text = torch.from_numpy(numpy.fromfile(f"{folder}/train.bin", dtype=numpy.uint16).astype(numpy.int64))
    model = transformers.LlamaForCausalLM(config)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(a.steps):
        for group in opt.param_groups:
            group["lr"] = 2e-3 * min((step + 1) / 20, 1) * (1 - step / a.steps)
        at = torch.randint(len(text) - SEQ - 1, (8,))
        x = torch.stack([text[i:i + SEQ] for i in at])
        loss = model(x, labels=x).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    model.to(torch.bfloat16).save_pretrained(to)


def peer(folder):
    import numpy, torch, transformers, bitsandbytes
    source = a.model or f"{folder}/model"
    if not a.model:
        train(folder, source)

    quantised = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                bnb_4bit_compute_dtype=torch.bfloat16)
    packed = transformers.AutoModelForCausalLM.from_pretrained(source, quantization_config=quantised,
                                                               dtype=torch.bfloat16, device_map="cpu").eval()
    packed.save_pretrained(f"{folder}/nf4")

    def unpacked(rounded, dtype):
        out = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).to(dtype).eval()
        linear = dict(out.named_modules())
        for name, module in packed.named_modules():
            if isinstance(module, bitsandbytes.nn.Linear4bit):
                state = module.weight.quant_state
                kept, state.dtype = state.dtype, torch.float32
                values = bitsandbytes.functional.dequantize_4bit(module.weight.data, state)
                state.dtype = kept
                linear[name].weight.data = (values.to(torch.bfloat16) if rounded else values).to(dtype)
        return out

    def losses(model):
        out = []
        for i in range(a.batches):
            tokens = torch.from_numpy(numpy.fromfile(f"{folder}/batch{i}.bin", dtype=numpy.uint16).astype(numpy.int64))
            rows = [tokens[r * SEQ:(r + 1) * SEQ + 1] for r in range(ROWS)]
            with torch.no_grad():
                logits = model(torch.stack([r[:-1] for r in rows])).logits
            logits = logits if logits.dtype == torch.float64 else logits.float()
            labels = torch.stack([r[1:] for r in rows]).flatten()
            out.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels).item())
        return out

    json.dump({"exact": losses(unpacked(False, torch.float64)), "rounded": losses(unpacked(True, torch.float64)),
               "torch, fp32": losses(unpacked(False, torch.float32)),
               "torch, bf16, weights unpacked first": losses(unpacked(True, torch.bfloat16)),
               "transformers + bitsandbytes, bf16": losses(packed)}, open(f"{folder}/losses.json", "w"))


# The text's tokens: bytes for the model that is trained here.
def text(folder):
    files = sorted(glob.glob(f"{root}/*.md") + glob.glob(f"{root}/docs/*.md") if a.model else
                   glob.glob(f"{root}/*/**/*.cc", recursive=True))
    tokens = array.array("H")
    if not a.model:
        tokens.extend(b"".join(open(f, "rb").read() for f in files))
        return tokens
    if json.load(open(f"{a.model}/config.json"))["vocab_size"] >= 65536:
        sys.exit(f"{a.model} has 65,536 tokens or more: this script reads two bytes per token")
    subprocess.run([strata, "tokenize", "--tokenizer", a.model, "--force", "--out", f"{folder}/text.bin", *files],
                   check=True, capture_output=True)
    tokens.frombytes(open(f"{folder}/text.bin", "rb").read())
    return tokens


# Of the names and contents of the files that transformers makes the model of.
def hash_of(model):
    out = hashlib.sha256()
    for path in sorted(glob.glob(f"{model}/*.json") + glob.glob(f"{model}/*.safetensors")):
        out.update(f"{os.path.basename(path)} {os.path.getsize(path)}\n".encode())
        with open(path, "rb") as f:
            while part := f.read(1 << 24):
                out.update(part)
    return out.hexdigest()


def ours(folder, precision):
    out = []
    for i in range(a.batches):
        values = [f"model.path={folder}/nf4", f"data.validation={folder}/batch{i}.bin", f"data.seq_len={SEQ}",
                  f"training.micro_batch_size={ROWS}", f"training.precision={precision}"]
        subprocess.run([strata, "eval", "--json", f"{folder}/ours.json"] + [x for v in values for x in ("--set", v)],
                       check=True, capture_output=True)
        out.append(json.load(open(f"{folder}/ours.json"))["loss"])
    return out


def main():
    folder = a.folder or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    size = ROWS * SEQ + 1
    held = a.batches * size  # from the middle of the text
    tokens = text(folder)
    middle = len(tokens) // 2
    parts = {"train": tokens[:middle] + tokens[middle + held:]}
    for i in range(a.batches):
        parts[f"batch{i}"] = tokens[middle + i * size:][:size]
    for name, part in parts.items():
        with open(f"{folder}/{name}.bin", "wb") as f:
            part.tofile(f)
    options = {"steps": a.steps, "batches": a.batches, "layers": a.layers, "seed": a.seed}
    hashes = {"text": hashlib.sha256(tokens.tobytes()).hexdigest()}
    if a.model:
        options["model"] = a.model
        hashes["weights"] = hash_of(a.model)
    made_with = json.dumps(options | hashes)
    record = f"{folder}/made_with.json"  # written last: a folder without it is not complete
    if os.path.exists(record) and open(record).read() == made_with:
        print(f"{folder}/losses.json has these options and this text already: read again", file=sys.stderr)
    else:
        if os.path.exists(record):
            os.remove(record)
        subprocess.run([a.python, os.path.abspath(__file__), "--peer", folder] +
                       [word for name, value in options.items() for word in (f"--{name}", str(value))], check=True)
        with open(record, "w") as f:
            f.write(made_with)
    losses = json.load(open(f"{folder}/losses.json"))
    for precision in ("fp32", "bf16"):
        losses[f"strata, {precision}"] = ours(folder, precision)
    mean = lambda values: sum(values) / len(values)
    print(f"| {a.model or f'{a.layers} layers'}, {a.batches} batches, thousandths | mean loss | mean difference from exact | mean distance "
          "from exact | from rounded | largest from rounded |")
    print("|---|---|---|---|---|---|")
    for name, own in losses.items():
        by = {of: [1e3 * (x - y) for x, y in zip(own, losses[of])] for of in ("exact", "rounded")}
        far = {of: [abs(d) for d in by[of]] for of in by}
        print(f"| {name} | {mean(own):.5f} | {mean(by['exact']):+.3f} | {mean(far['exact']):.3f} | {mean(far['rounded']):.3f} "
              f"| {max(far['rounded']):.3f} |")


if a.peer:
    peer(a.peer)
else:
    main()
