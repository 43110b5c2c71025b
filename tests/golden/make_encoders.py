#!/usr/bin/env python3
"""Makes the golden folders of the encoders: bert, roberta, distilbert.

    pip install torch transformers safetensors numpy
    tests/golden/make_encoders.py [FAMILY ...]

Each holds what the other families' do (model/, tokens.bin, recipe.toml, expected.json, final.safetensors: a short run
whose labels are the next tokens), and documents.safetensors: documents of several lengths with some of their words
masked, the summed loss of these, and its gradient by every parameter. fp32, dropout off. Token 0 to 2 never appear:
PyTorch gives the row of padding no gradient.
"""
import json, math, os, sys
import numpy as np, torch, torch.nn.functional as F, transformers
from safetensors.torch import save_file

WORDS, LENGTHS = 160, [5, 33, 1, 18]
STEPS, MICRO_BATCH, MICRO_BATCHES, SEQ, RATE, WARMUP, DECAY, CLIP = 6, 2, 4, 24, 2e-3, 2, 0.1, 1.0
BERT = dict(vocab_size=WORDS, hidden_size=40, num_hidden_layers=2, num_attention_heads=4, intermediate_size=72,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5)
FAMILIES = {
    "bert": ("Bert", dict(BERT, type_vocab_size=2)),
    "roberta": ("Roberta", dict(BERT, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1)),
    "distilbert": ("DistilBert", dict(vocab_size=WORDS, dim=40, n_layers=2, n_heads=4, hidden_dim=72,
                                      max_position_embeddings=64, dropout=0.0, attention_dropout=0.0)),
}


def rate_at(step):
    if step <= WARMUP:
        return RATE * step / WARMUP
    t = (step - WARMUP) / (STEPS - WARMUP)
    return RATE * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * t)))


def documents(model, out):
    g = np.random.default_rng(5)
    model.zero_grad(set_to_none=True)
    columns, total = dict(tokens=[], labels=[]), 0.0
    for length in LENGTHS:
        words = g.integers(4, WORDS, length)
        masked = g.random(length) < 0.4
        masked[0] = True
        x = torch.from_numpy(np.where(masked, 3, words))[None]
        y = torch.from_numpy(np.where(masked, words, -100))
        loss = F.cross_entropy(model(x).logits[0], y, reduction="sum", ignore_index=-100)
        loss.backward()
        total += loss.item()
        columns["tokens"] += x[0].tolist()
        columns["labels"] += y.tolist()
    tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}
    tensors["lengths"] = torch.tensor(LENGTHS, dtype=torch.float32)
    tensors["loss"] = torch.tensor([total], dtype=torch.float32)
    for name, p in model.named_parameters():
        tensors["gradient of " + name] = p.grad.detach().clone()
    save_file(tensors, os.path.join(out, "documents.safetensors"))
    model.zero_grad(set_to_none=True)


def train(model, out):
    g = np.random.default_rng(1)  # a Markov chain, so that there is something to learn
    following = g.integers(3, WORDS, (WORDS, 4))
    words = np.full(STEPS * MICRO_BATCH * MICRO_BATCHES * SEQ // 2 + SEQ + 1, 3, np.int64)  # fewer than the run reads
    for i in range(1, len(words)):
        words[i] = following[words[i - 1], g.integers(0, 4)]
    words.astype("<u2").tofile(os.path.join(out, "tokens.bin"))
    sequences = (len(words) - 1) // SEQ

    named = dict(model.named_parameters())
    groups = [dict(params=[p for p in named.values() if p.dim() >= 2], weight_decay=DECAY),
              dict(params=[p for p in named.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for step in range(1, STEPS + 1):
        total = 0.0
        for m in range(MICRO_BATCHES):
            first = ((step - 1) * MICRO_BATCHES + m) * MICRO_BATCH
            starts = [(first + i) % sequences * SEQ for i in range(MICRO_BATCH)]
            x = torch.from_numpy(np.stack([words[j:j + SEQ] for j in starts]))
            y = torch.from_numpy(np.stack([words[j + 1:j + SEQ + 1] for j in starts]))
            loss = F.cross_entropy(model(x).logits.view(-1, WORDS), y.view(-1), reduction="sum")
            loss = loss / (MICRO_BATCH * SEQ * MICRO_BATCHES)
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=rate_at(step)))
    save_file({name: p.detach().contiguous() for name, p in named.items()}, os.path.join(out, "final.safetensors"))
    return steps


def make(family):
    torch.manual_seed(1)
    prefix, keys = FAMILIES[family]
    config = getattr(transformers, prefix + "Config")(**keys, attn_implementation="eager")
    model = getattr(transformers, prefix + "ForMaskedLM")(config).float().train()
    with torch.no_grad():  # gains and biases away from 1 and 0, so that a missing one shows
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), family)
    os.makedirs(out, exist_ok=True)
    model.config.save_pretrained(os.path.join(out, "model"))
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()},
              os.path.join(out, "model", "model.safetensors"), metadata={"format": "pt"})
    documents(model, out)
    steps = train(model, out)
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(dict(family=family, transformers=transformers.__version__, torch=torch.__version__, steps=steps), f,
                  indent=1)
    with open(os.path.join(out, "recipe.toml"), "w") as f:
        f.write(f"""# Paths are relative to this file.
[model]
path = "model"
[data]
train = ["tokens.bin"]
seq_len = {SEQ}
order = "sequential"
[training]
max_steps = {STEPS}
micro_batch_size = {MICRO_BATCH}
gradient_accumulation_steps = {MICRO_BATCHES}   # divided by the number of ranks: ranks x this = {MICRO_BATCHES}
precision = "fp32"
max_grad_norm = {CLIP}
[optimizer]
name = "adamw"
learning_rate = {RATE}
betas = [0.9, 0.95]
eps = 1e-8
weight_decay = {DECAY}
[scheduler]
name = "cosine"
warmup_steps = {WARMUP}
min_lr_ratio = 0.1
""")
    print(family, "loss", round(steps[0]["loss"], 6), "->", round(steps[-1]["loss"], 6))


for family in sys.argv[1:] or FAMILIES:
    make(family)
