#!/usr/bin/env python3
"""What bitsandbytes makes of a matrix, and of the models of tests/golden/llama and gpt2: NF4 with double quantisation.

    pip install torch transformers bitsandbytes accelerate safetensors numpy
    python make_nf4.py

Writes nf4/matrix.safetensors: a matrix, its codes and scales, with double quantisation and without, and what they are
worth in fp32 and bf16; nf4/llama and nf4/gpt2: the model as transformers saves it after loading it in 4 bits,
recipe.toml, and expected.json and final.safetensors of a run that trains all but the quantised matrices; nf4/head: a
model whose output layer is in 4 bits, too, and the values of that layer.
"""
import json, os, shutil, tempfile, tomllib
import bitsandbytes.functional as bnb
import numpy as np, torch, torch.nn.functional as F, transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "nf4")


def matrix():
    torch.manual_seed(5)
    weights = (torch.randn(67, 252) * torch.rand(67, 1)).bfloat16()  # two blocks of 16,384, no whole ones of 64
    out = {"weights": weights}
    for name, double in (("nf4", True), ("nf4_plain", False)):
        codes, state = bnb.quantize_4bit(weights, blocksize=64, compress_statistics=double, quant_type="nf4")
        out[f"{name}.codes"] = codes.flatten()
        out[f"{name}.scales"] = state.absmax
        if double:
            out[f"{name}.shared"] = state.state2.absmax
            out[f"{name}.map"] = state.state2.code
            out[f"{name}.offset"] = state.offset.reshape(1)
        for dtype in (torch.float32, torch.bfloat16) if double else (torch.bfloat16,):
            state.dtype = dtype
            out[f"{name}.{str(dtype)[6:]}"] = bnb.dequantize_4bit(codes, state)
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, os.path.join(OUT, "matrix.safetensors"))


def run(family, frozen):
    source, folder = os.path.join(HERE, family), os.path.join(OUT, family)
    os.makedirs(folder, exist_ok=True)
    quantised = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
    load = lambda path, **more: transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **more)
    shutil.rmtree(os.path.join(folder, "model"), ignore_errors=True)
    load(os.path.join(source, "model"), quantization_config=quantised).save_pretrained(os.path.join(folder, "model"))
    # The run trains with the dequantised matrices. bitsandbytes' CPU kernel reads rows of 48 and 80 elements wrongly,
    # so they are passed as one row.
    model, read = load(os.path.join(source, "model")).train(), load(os.path.join(folder, "model"))
    layers, others = dict(model.named_modules()), dict(read.named_parameters())
    for name, p in others.items():
        module = layers[name.rsplit(".", 1)[0]]
        if p.is_floating_point():
            continue
        state, shape = p.quant_state, module.weight.shape
        state.shape = torch.Size([1, shape.numel()])
        values = bnb.dequantize_4bit(p.data, state)
        # A Conv1D is quantised as [out, in].
        values = values.reshape(shape[1], shape[0]).T if family == "gpt2" else values.reshape(shape)
        module.weight = torch.nn.Parameter(values.contiguous(), requires_grad=False)
    recipe = tomllib.load(open(os.path.join(source, "recipe.toml"), "rb"))
    training, adam, scheduler = recipe["training"], recipe["optimizer"], recipe["scheduler"]
    toks = np.fromfile(os.path.join(source, "tokens.bin"), "<u2").astype(np.int64)
    t, b, m = recipe["data"]["seq_len"], training["micro_batch_size"], training["gradient_accumulation_steps"]
    steps, sequences = training["max_steps"], (len(toks) - 1) // t
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups = [dict(params=[p for p in trained.values() if p.dim() >= 2], weight_decay=adam["weight_decay"]),
              dict(params=[p for p in trained.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=adam["learning_rate"], betas=tuple(adam["betas"]), eps=adam["eps"])

    def rate(step):
        warmup, floor = scheduler["warmup_steps"], scheduler["min_lr_ratio"]
        if step <= warmup:
            return adam["learning_rate"] * step / warmup
        part = (step - warmup) / max(1, steps - warmup)
        if scheduler["name"] == "linear":
            return adam["learning_rate"] * (1 - (1 - floor) * part)
        return adam["learning_rate"] * (floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * part)))

    rows = []
    for step in range(1, steps + 1):
        total = 0.0
        for micro_batch in range((step - 1) * m, step * m):
            first = [((micro_batch * b + i) % sequences) * t for i in range(b)]
            x = torch.from_numpy(np.stack([toks[j:j + t] for j in first]))
            y = torch.from_numpy(np.stack([toks[j + 1:j + t + 1] for j in first]))
            logits = model(x).logits
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1), reduction="sum") / (b * t * m)
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), training["max_grad_norm"])
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rows.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=rate(step)))
    json.dump(dict(family=family, transformers=transformers.__version__, torch=torch.__version__, steps=rows),
              open(os.path.join(folder, "expected.json"), "w"), indent=1)
    save_file({name: p.detach().contiguous() for name, p in trained.items()}, os.path.join(folder, "final.safetensors"))
    text = open(os.path.join(source, "recipe.toml")).read().replace('"tokens.bin"', f'"../../{family}/tokens.bin"')
    text = text.replace("[data]", 'frozen_format = "nf4"\n[data]', 1)
    text = text.replace("[training]\n", f"[training]\nfreeze = {json.dumps(frozen)}\n")
    open(os.path.join(folder, "recipe.toml"), "w").write(text)
    print(rows[0], rows[-1])


# Without a list of modules, transformers does not quantise the output layer.
def head():
    folder = os.path.join(OUT, "head")
    torch.manual_seed(6)
    config = transformers.LlamaConfig(vocab_size=130, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
                                      tie_word_embeddings=False)
    quantised = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32,
                                                llm_int8_skip_modules=["model.embed_tokens"])
    shutil.rmtree(os.path.join(folder, "model"), ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        transformers.LlamaForCausalLM(config).save_pretrained(plain)
        model = transformers.AutoModelForCausalLM.from_pretrained(plain, quantization_config=quantised,
                                                                  dtype=torch.float32)
    model.save_pretrained(os.path.join(folder, "model"))
    values = bnb.dequantize_4bit(model.lm_head.weight.data, model.lm_head.weight.quant_state)
    save_file({"lm_head.weight": values.contiguous()}, os.path.join(folder, "head.safetensors"))


matrix()
head()
run("llama", ["*_proj.weight"])
run("gpt2", ["*.c_*.weight"])
