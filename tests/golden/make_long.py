#!/usr/bin/env python3
"""Makes tests/golden/long: decoders whose single layers have a window, or whose positions are stretched.

    pip install torch transformers safetensors numpy
    tests/golden/make_long.py [NAME ...]

Each folder holds what those of the families do: model/, tokens.bin, recipe.toml, expected.json, final.safetensors, of a
short run over sequences that are longer than the window, or than the positions before they were stretched. config.json
is written as publishers write it, and AutoModel reads it, as it does a model's folder. fp32, dropout off.
"""
import json, os, sys
import numpy as np, torch, torch.nn.functional as F, transformers
from safetensors.torch import save_file
from recipe_text import recipe_text

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS, SEQ, STEPS, MICRO_BATCH, MICRO_BATCHES, RATE, DECAY, CLIP = 96, 24, 4, 2, 4, 2e-3, 0.1, 1.0
BLOCKS = dict(vocab_size=WORDS, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, max_position_embeddings=32, hidden_act="silu", initializer_range=0.02,
              rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
FULL, SLIDING = "full_attention", "sliding_attention"
YARN = dict(factor=4.0, original_max_position_embeddings=8)
MODELS = {
    # The last two layers have the window.
    "qwen2_windows": dict(model_type="qwen2", use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3_windows": dict(model_type="qwen3", use_sliding_window=True, sliding_window=5, max_window_layers=3,
                          layer_types=[SLIDING, FULL, SLIDING]),
    "mistral_windows": dict(model_type="mistral", sliding_window=6, layer_types=[FULL, SLIDING, FULL]),
    "qwen2_yarn": dict(model_type="qwen2", rope_theta=1000.0, rope_scaling=dict(YARN, type="yarn")),
    "llama_yarn": dict(model_type="llama", rope_parameters=dict(
        YARN, rope_type="yarn", rope_theta=500.0, beta_fast=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=0.4,
        truncate=False)),
}


def train(model, out):
    g = np.random.default_rng(1)
    following = g.integers(0, WORDS, (WORDS, 3))
    words = [5]
    while len(words) < STEPS * MICRO_BATCHES * MICRO_BATCH * SEQ + 1:
        words.append(int(following[words[-1], g.integers(0, 3)]))
    np.array(words, "<u2").tofile(os.path.join(out, "tokens.bin"))
    named = dict(model.named_parameters())
    groups = [dict(params=[p for p in named.values() if p.dim() >= 2], weight_decay=DECAY),
              dict(params=[p for p in named.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    steps, each = [], MICRO_BATCH * MICRO_BATCHES
    for step in range(1, STEPS + 1):
        first = (step - 1) * each * SEQ
        rows = torch.tensor([words[first + i * SEQ:first + (i + 1) * SEQ + 1] for i in range(each)])
        logits = model(rows[:, :-1]).logits
        loss = F.cross_entropy(logits.reshape(-1, WORDS), rows[:, 1:].reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append(dict(step=step, loss=loss.item(), grad_norm=norm.item(), lr=RATE))
    save_file({name: p.detach().contiguous() for name, p in named.items()}, os.path.join(out, "final.safetensors"))
    return steps


def make(name):
    out = os.path.join(HERE, "long", name)
    os.makedirs(os.path.join(out, "model"), exist_ok=True)
    with open(os.path.join(out, "model", "config.json"), "w") as f:
        json.dump(dict(BLOCKS, **MODELS[name]), f, indent=1, sort_keys=True)
    torch.manual_seed(2)
    config = transformers.AutoConfig.from_pretrained(os.path.join(out, "model"))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().train()
    with torch.no_grad():  # far from where a training starts, so that what a query sees shows in the loss
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()},
              os.path.join(out, "model", "model.safetensors"), metadata={"format": "pt"})
    steps = train(model, out)
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(dict(family=name, transformers=transformers.__version__, torch=torch.__version__, steps=steps), f,
                  indent=1)
    with open(os.path.join(out, "recipe.toml"), "w") as f:
        f.write(recipe_text(SEQ, STEPS, MICRO_BATCH, MICRO_BATCHES, CLIP, RATE, (0.9, 0.95), DECAY, "constant", 0))
    print(name, type(model).__name__, "loss", round(steps[0]["loss"], 6), "->", round(steps[-1]["loss"], 6))


for name in sys.argv[1:] or MODELS:
    make(name)
