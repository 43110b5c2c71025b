#!/usr/bin/env python3
"""Makes tokenizers/pairs.json: what the tokenizers library makes of pairs, of texts that are cut, and of words, with the
tokenizers next to it.

    pip install tokenizers
    tests/golden/make_pairs.py
"""
import json, os
from tokenizers import Tokenizer

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
TEXTS = [("The quick brown fox jumps.", "Over the lazy dog, and over the lazy cat, too!"),
         ("A much longer first text, whose words go on and on, as they do.", "Short."),
         ("naïve café", "Straße\n in Zürich"), ("same length here", "same length here")]
WORDS = ["EU", "rejects", "German", "call", "to", "boycott", "British", "lamb", "."]

cases = []
for name in ["bert_cased", "roberta", "xlmr"]:
    for side in ["right", "left"]:
        made = Tokenizer.from_file(os.path.join(HERE, name, "tokenizer.json"))

        def add(longest, strategy, *inputs, **said):
            if longest:
                made.enable_truncation(longest, strategy=strategy, direction=side)
            else:
                made.no_truncation()
            case = dict(tokenizer=name, side=side, max_length=longest, strategy=strategy, ids=None, **said)
            try:
                out = made.encode(*inputs, is_pretokenized="words" in said)
                case.update(ids=out.ids, types=out.type_ids)
                if "words" in said:
                    case.update(word_ids=out.word_ids)
            except Exception:
                pass
            cases.append(case)

        for text, pair in TEXTS:
            for longest in [None, 7, 10, 15]:
                for strategy in ["longest_first", "only_first", "only_second"] if longest else ["longest_first"]:
                    if strategy != "only_second":
                        add(longest, strategy, text, text=text)
                    add(longest, strategy, text, pair, text=text, pair=pair)
        for longest in [None, 8]:
            add(longest, "longest_first", WORDS, words=WORDS)
with open(os.path.join(HERE, "pairs.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
print(len(cases), "cases")
