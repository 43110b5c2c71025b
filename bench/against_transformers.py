#!/usr/bin/env python3
"""Compares inference with transformers on the same cores: greedy tokens, tokens/s, and exported directories.

    against_transformers.py STRATA MODEL_DIR [--tokens 64] [--rounds 5] [--threads 2]     speed of `generate`
    against_transformers.py STRATA MODEL_DIR --export                                     what `export` writes loads
    against_transformers.py STRATA MODEL_DIR --families     greedy tokens of a small random model of each family

Both generate greedily in the stored dtype, batch 1, with a cache of keys and values. Runs alternate, and medians are
printed. The first token (the prompt) is not counted.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time, warnings

os.environ["HF_HUB_OFFLINE"] = "1"
parser = argparse.ArgumentParser()
parser.add_argument("strata")
parser.add_argument("model")
parser.add_argument("--prompt", default="In the beginning God created the heaven and the earth.")
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--export", action="store_true")
parser.add_argument("--families", action="store_true")
options = parser.parse_args()
try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging
except ImportError as error:
    sys.exit(f"skipped: {error}")
torch.set_num_threads(options.threads)


class Torch:
    def __init__(self, folder, ids):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        self.model.generation_config.pad_token_id = 0
        self.ids = torch.tensor([ids])

    @torch.no_grad()
    def logits(self):
        return self.model(self.ids).logits[0].float()

    @torch.no_grad()
    def generate(self, n):
        """Loops over the cache as transformers' `generate` does, without the work around it."""
        out = self.model(self.ids, use_cache=True)
        tokens = [int(out.logits[0, -1].argmax())]
        start = time.perf_counter()
        while len(tokens) < n:
            out = self.model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            tokens.append(int(out.logits[0, -1].argmax()))
        loop = (n - 1) / (time.perf_counter() - start)
        start = time.perf_counter()
        self.model.generate(self.ids, attention_mask=torch.ones_like(self.ids), max_new_tokens=n, min_new_tokens=n,
                            do_sample=False)
        return tokens, loop, n / (time.perf_counter() - start)


def strata_generate(folder, n):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([options.strata, "generate", "--model", folder, "--prompt", options.prompt, "--max-new-tokens",
                        str(n), "--set", f"device.threads={options.threads}", "--json", out.name], check=True,
                       capture_output=True)
        return json.load(open(out.name))


def speed():
    first = strata_generate(options.model, 2)
    peer = Torch(options.model, first["prompt_tokens"])
    ours, loop, library = [], [], []
    for _ in range(options.rounds):
        mine = strata_generate(options.model, options.tokens)
        tokens, a, b = peer.generate(options.tokens)
        if mine["tokens"] != tokens[: len(mine["tokens"])]:
            print("tokens differ:", mine["tokens"], tokens)
        ours.append(mine["tokens_per_s"])
        loop.append(a)
        library.append(b)
        print(f"strata {ours[-1]:.1f}   transformers' model in a loop {a:.1f}   its generate() {b:.1f} tokens/s")
    o, a, b = map(statistics.median, (ours, loop, library))
    print(f"medians: {o:.1f}, {a:.1f}, {b:.1f} tokens/s: {o / a:.2f} x the loop, {o / b:.2f} x generate()")


def exported():
    ids = strata_generate(options.model, 2)["prompt_tokens"]
    wanted = Torch(options.model, ids).logits()
    for dtype in ("fp32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "exported")
            subprocess.run([options.strata, "export", options.model, "-o", out, "--dtype", dtype], check=True)
            lines = []
            logging.get_logger("transformers").handlers.clear()
            import logging as python_logging

            class Keep(python_logging.Handler):
                def emit(self, record):
                    if record.levelno >= python_logging.WARNING:
                        lines.append(record.getMessage())

            python_logging.getLogger("transformers").addHandler(Keep())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loaded = Torch(out, ids)
                tokenizer = AutoTokenizer.from_pretrained(out)
            same = tokenizer(options.prompt).input_ids == ids
            gap = (loaded.logits() - wanted).abs().max().item()
            print(f"{dtype}: {loaded.model.dtype}, largest difference of a logit {gap:.3g} (largest logit "
                  f"{wanted.abs().max().item():.1f}), same tokens {same}, warnings {lines + [str(w.message) for w in caught]}")


def families():
    from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

    torch.manual_seed(0)
    none = dict(eos_token_id=None, bos_token_id=None, vocab_size=120, initializer_range=0.3)
    llama = dict(none, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
                 num_hidden_layers=3, max_position_embeddings=256)
    configs = dict(gpt2=GPT2Config(n_embd=64, n_head=4, n_layer=3, n_positions=256, **none), llama=LlamaConfig(**llama),
                   mistral=MistralConfig(**llama, sliding_window=9), qwen2=Qwen2Config(**llama),
                   qwen3=Qwen3Config(**llama, head_dim=16))
    prompt = [(i * i * 7 + i) % 120 for i in range(40)]
    for name, config in configs.items():
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        wanted = list(prompt)
        with torch.no_grad():  # the full forward each time: no cache on this side
            for _ in range(24):
                wanted.append(int(model(torch.tensor([wanted])).logits[0, -1].argmax()))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            out = subprocess.run([options.strata, "generate", "--model", folder, "--prompt-tokens",
                                  ",".join(map(str, prompt)), "--max-new-tokens", "24"], check=True, capture_output=True)
        print(name, "equal" if list(map(int, out.stdout.split())) == wanted[40:] else f"differs: {out.stdout} {wanted[40:]}")


exported() if options.export else families() if options.families else speed()
