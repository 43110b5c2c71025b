#!/usr/bin/env python3
"""Fills published.json: what transformers makes of configurations that have the keys of published config.json files.

    pip install torch transformers numpy
    tests/golden/make_published.py

Its "configs" are kept: keys and values as they are published, sizes small. Of each, for every objective that its family
has, "cases" gets the number of parameters and the summed loss of a few documents, without dropout, by weights, documents
and labels that rules below make, and the test once more. fp32.
"""
import json, os, tempfile
import numpy as np, torch, torch.nn.functional as F, transformers

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published.json")
LENGTHS, M = [20, 7, 1, 13], 2**64
MODELS = dict(causal_lm="AutoModelForCausalLM", masked_lm="AutoModelForMaskedLM",
              sequence_classification="AutoModelForSequenceClassification",
              token_classification="AutoModelForTokenClassification")
ENCODERS = {"bert", "distilbert", "modernbert", "roberta", "xlm-roberta"}


def words_of(document, length):
    return [8 + (7 * document + 11 * i + i * i) % 50 for i in range(length)]


def weights_of(name, shape):
    """Random numbers around 0, or around 1 for the gains of norms."""
    key = 0xcbf29ce484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001b3 % M
    x = (np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(key) + np.uint64(0x9e3779b97f4a7c15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    x = x ^ (x >> np.uint64(31))
    unit = (x >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)
    gain = len(shape) == 1 and name.endswith(".weight")
    return (unit * np.float32(0.4) + np.float32(1 if gain else 0)).reshape(shape)


def loss_of(model, objective, classes, problem):
    total = 0.0
    for document, length in enumerate(LENGTHS):
        x = words_of(document, length)
        labels = list(x)
        if objective == "masked_lm":
            labels = [t if i % 3 == 1 else -100 for i, t in enumerate(x)]
            x = [3 if i % 3 == 1 else t for i, t in enumerate(x)]
        if objective == "token_classification":
            labels = [(document + i) % classes if i % 4 else -100 for i in range(length)]
        logits = model(torch.tensor([x])).logits[0].double()
        if objective == "causal_lm":
            loss = F.cross_entropy(logits[:-1], torch.tensor(x[1:], dtype=torch.long), reduction="sum")
        elif objective != "sequence_classification":
            loss = F.cross_entropy(logits, torch.tensor(labels), reduction="sum", ignore_index=-100)
        elif problem == "multi_label_classification":
            bits = torch.tensor([document >> c & 1 for c in range(classes)]).double()
            loss = F.binary_cross_entropy_with_logits(logits, bits)
        else:
            loss = F.cross_entropy(logits[None], torch.tensor([document % classes]))
        total += loss.item()
    return total


def case_of(number, config, objective):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        read = transformers.AutoConfig.from_pretrained(folder)
        model = getattr(transformers, MODELS[objective]).from_config(read, attn_implementation="eager").float().eval()
    tied = model._tied_weights_keys if read.tie_word_embeddings else {}
    with torch.no_grad():
        for name, p in model.named_parameters():  # of a tied one either name
            p.copy_(torch.from_numpy(weights_of((tied or {}).get(name, name), tuple(p.shape))))
        loss = loss_of(model, objective, read.num_labels, getattr(read, "problem_type", None))
    return dict(config=number, objective=objective, parameters=sum(p.numel() for p in model.parameters()), loss=loss)


with open(FILE, encoding="utf-8") as f:
    configs = json.load(f)["configs"]
cases = [case_of(number, config, objective) for number, config in enumerate(configs)
         for objective in ("masked_lm" if config["model_type"] in ENCODERS else "causal_lm", "sequence_classification",
                           "token_classification")]
with open(FILE, "w", encoding="utf-8") as f:
    f.write('{"transformers": ' + json.dumps(transformers.__version__) + ', "lengths": ' + json.dumps(LENGTHS))
    for name, rows in (("configs", configs), ("cases", cases)):
        f.write(f',\n"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]")
    f.write("}\n")
print(len(configs), "configs,", len(cases), "cases")
