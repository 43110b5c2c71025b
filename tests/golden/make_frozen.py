#!/usr/bin/env python3
"""Trains the models of tests/golden/gpt2 and llama in PyTorch with some tensors frozen (requires_grad = False).

    pip install torch transformers safetensors numpy
    python make_frozen.py

Writes frozen/FAMILY/: recipe.toml, the family's own with training.freeze; expected.json, every step's loss, gradient
norm and rate; final.safetensors, the trained tensors after the last step.
"""
import fnmatch, json, os, tomllib
import numpy as np, torch, transformers
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
FREEZE = {
    "gpt2": ["transformer.wpe.*", "*.ln_1.weight", "*.h.0.mlp.*", "*.h.1.attn.c_attn.bias", "transformer.ln_f.bias"],
    "llama": ["model.embed_tokens.*", "model.layers.0.*", "*.k_proj.weight", "*.up_proj.weight", "model.norm.weight"],
}


def train(family, freeze):
    folder = os.path.join(HERE, family)
    recipe = tomllib.load(open(os.path.join(folder, "recipe.toml"), "rb"))
    run, adam, scheduler = recipe["training"], recipe["optimizer"], recipe["scheduler"]
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "model")).float().train()
    toks = np.fromfile(os.path.join(folder, "tokens.bin"), "<u2").astype(np.int64)
    t, b, m = recipe["data"]["seq_len"], run["micro_batch_size"], run["gradient_accumulation_steps"]
    steps, vocabulary, sequences = run["max_steps"], model.config.vocab_size, (len(toks) - 1) // t
    trained = {}
    for name, parameter in model.named_parameters():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in freeze):
            parameter.requires_grad_(False)
        else:
            trained[name] = parameter
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
            loss = F.cross_entropy(model(x).logits.view(-1, vocabulary), y.view(-1), reduction="sum") / (b * t * m)
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), run["max_grad_norm"])
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rows.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=rate(step)))
    out = os.path.join(HERE, "frozen", family)
    os.makedirs(out, exist_ok=True)
    json.dump(dict(family=family, transformers=transformers.__version__, torch=torch.__version__, steps=rows),
              open(os.path.join(out, "expected.json"), "w"), indent=1)
    save_file({name: p.detach().contiguous() for name, p in trained.items()}, os.path.join(out, "final.safetensors"))
    text = open(os.path.join(folder, "recipe.toml")).read()
    text = text.replace('"model"', f'"../../{family}/model"').replace('"tokens.bin"', f'"../../{family}/tokens.bin"')
    text = text.replace("[training]\n", f"[training]\nfreeze = {json.dumps(freeze)}\n")
    open(os.path.join(out, "recipe.toml"), "w").write(text)
    print(family, rows[0], rows[-1])


for family, freeze in FREEZE.items():
    train(family, freeze)
