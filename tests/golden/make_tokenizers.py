#!/usr/bin/env python3
"""Trains small tokenizers of every kind that Strata reads, and writes what the tokenizers library makes of a text.

    tests/golden/make_tokenizers.py [OUT [KIND ...]]     OUT: tests/golden/tokenizers

A folder a kind: tokenizer.json (or tokenizer.model), expected.json with ids and decoded text; and text.txt, which all
read. Needs the packages tokenizers and sentencepiece, and Debian's bible-kjv and locales of its own programs.
"""
import glob, gettext, io, json, os, random, subprocess, sys, tempfile
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def bible():
    return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout


def catalogues(language):
    """Sentences of Debian's programs in a language."""
    out = []
    for path in sorted(glob.glob(f"/usr/share/locale/{language}/LC_MESSAGES/*.mo")):
        try:
            with open(path, "rb") as f:
                messages = gettext.GNUTranslations(f)._catalog.values()
        except (OSError, ValueError, LookupError):  # a few are malformed
            continue
        out += [m for m in messages if isinstance(m, str) and m]
    return "\n".join(out)


def code():
    out = []
    for path in sorted(glob.glob("/usr/include/*.h") + glob.glob("/usr/lib/python3*/*.py")):
        with open(path, encoding="utf-8", errors="replace") as f:
            out.append(f.read())
    return "\n".join(out)


def odd(rng, n):
    """Difficult text: emoji, runs of spaces, numbers, marks, contractions, random characters."""
    pieces = [" " * k for k in (1, 2, 3, 7, 40, 300)] + ["\n", "\n\n", "\r\n", "\t", "\t\t ", " \n", "\u00a0", "\u3000",
              "\u2028", "\u180e", "\u200b", "\x85", "\x0b", "\0", "\x1f", "\x7f", "\ufeff", "\u0130", "\u017f"]
    pieces += "😀 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ e\u0301 \u0301 가 \u1100\u1161\u11a8 é ﬁ Å Ⅷ ½ ② ٣٤ १२ ǆ ß ẞ ﷺ ㍿ कि क्ष ก็ ที่ “x” … — _a_ C++ a_b".split(" ")
    pieces += ["it's", "IT'S", "don't", "we'll", "I'M", "'", "''", "123456", "3.14", "0x1F", "<|endoftext|>", "<s>",
               "[MASK]", " [MASK] ", "<mask>", "  <mask>  ", "[CLS]", "</s>", "ABC", "word", "Wörter", "naïve", "日本語",
               "한국어", "العربية", "▁", "▁▁a", "##ing", "http://a.b/c?d=e&f=%20", "x" * 50, "{}", "();", "!!!", "a" * 120]
    out = io.StringIO()
    while out.tell() < n:
        out.write(rng.choice(pieces))
        if rng.random() < 0.3:
            out.write(" ")
        if rng.random() < 0.1:
            out.write(chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x3000, 0xd800),
                                      rng.randrange(0xe000, 0x10000), rng.randrange(0x10000, 0x20000)])))
    return out.getvalue()


