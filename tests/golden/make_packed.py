#!/usr/bin/env python3
"""Makes tests/golden/packed: what chat documents with masks teach a model, by transformers.

    pip install torch transformers safetensors numpy
    tests/golden/make_packed.py [FAMILY ...]

The documents are conversations of chat/ids.json, whose ids and masks are transformers' too. A folder per family: model/
(its weights), and expected.safetensors: the mean loss over the labels that count, and its gradient by every parameter,
each document computed alone. fp32, dropout off. Before it writes, it packs the documents as data.packing = "documents"
does, into one batch with position_ids and an additive mask of four dimensions, and compares (not for GPT-2: its eager
attention in transformers 4 takes no such mask).
"""
import json, os, sys
import numpy as np, torch, torch.nn.functional as F, transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS, SEQ, WINDOW = 1024, 128, 24
BLOCKS = dict(vocab_size=WORDS, hidden_size=24, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=SEQ)
FAMILIES = {
    "gpt2": ("GPT2", dict(vocab_size=WORDS, n_positions=SEQ, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0.0,
                          embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama": ("Llama", dict(BLOCKS, tie_word_embeddings=False)),
    "qwen2": ("Qwen2", dict(BLOCKS, tie_word_embeddings=True)),
    "mistral": ("Mistral", dict(BLOCKS, sliding_window=WINDOW)),
}


def documents():
    with open(os.path.join(HERE, "chat", "ids.json")) as f:
        of = [one for one in json.load(f) if one["tokenizer"] == "qwen2"]
    return [(np.array(one["ids"]), np.array([c == "1" for c in one["mask"]])) for one in of]


def labels_of(ids, mask):
    """A row's label is the document's next token if that token counts."""
    return np.append(np.where(mask[1:], ids[1:], -100), -100)


def alone(model, chats):
    total = 0.0
    for ids, mask in chats:
        logits = model(torch.from_numpy(ids)[None]).logits[0]
        loss = F.cross_entropy(logits, torch.from_numpy(labels_of(ids, mask)), reduction="sum", ignore_index=-100)
        loss.backward()
        total += loss.item()
    return total


def packed(model, chats, window):
    """Packs the longest first, each where the least sufficient room remains."""
    sequences = []
    for chat in sorted(chats, key=lambda c: -len(c[0])):
        room = [s for s in sequences if sum(len(ids) for ids, _ in s) + len(chat[0]) <= SEQ]
        if room:
            max(room, key=lambda s: sum(len(ids) for ids, _ in s)).append(chat)
        else:
            sequences.append([chat])
    assert len(sequences) == 3, "the test makes a step of three sequences"
    x, y, at = (np.zeros((len(sequences), SEQ), np.int64) for _ in range(3))
    y[:] = -100
    sees = np.zeros((len(sequences), 1, SEQ, SEQ), bool)
    sees[:] = np.eye(SEQ, dtype=bool)  # rows of no document see themselves, so that no softmax is over nothing
    for s, of in enumerate(sequences):
        begin = 0
        for ids, mask in of:
            rows = slice(begin, begin + len(ids))
            x[s, rows], y[s, rows], at[s, rows] = ids, labels_of(ids, mask), np.arange(len(ids))
            near = np.tril(np.ones((len(ids), len(ids)), bool))
            sees[s, 0, rows, rows] = near & ~np.tril(near, -window)
            begin += len(ids)
    mask = torch.where(torch.from_numpy(sees), 0.0, torch.finfo(torch.float32).min)
    logits = model(torch.from_numpy(x), attention_mask=mask, position_ids=torch.from_numpy(at)).logits
    loss = F.cross_entropy(logits.view(-1, WORDS), torch.from_numpy(y).view(-1), reduction="sum", ignore_index=-100)
    loss.backward()
    return loss.item()


def make(family):
    torch.manual_seed(3)
    prefix, keys = FAMILIES[family]
    config = getattr(transformers, prefix + "Config")(**keys, attn_implementation="eager")
    model = getattr(transformers, prefix + ("LMHeadModel" if family == "gpt2" else "ForCausalLM"))(config).float()
    with torch.no_grad():  # gains and biases away from 1 and 0, so that a missing one shows
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    chats = documents()
    counting = sum(int(mask[1:].sum()) for _, mask in chats)

    def taught(how):
        model.zero_grad(set_to_none=True)
        loss = how() / counting
        return loss, {name: p.grad / counting for name, p in model.named_parameters()}

    loss, gradients = taught(lambda: alone(model, chats))
    if family != "gpt2":
        other, others = taught(lambda: packed(model, chats, keys.get("sliding_window", SEQ)))
        assert abs(loss - other) < 1e-6 * loss, (loss, other)
        for name, gradient in gradients.items():
            assert torch.norm(gradient - others[name]) < 1e-5 * torch.norm(gradient), name

    out = os.path.join(HERE, "packed", family)
    os.makedirs(os.path.join(out, "model"), exist_ok=True)
    model.config.save_pretrained(os.path.join(out, "model"))
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()},
              os.path.join(out, "model", "model.safetensors"), metadata={"format": "pt"})
    save_file({"loss": torch.tensor([loss]), **{"gradient of " + name: g for name, g in gradients.items()}},
              os.path.join(out, "expected.safetensors"))
    print(family, "loss", round(loss, 6), "over", counting, "labels; torch", torch.__version__, "transformers",
          transformers.__version__)


for family in sys.argv[1:] or FAMILIES:
    make(family)
