#!/usr/bin/env python3
"""Makes tokenizer_folders.json: what transformers reads in folders whose files say more, less or other than their
tokenizer.json or tokenizer.model, and in those that have only a vocabulary.

    pip install transformers tokenizers sentencepiece protobuf
    tests/golden/make_tokenizer_folders.py
"""
import json, os, random, shutil, tempfile
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = ["Hello world, how are you today?", "The quick brown fox jumps over the lazy dog.",
          "naïve café Straße 日本語 1234 don't", "user assistant system\n\nim start  end\t"] * 30
WORDS = ["Hello", "world", "<|im_start|>", "<|im_end|>", "foo", "<s>", "</s>", "[MASK]", "<mask>", "<|pad|>",
         "<|endoftext|>", "café", "日本", "fox", "user", "don't", "1234", "[UNK]", "foobar"]
pick = random.Random(5)
TEXTS = ["Hello world", "<|im_start|>user\nHello world<|im_end|>\n", " lead", "  two  spaces ", "a\n\nb"] + [
    "".join(pick.choice(["", "", " ", "  ", "\n", "\t"]) + pick.choice(WORDS) for _ in range(pick.randint(1, 7)))
    for _ in range(25)]


def bpe(special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
        special_tokens=special))
    return t


def saved(model, name):
    with tempfile.TemporaryDirectory() as d:
        model.save(d)
        return open(os.path.join(d, name), encoding="utf-8").read()


gpt2, roberta = bpe(["<|endoftext|>"]), bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
bert.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
    vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
words = [k for k, _ in sorted(bert.get_vocab().items(), key=lambda x: x[1])]
bert.normalizer = normalizers.BertNormalizer(lowercase=True)
bert.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                    special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
shared = {"gpt2.json": gpt2.to_str(), "bert.json": bert.to_str(), "vocab.txt": "\n".join(words) + "\n",
          "gpt2/vocab.json": saved(gpt2.model, "vocab.json"), "gpt2/merges.txt": saved(gpt2.model, "merges.txt"),
          "roberta/vocab.json": saved(roberta.model, "vocab.json"),
          "roberta/merges.txt": saved(roberta.model, "merges.txt")}
n, w = gpt2.get_vocab_size(), len(words)
GPT2 = {"vocab.json": "gpt2/vocab.json", "merges.txt": "gpt2/merges.txt"}
ROBERTA = {"vocab.json": "roberta/vocab.json", "merges.txt": "roberta/merges.txt"}
PAIRS, UNIGRAMS = "tokenizers/sentencepiece_pairs/tokenizer.model", "tokenizers/sentencepiece/tokenizer.model"
import sentencepiece
s = sentencepiece.SentencePieceProcessor(model_file=os.path.join(HERE, PAIRS)).get_piece_size()


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True, **flags}


def config(model_type=None, **said):
    out = {"config.json": {"model_type": model_type}} if model_type else {}
    return {**out, "tokenizer_config.json": said} if said else out


