#!/usr/bin/env python3
"""Makes the golden folders of classifiers below classes/: a model of transformers' own (model/), and
documents.safetensors: documents of several lengths, their labels in the rows that the loss takes, the summed loss of
these, and its gradient by every parameter. fp32, dropout off.

    pip install torch transformers safetensors numpy
    tests/golden/make_classes.py [NAME ...]
"""
import os, sys
import numpy as np, torch, torch.nn.functional as F, transformers
from safetensors.torch import save_file

WORDS, LENGTHS, CLASSES = 60, [5, 17, 2, 9, 1], 3
BERT = dict(vocab_size=WORDS, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5)
ROBERTA = dict(BERT, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1)
DISTIL = dict(vocab_size=WORDS, dim=24, n_layers=1, n_heads=2, hidden_dim=40, max_position_embeddings=40, dropout=0.0,
              attention_dropout=0.0, seq_classif_dropout=0.0)
GPT2 = dict(vocab_size=WORDS, n_embd=24, n_layer=1, n_head=2, n_positions=40, attn_pdrop=0.0, resid_pdrop=0.0,
            embd_pdrop=0.0, classifier_dropout=0.0, bos_token_id=0, eos_token_id=0)
LLAMA = dict(vocab_size=WORDS, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
             intermediate_size=40, max_position_embeddings=40, tie_word_embeddings=False)
# The window is narrower than the documents. The class is computed from the first word or from the mean.
MODERN = dict(vocab_size=WORDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
              max_position_embeddings=40, local_attention=8, pad_token_id=0, bos_token_id=1, cls_token_id=1,
              eos_token_id=2, sep_token_id=2)
CASES = {
    "bert_single": ("Bert", BERT, "Sequence", "single_label_classification"),
    "bert_multi": ("Bert", BERT, "Sequence", "multi_label_classification"),
    "roberta_multi": ("Roberta", ROBERTA, "Sequence", "multi_label_classification"),
    "roberta_regression": ("Roberta", ROBERTA, "Sequence", "regression"),
    "distilbert_regression": ("DistilBert", DISTIL, "Sequence", "regression"),
    "distilbert_single": ("DistilBert", DISTIL, "Sequence", "single_label_classification"),
    "gpt2_single": ("GPT2", GPT2, "Sequence", "single_label_classification"),
    "llama_single": ("Llama", LLAMA, "Sequence", "single_label_classification"),
    "bert_tokens": ("Bert", BERT, "Token", None),
    "roberta_tokens": ("Roberta", ROBERTA, "Token", None),
    "distilbert_tokens": ("DistilBert", DISTIL, "Token", None),
    "gpt2_tokens": ("GPT2", GPT2, "Token", None),
    "modernbert_first": ("ModernBert", dict(MODERN, classifier_pooling="cls"), "Sequence",
                         "single_label_classification"),
    "modernbert_mean": ("ModernBert", dict(MODERN, classifier_pooling="mean"), "Sequence",
                        "multi_label_classification"),
    "modernbert_tokens": ("ModernBert", MODERN, "Token", None),
}
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "classes")

for name in sys.argv[1:] or CASES:
    family, shape, kind, problem = CASES[name]
    torch.manual_seed(3)
    extra = dict(problem_type=problem) if problem else {}
    config = getattr(transformers, family + "Config")(
        **shape, num_labels=1 if problem == "regression" else CLASSES, initializer_range=0.1, **extra)
    model = getattr(transformers, f"{family}For{kind}Classification")(config)
    model.eval()
    with torch.no_grad():  # biases that are 0 hide mistakes
        for key, p in model.named_parameters():
            if p.dim() < 2:
                p.add_(0.1 * torch.randn_like(p))
    out = os.path.join(HERE, name)
    model.save_pretrained(os.path.join(out, "model"))
    g = np.random.default_rng(5)
    columns, total = dict(tokens=[], labels=[]), 0.0
    last = family in ("GPT2", "Llama")
    for length in LENGTHS:
        x = torch.from_numpy(g.integers(4, WORDS, length))[None]
        rows = np.full(length, -100.0, np.float32)
        if kind == "Token":
            rows = g.integers(0, CLASSES, length).astype(np.float32)
            rows[g.random(length) < 0.3] = -100
            loss = F.cross_entropy(model(x).logits[0], torch.from_numpy(rows).long(), reduction="sum")
        else:
            if problem == "regression":
                y = float(np.float32(g.normal()))
                target = torch.tensor([y])
            elif problem == "multi_label_classification":
                bits = g.integers(0, 2, CLASSES)
                y = float((bits << np.arange(CLASSES)).sum())
                target = torch.from_numpy(bits).float()[None]
            else:
                y = float(g.integers(0, CLASSES))
                target = torch.tensor([int(y)])
            loss = model(x, labels=target).loss
            rows[-1 if last else 0] = y
        loss.backward()
        total += loss.item()
        columns["tokens"] += x[0].tolist()
        columns["labels"] += rows.tolist()
    tensors = {key: torch.tensor(values, dtype=torch.float32) for key, values in columns.items()}
    tensors["lengths"] = torch.tensor(LENGTHS, dtype=torch.float32)
    tensors["loss"] = torch.tensor([total], dtype=torch.float32)
    for key, p in model.named_parameters():
        if p.grad is not None:
            tensors["gradient of " + key] = p.grad.detach().clone()
    save_file(tensors, os.path.join(out, "documents.safetensors"))
    print(name, total)
