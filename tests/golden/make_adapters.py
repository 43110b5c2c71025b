#!/usr/bin/env python3
"""Trains LoRA adapters for the models of tests/golden/gpt2, llama and qwen3 with peft.

    pip install torch transformers peft safetensors numpy xxhash
    python make_adapters.py [FAMILY...]

It also trains the classifiers of class_runs/, with their complete heads. Writes adapters/FAMILY/: recipe.toml, the
family's own with adapter.path; adapter/, peft's folder before step 1; expected.json, every step's loss, gradient norm
and rate; final.safetensors, what is trained after the last step, by its names without peft's prefix.
"""
import json, os, sys, tomllib
import numpy as np, peft, torch, transformers
import torch.nn.functional as F
import make_class_runs as runs
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
ADAPTERS = {
    "gpt2": dict(r=6, lora_alpha=9, use_rslora=True, target_modules=["c_attn", "mlp.c_proj"], modules_to_save=["ln_f"]),
    "llama": dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"v_proj": 2, "layers.1.mlp.up_proj": 8},
                  alpha_pattern={"o_proj": 3}),
    "qwen3": dict(r=8, lora_alpha=4, target_modules=r".*\.(q|k|v|down)_proj", exclude_modules=["layers.0.mlp.down_proj"],
                  init_lora_weights="gaussian"),
    "llama_head": dict(r=4, lora_alpha=6, target_modules=["q_proj", "down_proj", "lm_head"], rank_pattern={"lm_head": 3}),
}
DORA = {
    "gpt2_dora": dict(r=4, lora_alpha=6, target_modules=["c_attn", "c_fc", "mlp.c_proj"], use_dora=True),
    "llama_dora": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"], use_dora=True,
                       use_rslora=True, rank_pattern={"v_proj": 2}),
    "llama_head_dora": dict(r=4, lora_alpha=6, target_modules=["q_proj", "lm_head"], use_dora=True,
                            rank_pattern={"lm_head": 3}),
}
CLASSES = {
    "bert_pairs": dict(r=3, lora_alpha=6, target_modules="all-linear"),
    "modernbert_words": dict(r=4, lora_alpha=4, use_rslora=True, target_modules=["Wqkv", "mlp.Wo", "head.dense"]),
}
PREFIX = "base_model.model."


def adapted(base, settings, task):
    model = peft.get_peft_model(base, peft.LoraConfig(task_type=task, **settings)).train()
    # B is initially zero, and so is A's gradient. Some other numbers test more.
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def save_adapter(model, out, family):
    model.save_pretrained(os.path.join(out, "adapter"))
    os.remove(os.path.join(out, "adapter", "README.md"))
    config = os.path.join(out, "adapter", "adapter_config.json")
    named = json.load(open(config)) | {"base_model_name_or_path": family}
    json.dump(named, open(config, "w"), indent=2, sort_keys=True)


def save_run(model, out, family, rows, folder):
    json.dump(dict(family=family, transformers=transformers.__version__, peft=peft.__version__, torch=torch.__version__,
                   steps=rows), open(os.path.join(out, "expected.json"), "w"), indent=1)
    model.save_pretrained(os.path.join(out, "final"))
    final = load_file(os.path.join(out, "final", "adapter_model.safetensors"))
    for name in os.listdir(os.path.join(out, "final")):
        os.remove(os.path.join(out, "final", name))
    os.rmdir(os.path.join(out, "final"))
    # peft saves an output layer's own matrix with its adapter.
    final = {name.removeprefix(PREFIX): value for name, value in final.items() if "base_layer" not in name}
    save_file({name: value.contiguous() for name, value in final.items()}, os.path.join(out, "final.safetensors"))
    text = open(os.path.join(folder, "recipe.toml")).read()
    place = os.path.relpath(folder, out)
    text = text.replace('"model"', f'"{place}/model"').replace('"tokens.bin"', f'"{place}/tokens.bin"')
    text = text.replace("[training]\n", "[adapter]\npath = \"adapter\"\n[training]\n")
    open(os.path.join(out, "recipe.toml"), "w").write(text)


def train_classes(name, settings):
    torch.manual_seed(7)
    family, _, kind, problem = runs.CASES[name]
    folder, out = os.path.join(HERE, "class_runs", name), os.path.join(HERE, "adapters", name)
    base = getattr(transformers, f"AutoModelFor{kind}Classification").from_pretrained(os.path.join(folder, "model"))
    model = adapted(base.float(), settings, "SEQ_CLS" if kind == "Sequence" else "TOKEN_CLS")
    save_adapter(model, out, name)
    documents = runs.make_documents(problem, getattr(base.config, "type_vocab_size", 1) > 1)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [dict(params=[p for p in trained if p.dim() >= 2], weight_decay=runs.DECAY),
              dict(params=[p for p in trained if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=runs.RATE, betas=(0.9, 0.999), eps=1e-8)
    count = sum(int((target != -100).sum()) if kind == "Token" else 1 for *_, target in documents)
    rows = []
    for step in range(1, runs.STEPS + 1):
        total = 0.0
        for tokens, types, _, target in documents:
            loss = runs.loss_of(model, problem, tokens, types, target) / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, runs.CLIP)
        for group in optimizer.param_groups:
            group["lr"] = runs.rate_at(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rows.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=runs.rate_at(step)))
    save_run(model, out, name, rows, folder)
    print(name, rows[0], rows[-1])


def train(name, settings):
    torch.manual_seed(7)
    family = name.split("_")[0]
    folder, out = os.path.join(HERE, family), os.path.join(HERE, "adapters", name)
    recipe = tomllib.load(open(os.path.join(folder, "recipe.toml"), "rb"))
    run, adam, scheduler = recipe["training"], recipe["optimizer"], recipe["scheduler"]
    base = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "model")).float()
    model = adapted(base, settings, "CAUSAL_LM")
    save_adapter(model, out, family)
    toks = np.fromfile(os.path.join(folder, "tokens.bin"), "<u2").astype(np.int64)
    t, b, m = recipe["data"]["seq_len"], run["micro_batch_size"], run["gradient_accumulation_steps"]
    steps, vocabulary, sequences = run["max_steps"], base.config.vocab_size, (len(toks) - 1) // t
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [dict(params=[p for p in trained if p.dim() >= 2], weight_decay=adam["weight_decay"]),
              dict(params=[p for p in trained if p.dim() < 2], weight_decay=0.0)]
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
        norm = torch.nn.utils.clip_grad_norm_(trained, run["max_grad_norm"] or float("inf"))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rows.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=rate(step)))
    save_run(model, out, family, rows, folder)
    print(name, rows[0], rows[-1])


for name in sys.argv[1:] or [*ADAPTERS, *DORA, *CLASSES]:
    if name in CLASSES:
        train_classes(name, CLASSES[name])
    else:
        train(name, (ADAPTERS | DORA)[name])
