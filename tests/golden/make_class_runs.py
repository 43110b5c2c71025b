#!/usr/bin/env python3
"""Makes the golden folders of class_runs/: short runs of classifiers of transformers' own, with the weights after the
last step. Each holds what the families' do (model/, tokens.bin, recipe.toml, expected.json, final.safetensors).

    pip install torch transformers safetensors numpy xxhash
    tests/golden/make_class_runs.py [NAME ...]

A step uses all documents, two per sequence, so their order does not matter. Those of BERT are pairs of texts, with
token types. AdamW with Trainer's numbers, fp32, dropout off. PyTorch would give the padding row no gradient, so it is
told that there is no padding.
"""
import json, os, sys
import numpy as np, torch, torch.nn.functional as F, transformers, xxhash
from safetensors.torch import save_file
from recipe_text import recipe_text

WORDS, CLASSES, SPECIAL = 60, ["bad", "fair", "good"], [0, 1, 2, 3]
SEQ, LENGTHS, MICRO_BATCH, MICRO_BATCHES = 24, [14, 10] * 8, 2, 4
STEPS, RATE, WARMUP, DECAY, CLIP = 6, 2e-3, 2, 0.01, 1.0
BERT = dict(vocab_size=WORDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5)
ROBERTA = dict(BERT, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1)
DISTIL = dict(vocab_size=WORDS, dim=24, n_layers=2, n_heads=2, hidden_dim=40, max_position_embeddings=40, dropout=0.0,
              attention_dropout=0.0, seq_classif_dropout=0.0)
# The window is narrower than the documents.
MODERN = dict(vocab_size=WORDS, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40,
              max_position_embeddings=40, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0,
              bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2)
CASES = {
    "bert_pairs": ("Bert", BERT, "Sequence", "single_label_classification"),
    "bert_words": ("Bert", BERT, "Token", "token_classification"),
    "roberta_multi": ("Roberta", ROBERTA, "Sequence", "multi_label_classification"),
    "distilbert_regression": ("DistilBert", DISTIL, "Sequence", "regression"),
    "modernbert_first": ("ModernBert", dict(MODERN, classifier_pooling="cls"), "Sequence",
                         "single_label_classification"),
    "modernbert_mean": ("ModernBert", dict(MODERN, classifier_pooling="mean"), "Sequence",
                        "multi_label_classification"),
    "modernbert_words": ("ModernBert", MODERN, "Token", "token_classification"),
}
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "class_runs")


def rate_at(step):  # linear to a tenth
    return RATE * (step / WARMUP if step <= WARMUP else 1 - 0.9 * (step - WARMUP) / (STEPS - WARMUP))