DECODER = {str(i): token(c) for i, c in [(0, "<unk>"), (1, "<s>"), (2, "</s>"), (s, "<|im_start|>"), (s + 1, "<|im_end|>")]}
FOLDERS = {
    "gpt2": {**GPT2, **config("gpt2")},
    "gpt2 with a space and bos": {**GPT2, **config("gpt2", tokenizer_class="GPT2Tokenizer", add_bos_token=True,
                                                   add_prefix_space=True, pad_token="<|pad|>")},
    "qwen2": {**GPT2, **config("qwen2", eos_token="<|im_end|>", bos_token=None,
                               additional_special_tokens=["<|im_start|>", "<|im_end|>"])},
    "gpt_neox": {**GPT2, **config("gpt_neox", pad_token=None)},
    "roberta": {**ROBERTA, **config("roberta")},
    "roberta with flags": {**ROBERTA, **config("roberta"), "special_tokens_map.json": {
        "mask_token": {k: v for k, v in token("<mask>", lstrip=True).items() if k != "special"}}},
    "bert": {"vocab.txt": "vocab.txt", **config("bert")},
    "bert, cased": {"vocab.txt": "vocab.txt", **config("bert", do_lower_case=False)},
    "distilbert": {"vocab.txt": "vocab.txt", **config("distilbert", tokenizer_class="DistilBertTokenizer",
                                                      strip_accents=False, tokenize_chinese_chars=False)},
    "bert with added tokens": {"vocab.txt": "vocab.txt", **config("bert"), "added_tokens.json": {
        "foo": w, "<|im_start|>": w + 1}, "special_tokens_map.json": {"additional_special_tokens": ["<|im_start|>"]}},
    "tokenizer.json, cased": {"tokenizer.json": "bert.json", **config(tokenizer_class="BertTokenizer", do_lower_case=False)},
    "tokenizer.json, accents": {"tokenizer.json": "bert.json", **config(
        tokenizer_class="BertTokenizerFast", strip_accents=False, tokenize_chinese_chars=False)},
    "tokenizer.json, other marks": {"tokenizer.json": "bert.json", **config(
        tokenizer_class="BertTokenizer", cls_token="[MASK]")},
    "tokenizer.json, flags": {"tokenizer.json": "gpt2.json", **config(
        tokenizer_class="GPT2Tokenizer", added_tokens_decoder={
            "0": token("<|endoftext|>"), str(n): token("<|im_start|>", rstrip=True, lstrip=True),
            str(n + 1): token("foo", special=False, normalized=True, single_word=True)})},
    "tokenizer.json, gaps": {"tokenizer.json": "gpt2.json", **config(
        tokenizer_class="PreTrainedTokenizerFast",
        added_tokens_decoder={str(n + 5): token("<|im_start|>"), str(n + 1): token("<|im_end|>")})},
    "tokenizer.json, lists": {"tokenizer.json": "gpt2.json", **config(tokenizer_class="PreTrainedTokenizerFast"),
                              "special_tokens_map.json": {"additional_special_tokens": ["<|im_start|>"],
                                                          "pad_token": "<|pad|>"}, "added_tokens.json": {"foo": n}},
    "tokenizer.json, names": {"tokenizer.json": "gpt2.json", **config(
        tokenizer_class="PreTrainedTokenizerFast", extra_special_tokens={"image_token": "<|im_start|>"},
        boi_token="<|im_end|>")},
    "tokenizer.json with a space": {"tokenizer.json": "gpt2.json", **config(
        tokenizer_class="GPT2TokenizerFast", add_prefix_space=True)},
    "tokenizer.json, bos that is not added": {"tokenizer.json": "gpt2.json", **config(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<|endoftext|>", add_bos_token=True, add_prefix_space=True)},
    # The class contradicts tokenizer.json, but transformers 4 and 5 read the folder in the same way.
    "tokenizer.json of Llama, no space": {"tokenizer.json": "tokenizers/llama2/tokenizer.json", **config(
        "llama", tokenizer_class="LlamaTokenizer", add_prefix_space=False, legacy=True)},
    "tokenizer.json of TinyLlama": {"tokenizer.json": "tokenizers/tinyllama/tokenizer.json", **config(
        "llama", tokenizer_class="LlamaTokenizerFast", legacy=False)},
    "tokenizer.json of TinyLlama, no space": {"tokenizer.json": "tokenizers/tinyllama/tokenizer.json", **config(
        "llama", tokenizer_class="LlamaTokenizer", add_prefix_space=False)},
    "tokenizer.json of bytes, called Llama's": {"tokenizer.json": "gpt2.json", **config(
        "llama", tokenizer_class="LlamaTokenizer", add_prefix_space=False)},
    "llama": {"tokenizer.model": PAIRS, **config(tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=True,
                                                 eos_token="<|im_end|>", added_tokens_decoder=DECODER)},
    "llama, legacy": {"tokenizer.model": PAIRS, **config(tokenizer_class="LlamaTokenizer", add_bos_token=True, legacy=True,
                                                         added_tokens_decoder=DECODER)},
    "llama, strips": {"tokenizer.model": PAIRS, **config(tokenizer_class="LlamaTokenizer", legacy=False, added_tokens_decoder={
        **DECODER, str(s): token("<|im_start|>", lstrip=True, rstrip=True)})},
    "llama, added_tokens.json": {"tokenizer.model": PAIRS, **config(tokenizer_class="LlamaTokenizer"), "added_tokens.json": {
        "<|im_start|>": s, "foo": s + 1}, "special_tokens_map.json": {"additional_special_tokens": ["<|im_start|>"]}},
    "mistral": {"tokenizer.model": PAIRS, **config("mistral", tokenizer_class="LlamaTokenizer", add_bos_token=True,
                                                   added_tokens_decoder=DECODER)},
    "xlm-roberta": {"sentencepiece.bpe.model": UNIGRAMS, **config("xlm-roberta")},
    "camembert": {"sentencepiece.bpe.model": UNIGRAMS, **config("camembert")},
}
cases = []
for name, files in FOLDERS.items():
    with tempfile.TemporaryDirectory() as d:
        for file, content in files.items():
            if not isinstance(content, str):
                json.dump(content, open(os.path.join(d, file), "w", encoding="utf-8"))
            elif content in shared:
                open(os.path.join(d, file), "w", encoding="utf-8").write(shared[content])
            else:
                shutil.copy(os.path.join(HERE, content), os.path.join(d, file))
        made = AutoTokenizer.from_pretrained(d)
        cases.append(dict(name=name, files=files, size=len(made),
                          ids=[made(t, add_special_tokens=False).input_ids for t in TEXTS],
                          special=[made(t).input_ids for t in TEXTS], pair=made(TEXTS[0], TEXTS[2]).input_ids))
with open(os.path.join(HERE, "tokenizer_folders.json"), "w", encoding="utf-8") as f:
    f.write(json.dumps(dict(texts=TEXTS, shared=shared), ensure_ascii=False)[:-1] + ', "cases": [\n')
    f.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")
print(len(cases), "folders")
