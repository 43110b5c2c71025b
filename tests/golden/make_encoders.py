#!/usr/bin/env python3
"""Makes the golden folders of the encoders: bert, roberta, distilbert, modernbert.

    pip install torch transformers safetensors numpy xxhash
    tests/golden/make_encoders.py [FAMILY ...]

Each holds what the other families' do (model/, tokens.bin, recipe.toml, expected.json, final.safetensors), of a short
run of masked language modelling over packed documents, whose packing and draws are made here once more; and
documents.safetensors: documents of several lengths with some of their words masked, the summed loss of these, and its
gradient by every parameter. fp32, dropout off. PyTorch would give the padding row no gradient, so it is told that there
is no padding.
"""
import json, math, os, sys
import numpy as np, torch, torch.nn.functional as F, transformers, xxhash
from safetensors.torch import save_file
from recipe_text import recipe_text

WORDS, LENGTHS = 160, [5, 33, 1, 18]
SPECIAL, MASK, PROBABILITY, SEED = [0, 1, 2, 3], 3, 0.15, 0
STEPS, MICRO_BATCH, MICRO_BATCHES, SEQ, RATE, WARMUP, DECAY, CLIP = 6, 2, 4, 24, 2e-3, 2, 0.1, 1.0
BERT = dict(vocab_size=WORDS, hidden_size=40, num_hidden_layers=2, num_attention_heads=4, intermediate_size=72,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5)
FAMILIES = {
    "bert": ("Bert", dict(BERT, type_vocab_size=2)),
    "roberta": ("Roberta", dict(BERT, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1)),
    "distilbert": ("DistilBert", dict(vocab_size=WORDS, dim=40, n_layers=2, n_heads=4, hidden_dim=72,
                                      max_position_embeddings=64, dropout=0.0, attention_dropout=0.0)),
    # The window is narrower than the documents.
    "modernbert": ("ModernBert", dict(vocab_size=WORDS, hidden_size=40, num_hidden_layers=4, num_attention_heads=4,
                                      intermediate_size=56, max_position_embeddings=64, local_attention=8,
                                      pad_token_id=0, bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2)),
}


def rate_at(step):
    if step <= WARMUP:
        return RATE * step / WARMUP
    t = (step - WARMUP) / (STEPS - WARMUP)
    return RATE * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * t)))


def types_of(model, count):
    """The types of a pair's tokens: the second half has type 1 if the model has types."""
    second = count // 2 if getattr(model.config, "type_vocab_size", 1) > 1 else count
    return [int(i >= second) for i in range(count)]


def logits_of(model, tokens, types):
    keys = {}
    if any(types):
        keys["token_type_ids"] = torch.tensor([types])
    return model(tokens, **keys).logits[0]


def documents(model, out):
    g = np.random.default_rng(5)
    model.zero_grad(set_to_none=True)
    columns, total = dict(tokens=[], labels=[], types=[]), 0.0
    for length in LENGTHS:
        words = g.integers(4, WORDS, length)
        masked = g.random(length) < 0.4
        masked[0] = True
        x = torch.from_numpy(np.where(masked, 3, words))[None]
        y = torch.from_numpy(np.where(masked, words, -100))
        loss = F.cross_entropy(logits_of(model, x, types_of(model, length)), y, reduction="sum", ignore_index=-100)
        loss.backward()
        total += loss.item()
        columns["tokens"] += x[0].tolist()
        columns["labels"] += y.tolist()
        columns["types"] += types_of(model, length)
    tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}
    tensors["lengths"] = torch.tensor(LENGTHS, dtype=torch.float32)
    tensors["loss"] = torch.tensor([total], dtype=torch.float32)
    for name, p in model.named_parameters():
        tensors["gradient of " + name] = p.grad.detach().clone()
    save_file(tensors, os.path.join(out, "documents.safetensors"))
    model.zero_grad(set_to_none=True)


def scramble(x):
    x = (x + 0x9e3779b97f4a7c15) % 2**64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb % 2**64
    return x ^ (x >> 31)