def make_documents(problem, typed):
    """Tokens, types, and the label in the form of the file and of the loss. The first word depends on the label."""
    g = np.random.default_rng(1)
    documents = []
    for length in LENGTHS:
        tokens = [1] + g.integers(len(SPECIAL), WORDS, length - 2).tolist() + [2]
        types = [int(typed and i >= length // 2) for i in range(length)]
        if problem == "regression":
            label = float(np.float32(g.normal()))
            target = torch.tensor([label])
        elif problem == "multi_label_classification":
            bits = g.integers(0, 2, len(CLASSES))
            label, target = [c for c, bit in zip(CLASSES, bits) if bit], torch.from_numpy(bits).float()[None]
        elif problem == "token_classification":
            of = g.integers(0, len(CLASSES), length)
            none = g.random(length) < 0.3
            none[0] = none[-1] = True
            label = [None if n else CLASSES[c] for c, n in zip(of, none)]
            target = torch.from_numpy(np.where(none, -100, of))
        else:
            c = int(g.integers(0, len(CLASSES)))
            label, target = CLASSES[c], torch.tensor([c])
        tokens[1] = len(SPECIAL) + len(str(label)) % 7
        documents.append((tokens, types, label, target))
    return documents


def write_tokens(out, documents, problem):
    words = [t for tokens, *_ in documents for t in tokens]
    types = [t for _, types, *_ in documents for t in types]
    begins = np.cumsum([0] + LENGTHS[:-1])
    plural = problem in ("multi_label_classification", "token_classification")
    lines = "".join(json.dumps({"labels" if plural else "label": label}) + "\n" for *_, label, _ in documents)
    files = {"": np.array(words, "<u2").tobytes(), ".documents": begins.astype("<u8").tobytes(),
             ".labels.jsonl": lines.encode()}
    if any(types):
        files[".types"] = np.packbits(np.array(types, np.uint8), bitorder="little").tobytes()
    for ending, data in files.items():
        open(os.path.join(out, "tokens.bin" + ending), "wb").write(data)
    hash_of = lambda ending: xxhash.xxh3_64_hexdigest(files[ending])
    sidecar = dict(vocab_size=WORDS, width=2, tokenizer="made", hash=hash_of(""), count=len(words),
                   documents=dict(count=len(documents), hash=hash_of(".documents")), special_tokens=SPECIAL,
                   labels=dict(count=len(documents), hash=hash_of(".labels.jsonl"), problem=problem,
                               names=[] if problem == "regression" else CLASSES))
    if any(types):
        sidecar["types"] = dict(ones=sum(types), hash=hash_of(".types"))
    json.dump(sidecar, open(os.path.join(out, "tokens.bin.json"), "w"))


def loss_of(model, problem, tokens, types, target):
    """The loss, summed over everything that has a label."""
    keys = dict(input_ids=torch.tensor([tokens]))
    if any(types):
        keys["token_type_ids"] = torch.tensor([types])
    if problem == "token_classification":
        return F.cross_entropy(model(**keys).logits[0], target, reduction="sum", ignore_index=-100)
    return model(**keys, labels=target).loss


def make(name):
    family, shape, kind, problem = CASES[name]
    torch.manual_seed(1)
    classes = dict(num_labels=1) if problem == "regression" else dict(id2label=dict(enumerate(CLASSES)),
                                                                      label2id={c: i for i, c in enumerate(CLASSES)})
    if kind == "Sequence":
        classes["problem_type"] = problem
    config = getattr(transformers, family + "Config")(**shape, **classes, initializer_range=0.1)
    model = getattr(transformers, f"{family}For{kind}Classification")(config).float().train()
    model.get_input_embeddings().padding_idx = None
    with torch.no_grad():  # gains and biases away from 1 and 0, so that a missing one shows
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    out = os.path.join(HERE, name)
    os.makedirs(out, exist_ok=True)
    config.architectures = [type(model).__name__]
    config.save_pretrained(os.path.join(out, "model"))
    named = dict(model.named_parameters())
    save_file({key: p.detach().contiguous() for key, p in named.items()},
              os.path.join(out, "model", "model.safetensors"), metadata={"format": "pt"})
    documents = make_documents(problem, getattr(config, "type_vocab_size", 1) > 1)
    write_tokens(out, documents, problem)

    groups = [dict(params=[p for p in named.values() if p.dim() >= 2], weight_decay=DECAY),
              dict(params=[p for p in named.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    count = sum(int((target != -100).sum()) if kind == "Token" else 1 for *_, target in documents)
    steps = []
    for step in range(1, STEPS + 1):
        total = 0.0
        for tokens, types, _, target in documents:
            loss = loss_of(model, problem, tokens, types, target) / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append(dict(step=step, loss=total, grad_norm=norm.item(), lr=rate_at(step)))
    save_file({key: p.detach().contiguous() for key, p in named.items()}, os.path.join(out, "final.safetensors"))
    json.dump(dict(family=name, transformers=transformers.__version__, torch=torch.__version__, steps=steps),
              open(os.path.join(out, "expected.json"), "w"), indent=1)
    open(os.path.join(out, "recipe.toml"), "w").write(recipe_text(
        SEQ, STEPS, MICRO_BATCH, MICRO_BATCHES, CLIP, RATE, (0.9, 0.999), DECAY, "linear", WARMUP,
        data='packing = "documents"\n', training=f'objective = "{kind.lower()}_classification"\n'))
    print(name, "loss", round(steps[0]["loss"], 6), "->", round(steps[-1]["loss"], 6))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name)
