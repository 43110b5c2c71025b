#!/usr/bin/env python3
"""Makes metrics/metrics.json: what scikit-learn says of made-up scores.

    pip install scikit-learn
    tests/golden/make_metrics.py
"""
import json, os
import numpy as np
import sklearn
from sklearn import metrics as m

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics")


def averages(labels, said, classes):
    out = {}
    for average in ["macro", "micro"]:
        p, r, f, _ = m.precision_recall_fscore_support(labels, said, average=average, zero_division=0)
        out[average] = [p, r, f]
    p, r, f, s = m.precision_recall_fscore_support(labels, said, labels=range(classes), zero_division=0)
    out["per_class"] = np.stack([p, r, f], 1).tolist()
    out["support"] = s.tolist()
    return out


def one(seed, documents, classes, skipped=None, absent=None):
    g = np.random.default_rng(seed)
    labels = g.integers(0, classes, documents)
    if absent is not None:
        labels[labels == absent] = 0
        skipped = absent
    scores = np.round(g.normal(size=(documents, classes)) + 1.2 * np.eye(classes)[labels], 1).astype(np.float32)
    if skipped is not None:
        scores[:, skipped] = -50  # never said
    said = scores.argmax(1)
    p = np.exp(scores.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    if absent is not None:
        auc = None  # no text of the class, no curve
    else:
        # Of two classes by the log of the odds, which is exact: equal probabilities may differ in their last bits, and
        # whether they do is a matter of numpy's exp.
        odds = scores[:, 1].astype(np.float64) - scores[:, 0]
        auc = m.roc_auc_score(labels, odds) if classes == 2 else m.roc_auc_score(labels, p, multi_class="ovr")
    return dict(kind="one", classes=classes, scores=scores.ravel().tolist(), labels=labels.tolist(),
                accuracy=m.accuracy_score(labels, said), matthews=m.matthews_corrcoef(labels, said), roc_auc=auc,
                confusion=m.confusion_matrix(labels, said, labels=range(classes)).tolist(),
                **averages(labels, said, classes))


def many(seed, documents, classes):
    g = np.random.default_rng(seed)
    labels = g.integers(0, 2, (documents, classes))
    scores = np.round(g.normal(size=(documents, classes)) + 1.5 * labels - 0.7, 1).astype(np.float32)
    said = (scores >= 0).astype(int)
    return dict(kind="many", classes=classes, scores=scores.ravel().tolist(),
                # Words with 32 classes each, document by document.
                labels=[sum(int(is_of) << c for c, is_of in enumerate(row[at:at + 32]))
                        for row in labels for at in range(0, classes, 32)], accuracy=m.accuracy_score(labels, said),
                roc_auc=m.roc_auc_score(labels, scores), **averages(labels, said, classes))


def numbers(seed, documents):
    g = np.random.default_rng(seed)
    labels = g.normal(size=documents).astype(np.float32)
    said = (labels + g.normal(size=documents)).astype(np.float32)
    return dict(kind="numbers", predictions=said.tolist(), labels=labels.tolist(),
                mean_squared_error=m.mean_squared_error(labels.astype(float), said.astype(float)),
                mean_absolute_error=m.mean_absolute_error(labels.astype(float), said.astype(float)),
                pearson=float(np.corrcoef(labels.astype(float), said.astype(float))[0, 1]))


os.makedirs(HERE, exist_ok=True)
cases = [one(1, 60, 2), one(2, 80, 5), one(3, 50, 4, skipped=2), many(4, 60, 6), numbers(5, 40), one(6, 40, 5, absent=3),
         many(7, 40, 90)]
with open(os.path.join(HERE, "metrics.json"), "w") as f:
    f.write('{"made_by": "scikit-learn %s, numpy %s",\n"cases": [\n' % (sklearn.__version__, np.__version__))
    f.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
