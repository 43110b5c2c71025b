#!/usr/bin/env python3
"""Makes metrics/entities.json: what seqeval's default mode says of made-up tags of words.

    pip install seqeval
    tests/golden/make_entities.py
"""
import json, os, random
from importlib.metadata import version
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics")


def entities(tags):
    return [[type, begin, end + 1] for type, begin, end in get_entities(tags)]


def case(names, there, said):
    return dict(names=names, there=there, said=said, entities=[entities(t) for t in there],
                precision=precision_score(there, said, zero_division=0), recall=recall_score(there, said, zero_division=0),
                f1=f1_score(there, said, zero_division=0))


def drawn(seed, names, texts):
    r = random.Random(seed)
    there, said = [], []
    for _ in range(texts):
        words = r.randint(1, 12)
        there.append([r.choice(names) for _ in range(words)])
        said.append([t if r.random() < 0.7 else r.choice(names) for t in there[-1]])
    return case(names, there, said)


ALL = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
cases = [
    # Cases: an I- after O, after another type, after its own B-; a B- after a B-; a text that ends inside an entity.
    case(ALL, [["I-PER", "I-PER", "O", "B-LOC", "I-PER", "B-PER", "B-PER"], ["B-LOC", "I-LOC"], ["I-LOC"]],
         [["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-PER", "I-PER"], ["B-LOC", "O"], ["O"]]),
    case(ALL, [["O", "O"]], [["O", "O"]]),
    case(ALL, [["B-PER", "O"]], [["O", "O"]]),
    # Entities do not continue into the next text.
    case(ALL, [["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]]),
    drawn(1, ALL, 30),
    drawn(2, ["I-A", "O", "I-B"], 30),
    drawn(3, ["B-geo-loc", "I-geo-loc", "B-x", "I-x", "O", "B-geo", "I-geo"], 40),
]
os.makedirs(HERE, exist_ok=True)
with open(os.path.join(HERE, "entities.json"), "w") as f:
    f.write('{"made_by": "seqeval %s",\n"cases": [\n' % version("seqeval"))
    f.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