def mixed(size, seed=0):
    """About `size` bytes of English, code, CJK, Arabic, other scripts, unusual text, and bytes that are not UTF-8."""
    rng = random.Random(seed)

    def cut(text, n):
        raw = text.encode()
        begin = rng.randrange(max(1, len(raw) - n))
        return raw[begin:begin + n]  # also in the middle of a character

    cjk = "".join(catalogues(lang) for lang in ("zh_CN", "ja", "ko"))
    other = "".join(catalogues(lang) for lang in ("ru", "he", "hi", "th", "de", "fr", "vi"))
    sources = [(bible(), 30), (code(), 25), (cjk, 15), (catalogues("ar"), 8), (other, 10)]
    parts = [cut(text, size * share // 100 // 8) for text, share in sources for _ in range(8)]
    parts += [odd(rng, size // 100).encode() for _ in range(8)]
    parts += [bytes(rng.randrange(256) for _ in range(size // 400)) for _ in range(4)]
    rng.shuffle(parts)
    return b"\n".join(parts)


def byte_bpe(texts, vocab, pre, normalizer=None, specials=("<|endoftext|>",), **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def bytes_behind(*stages):
    return pre_tokenizers.Sequence(list(stages) + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def rebuilt(tok, **changes):
    state = json.loads(tok.to_str())
    state["model"].update(changes)
    return Tokenizer.from_str(json.dumps(state))


def gpt2(texts, vocab):
    return byte_bpe(texts, vocab, pre_tokenizers.ByteLevel(add_prefix_space=False))


def roberta(texts, vocab):
    tok = byte_bpe(texts, vocab, pre_tokenizers.ByteLevel(add_prefix_space=True), specials=("<s>", "<pad>", "</s>", "<unk>"))
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    return tok


def llama3(texts, vocab):
    tok = byte_bpe(texts, vocab, bytes_behind(split(LLAMA3)), specials=("<|begin_of_text|>", "<|end_of_text|>"))
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", 0)])])
    return rebuilt(tok, ignore_merges=True)


def qwen2(texts, vocab):
    tok = byte_bpe(texts, vocab, bytes_behind(split(QWEN2)), normalizers.NFC())
    tok.add_tokens([AddedToken("naïve", single_word=True, normalized=True), AddedToken("don't", rstrip=True)])
    return tok


def smollm(texts, vocab):
    return byte_bpe(texts, vocab, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))


def o200k(texts, vocab):
    return byte_bpe(texts, vocab, bytes_behind(split(O200K)))


def tekken(texts, vocab):
    return byte_bpe(texts, vocab, bytes_behind(split(TEKKEN)))


def deepseek(texts, vocab):
    return byte_bpe(texts, vocab, bytes_behind(
        split("[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split(r"\s+$"), split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(individual_digits=True)))


def deepseek3(texts, vocab):
    words = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
    return byte_bpe(texts, vocab, bytes_behind(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(words)))


def falcon(texts, vocab):
    return byte_bpe(texts, vocab, pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def llama2(texts, vocab):
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    short = [line[:200] for text in texts for line in text.split("\n")]
    tok.train_from_iterator(short, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)],
        limit_alphabet=150, max_token_length=16, show_progress=False))
    state = json.loads(tok.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    tok = Tokenizer.from_str(json.dumps(state))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tok


def byte_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def pairs_of_words(texts, vocab, normalizer, pre_tokenizer=None):
    """A tokenizer of Llama 2's and Gemma's kind with a vocabulary of words, which does not split the text."""
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens(), limit_alphabet=150, show_progress=False))
    state = json.loads(tok.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    state["normalizer"], state["pre_tokenizer"] = normalizer, pre_tokenizer
    tok = Tokenizer.from_str(json.dumps(state))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def mistral(texts, vocab):
    return pairs_of_words(texts, vocab, {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]})


def gemma(texts, vocab):
    return pairs_of_words(texts, vocab, REPLACE, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                                  "invert": False})


def tinyllama(texts, vocab):
    return pairs_of_words(texts, vocab, None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})


def unigram_of(texts, vocab, rules=None, **options):
    """A model of the sentencepiece library: (serialized, vocabulary with scores, precompiled table)."""
    import base64
    lines = [line for text in texts for line in text.split("\n") if line.strip() and "\0" not in line]
    out = io.BytesIO()
    if rules:
        options["normalization_rule_tsv"] = rules
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=vocab, character_coverage=0.98,
        max_sentence_length=4000, minloglevel=2, hard_vocab_limit=False, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(out.getvalue())
    return (out.getvalue(), [(p.piece, p.score) for p in proto.pieces],
            base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode())


def small_rules(folder):
    path = os.path.join(folder, "rules.tsv")
    pairs = [("ﬁ", "fi"), ("\u212b", "\u00c5"), ("e\u0301", "\u00e9"), ("Ⅷ", "VIII"), ("…", "..."), ("½", "1/2"), ("　", " "), ("\t", " "), ("\n", " "),
             ("\u200b", ""), ("\u00a0", " "), ("㍿", "株式会社"), ("😀", ":)"), ("❤️", "<3")]
    with open(path, "w") as f:
        for a, b in pairs:
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
    return path


def precompiled(table):
    return json.loads('{"type":"Precompiled","precompiled_charsmap":"%s"}' % table)


def t5(texts, vocab, full=True):
    with tempfile.TemporaryDirectory() as folder:
        _, pieces, table = unigram_of(texts, vocab, None if full else small_rules(folder), pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    tok = Tokenizer(models.Unigram(pieces, 2, False))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    state = json.loads(tok.to_str())
    state["normalizer"] = precompiled(table)
    return Tokenizer.from_str(json.dumps(state))


def xlmr(texts, vocab, full=True):
    with tempfile.TemporaryDirectory() as folder:
        _, pieces, table = unigram_of(texts, vocab, None if full else small_rules(folder))
    tok = Tokenizer(models.Unigram(pieces, 0, False))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    state = json.loads(tok.to_str())
    state["normalizer"] = {"type": "Sequence", "normalizers": [precompiled(table), {
        "type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    return Tokenizer.from_str(json.dumps(state))


def unigram_bytes(texts, vocab, full=True):
    with tempfile.TemporaryDirectory() as folder:
        _, pieces, _ = unigram_of(texts, vocab, None if full else small_rules(folder), byte_fallback=True)
    tok = Tokenizer(models.Unigram(pieces, 0, True))
    tok.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    tok.add_special_tokens(["<s>", "</s>"])
    return tok


def bert(texts, vocab, lowercase=True):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=vocab, limit_alphabet=300, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def bert_cased(texts, vocab):
    return bert(texts, vocab, lowercase=False)


def words(texts, vocab):
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=vocab, special_tokens=["<unk>", "<eos>"], show_progress=False))
    return tok


KINDS = dict(gpt2=gpt2, roberta=roberta, llama3=llama3, qwen2=qwen2, smollm=smollm, o200k=o200k, deepseek=deepseek,
             falcon=falcon, llama2=llama2, t5=t5, xlmr=xlmr, unigram_bytes=unigram_bytes, bert=bert, bert_cased=bert_cased,
             words=words, mistral=mistral, gemma=gemma, tinyllama=tinyllama, deepseek3=deepseek3,
             tekken=tekken)
UNIGRAM = ("t5", "xlmr", "unigram_bytes")


def expected(tok, text):
    text = text.decode("utf-8", errors="replace")
    plain = tok.encode(text, add_special_tokens=False).ids
    special = tok.encode(text, add_special_tokens=True).ids
    extra = len(special) - len(plain)
    before = next(n for n in range(extra + 1) if special[n:n + len(plain)] == plain)
    return dict(ids=plain, specials=[special[:before], special[before + len(plain):]] if extra else [],
                decoded=tok.decode(plain, skip_special_tokens=True),
                decoded_all=tok.decode(plain, skip_special_tokens=False))


def sentencepiece_models(learn):
    """Models of the sentencepiece library: unigrams with our own rules, and pairs as in Llama 2."""
    with tempfile.TemporaryDirectory() as scratch:
        yield "sentencepiece", lambda: unigram_of(learn, 600, small_rules(scratch))[0]
        yield "sentencepiece_pairs", lambda: unigram_of(
            learn, 900, model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False)[0]


def main(out, kinds=()):
    text = mixed(4000, 1)
    learn = [mixed(400000, 2).decode("utf-8", errors="ignore"), bible()[:400000]]
    os.makedirs(out, exist_ok=True)
    if kinds:
        with open(os.path.join(out, "text.txt"), "rb") as f:
            text = f.read()
    else:
        with open(os.path.join(out, "text.txt"), "wb") as f:
            f.write(text)
    for kind, make in KINDS.items():
        if kinds and kind not in kinds:
            continue
        tok = make(learn, 900, full=False) if kind in UNIGRAM else make(learn, 900)
        folder = os.path.join(out, kind)
        os.makedirs(folder, exist_ok=True)
        tok_json = json.loads(tok.to_str())
        if kind == "smollm":  # the older spelling
            tok_json["model"]["merges"] = [" ".join(m) for m in tok_json["model"]["merges"]]
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            json.dump(tok_json, f, ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(folder, "expected.json"), "w") as f:
            json.dump(expected(tok, text), f, ensure_ascii=False, separators=(",", ":"))
    if not kinds:  # its ids are compared with nothing: rounding decides between some, depending on the version
        with open(os.path.join(out, "..", "unigrams.model"), "wb") as f:
            f.write(unigram_of(learn, 600, normalization_rule_name="identity")[0])
    for kind, make in sentencepiece_models(learn):
        if kinds and kind not in kinds:
            continue
        model = make()
        folder = os.path.join(out, kind)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.model"), "wb") as f:
            f.write(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = processor.encode(text.decode("utf-8", errors="replace"))
        with open(os.path.join(folder, "expected.json"), "w") as f:
            json.dump(dict(ids=ids, specials=[], decoded=processor.decode(ids), decoded_all=processor.decode(ids)), f,
                      ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers"),
         sys.argv[2:])
