# SPDX-License-Identifier: Apache-2.0
#
# Writes a checkpoint with a tokenizer whose answers everybody knows: the alphabet goes on.
#
#   python3 tests/data/make_alphabet_model.py FOLDER
#
# Embeddings are unit vectors, one for each token; the layer adds nothing; the head's row of a token
# is the sum of the unit vectors of those before it. "a" to "z" follow each other, then come both
# bytes of an e with acute; a newline (the end of a chat prompt) is answered "OK". All else is
# followed by the end of the turn.

import json
import pathlib
import struct
import sys

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = SPECIAL + ["<think>", "</think>"]
VOCABULARY = 272
HIDDEN = VOCABULARY
HEAD_DIM = 64
INTERMEDIATE = 64
END = 256 + ADDED.index("<|im_end|>")
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_letters():
    """The letters that byte-level BPE writes bytes as: printable ones stand for themselves."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters.update({byte: chr(256 + index) for index, byte in enumerate(hidden)})
    return letters


def tokenizer():
    vocab = {letter: byte for byte, letter in sorted(byte_letters().items())}
    added = [{"id": 256 + index, "content": content, "special": content in SPECIAL}
             for index, content in enumerate(ADDED)]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
             "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False},
            "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def successors():
    pairs = {token: END for token in range(VOCABULARY)}
    for chain in ([*b"abcdefghijklmnopqrstuvwxyz", *"\u00e9".encode()], [*b"\nOK"]):
        pairs.update(zip(chain, chain[1:]))
    return pairs


def matrix(ones):
    values = [0.0] * (VOCABULARY * HIDDEN)
    for row, column in ones:
        values[row * HIDDEN + column] = 1.0
    return values


def tensors():
    shapes = {"input_layernorm": [HIDDEN], "self_attn.q_proj": [HEAD_DIM, HIDDEN],
              "self_attn.k_proj": [HEAD_DIM, HIDDEN], "self_attn.v_proj": [HEAD_DIM, HIDDEN],
              "self_attn.q_norm": [HEAD_DIM], "self_attn.k_norm": [HEAD_DIM],
              "self_attn.o_proj": [HIDDEN, HEAD_DIM], "post_attention_layernorm": [HIDDEN],
              "mlp.gate_proj": [INTERMEDIATE, HIDDEN], "mlp.up_proj": [INTERMEDIATE, HIDDEN],
              "mlp.down_proj": [HIDDEN, INTERMEDIATE]}
    square = [VOCABULARY, HIDDEN]
    yield "model.embed_tokens.weight", square, matrix((token, token) for token in range(VOCABULARY))
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        value = 1.0 if name.endswith("norm") else 0.0
        yield f"model.layers.0.{name}.weight", shape, [value] * count
    yield "model.norm.weight", [HIDDEN], [1.0] * HIDDEN
    yield "lm_head.weight", square, matrix((after, token) for token, after in successors().items())


def write_safetensors(path):
    header, data = {}, b""
    for name, shape, values in tensors():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32",
              "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": 1,
              "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
              "vocab_size": VOCABULARY, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 1000000.0, "tie_word_embeddings": False, "hidden_act": "silu",
              "eos_token_id": END}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    write_safetensors(folder / "model.safetensors")


main()