def masked(words, begin, epoch):
    """Tokens and labels of a document whose first token is number `begin` (docs/formats.md, "Masked tokens")."""
    key = scramble(scramble(scramble(SEED) ^ 0) ^ epoch)
    numbers = [scramble(key ^ (begin + i)) for i in range(len(words))]
    eligible = [i for i in range(len(words)) if words[i] >= len(SPECIAL)]
    eligible.sort(key=lambda i: (numbers[i] >> 32, i))
    k = max(1, int(PROBABILITY * len(eligible) + 0.5)) if eligible else 0
    tokens, labels = list(words), [-100] * len(words)
    for i in eligible[:k]:
        labels[i] = words[i]
        more = scramble(numbers[i])
        fate = (more >> 32) * 10 >> 32
        if fate < 8:
            tokens[i] = MASK
        elif fate == 8:
            tokens[i] = (more % 2**32) * WORDS >> 32
    return tokens, labels


def packed(pieces):
    """Lists of the pieces (begin, rows) that share a sequence, by best fit, decreasing (docs/formats.md, "Packing")."""
    bins = []  # [room left, when it changed last, pieces]
    for at, (begin, rows) in enumerate(sorted(pieces, key=lambda p: -p[1])):
        fitting = [b for b in bins if b[0] >= rows]
        if fitting:
            b = min(fitting, key=lambda b: (b[0], -b[1]))
        else:
            bins.append(b := [SEQ, 0, []])
        b[0] -= rows
        b[1] = at
        b[2].append((begin, rows))
    return [b[2] for b in bins]


def write_tokens(model, out):
    """A Markov chain, so that there is something to learn, in documents that begin and end with special tokens."""
    g = np.random.default_rng(1)
    following = g.integers(len(SPECIAL), WORDS, (WORDS, 4))
    words, types, begins, pieces = [], [], [], []
    while sum(rows for _, rows in pieces) < STEPS * MICRO_BATCH * MICRO_BATCHES * SEQ // 2:  # fewer than the run reads
        length = int(g.integers(1, SEQ + 10))
        document = [int(g.integers(len(SPECIAL), WORDS))]
        while len(document) < length:
            document.append(int(following[document[-1], g.integers(0, 4)]))
        begins.append(len(words))
        words += [1] + document + [2]
        types += types_of(model, len(words) - begins[-1])
        pieces += [(at, min(SEQ, len(words) - at)) for at in range(begins[-1], len(words), SEQ)]
    files = {"": np.array(words, "<u2"), ".documents": np.array(begins, "<u8")}
    sidecar = {}
    if any(types):
        files[".types"] = np.packbits(np.array(types, np.uint8), bitorder="little")
    hashes = {}
    for ending, values in files.items():
        values.tofile(os.path.join(out, "tokens.bin" + ending))
        hashes[ending] = xxhash.xxh3_64_hexdigest(values.tobytes())
    if any(types):
        sidecar["types"] = dict(ones=sum(types), hash=hashes[".types"])
    with open(os.path.join(out, "tokens.bin.json"), "w") as f:
        json.dump(dict(vocab_size=WORDS, width=2, tokenizer="made", hash=hashes[""], count=len(words),
                       documents=dict(count=len(begins), hash=hashes[".documents"]), special_tokens=SPECIAL,
                       mask_token=MASK, **sidecar), f)
    return words, types, packed(pieces)


def train(model, out):
    words, types, sequences = write_tokens(model, out)
    named = dict(model.named_parameters())
    groups = [dict(params=[p for p in named.values() if p.dim() >= 2], weight_decay=DECAY),
              dict(params=[p for p in named.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for step in range(1, STEPS + 1):
        total, documents = 0.0, []
        for position in range((step - 1) * MICRO_BATCHES * MICRO_BATCH, step * MICRO_BATCHES * MICRO_BATCH):
            epoch, sequence = divmod(position, len(sequences))
            documents += [(*masked(words[b:b + n], b, epoch), types[b:b + n]) for b, n in sequences[sequence]]
        count = sum(label != -100 for _, labels, _ in documents for label in labels)
        for tokens, labels, kinds in documents:
            logits = logits_of(model, torch.tensor([tokens]), kinds)
            loss = F.cross_entropy(logits, torch.tensor(labels), reduction="sum", ignore_index=-100) / count
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
    model.get_input_embeddings().padding_idx = None
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
        f.write(recipe_text(SEQ, STEPS, MICRO_BATCH, MICRO_BATCHES, CLIP, RATE, (0.9, 0.95), DECAY, "cosine", WARMUP))
    print(family, "loss", round(steps[0]["loss"], 6), "->", round(steps[-1]["loss"], 6))


for family in sys.argv[1:] or FAMILIES:
    make(family)
