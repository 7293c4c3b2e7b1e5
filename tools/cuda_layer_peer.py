#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# A decode layer of Qwen3-14B in PyTorch, for comparison with bench/cuda_layer_bench.cc: the same
# operations as a CUDA graph of layers, each after the one before, that go round three sets of
# weights and caches, so that L2 is cold. The cache is dense and all sequences have the same length.
# s8 is its 8-bit matmul with scales by token and channel; that takes 17 rows and more, so fewer are
# padded to 32. With --whole a launch is 40 layers and the head, else one layer.
# Each variant is compared with the same layer in f32 before it is timed.
# Needs PyTorch, a GPU and, for two variants, transformers; nothing of Gapless needs this.
# --json is written after every case. Status 1: some did not run, or gave wrong values.
#
# usage: tools/cuda_layer_peer.py [--batch N...] [--context N...] [--variant NAME...] [--whole]
#                                 [--json FILE]

import argparse
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import cuda_peer_timing as peer
import cuda_run

HIDDEN, INTERMEDIATE, Q_HEADS, KV_HEADS, HEAD_DIM = 5120, 17408, 40, 8, 128
MODEL_LAYERS, VOCABULARY = 40, 151936
EPS, ROPE_THETA = 1e-6, 1e6
SETS = 3
LAUNCHES = 12
INT8_ROWS = 32
MAX_ERROR = 0.05  # of bf16 and s8 against f32, relative; what is wrong is far above
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
VARIANTS = ("ops", "ops-flash", "compiled", "transformers", "transformers-compiled", "s8",
            "s8-compiled")


class Matrix(NamedTuple):
    weights: torch.Tensor  # [n][k], bf16 or int8
    scales: torch.Tensor  # [n] for int8, else empty


class Layer(NamedTuple):
    input_norm: torch.Tensor
    post_norm: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    keys: torch.Tensor  # [batch][kv heads][context][head_dim]
    values: torch.Tensor


class Rope(NamedTuple):
    cos: torch.Tensor  # [head_dim]
    sin: torch.Tensor
    position: torch.Tensor  # [1]: where the new token goes


# ---- Data.

def make_matrix(n, k, dtype):
    if dtype == torch.int8:
        weights = torch.randint(-127, 128, (n, k), device="cuda", dtype=dtype)
        return Matrix(weights, torch.full((n,), k ** -0.5 / 73.3, device="cuda"))  # std 1/sqrt(k)
    weights = torch.randn((n, k), device="cuda", dtype=dtype).mul_(k ** -0.5)
    return Matrix(weights, torch.empty(0, device="cuda"))


def make_layer(dtype, batch, context):
    def norm(size):
        return 1 + 0.1 * torch.randn(size, device="cuda", dtype=torch.bfloat16)

    def cache():
        shape = (batch, KV_HEADS, context, HEAD_DIM)
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    return Layer(norm(HIDDEN), norm(HIDDEN), norm(HEAD_DIM), norm(HEAD_DIM),
                 make_matrix((Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN, dtype),
                 make_matrix(HIDDEN, Q_HEADS * HEAD_DIM, dtype),
                 make_matrix(2 * INTERMEDIATE, HIDDEN, dtype),
                 make_matrix(HIDDEN, INTERMEDIATE, dtype), cache(), cache())


def make_rope(position):
    exponents = torch.arange(0, HEAD_DIM, 2, device="cuda", dtype=torch.float64) / HEAD_DIM
    angles = position * ROPE_THETA ** -exponents
    angles = torch.cat((angles, angles))
    return Rope(angles.cos().bfloat16(), angles.sin().bfloat16(),
                torch.tensor([position], device="cuda"))


def layer_bytes(layer):
    """What a step must read: weights, keys and values."""
    tensors = [matrix.weights for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors + [layer.keys, layer.values])


# ---- The layer.

def project(x, matrix):
    if matrix.weights.dtype != torch.int8:
        return F.linear(x, matrix.weights)
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-4) / 127
    rows = x.shape[0]
    quantized = (x / scale).round().to(torch.int8)
    if rows <= 16:
        quantized = F.pad(quantized, (0, 0, 0, INT8_ROWS - rows))
    sums = torch._int_mm(quantized, matrix.weights.t())[:rows]
    return (sums * scale * matrix.scales).bfloat16()


def project_f32(x, matrix):
    weights = matrix.weights.float()
    return F.linear(x, weights * matrix.scales[:, None] if matrix.scales.numel() else weights)


def rotated(x, rope):
    first, second = x.chunk(2, dim=-1)
    return x * rope.cos + torch.cat((-second, first), dim=-1) * rope.sin


def run_layer(x, layer, rope, multiply=project):
    """x: [batch][hidden]; f32 where x is."""
    batch = x.shape[0]
    normed = F.rms_norm(x, (HIDDEN,), layer.input_norm.to(x.dtype), EPS)
    heads = multiply(normed, layer.qkv).view(batch, -1, HEAD_DIM)
    query, key, value = heads.split((Q_HEADS, KV_HEADS, KV_HEADS), dim=1)
    query = rotated(F.rms_norm(query, (HEAD_DIM,), layer.q_norm.to(x.dtype), EPS), rope)
    key = rotated(F.rms_norm(key, (HEAD_DIM,), layer.k_norm.to(x.dtype), EPS), rope)
    layer.keys.index_copy_(2, rope.position, key.unsqueeze(2).to(layer.keys.dtype))
    layer.values.index_copy_(2, rope.position, value.unsqueeze(2).to(layer.values.dtype))
    attended = F.scaled_dot_product_attention(query.unsqueeze(2), layer.keys.to(x.dtype),
                                              layer.values.to(x.dtype), enable_gqa=True)
    x = x + multiply(attended.reshape(batch, -1), layer.out)
    normed = F.rms_norm(x, (HIDDEN,), layer.post_norm.to(x.dtype), EPS)
    gate, up = multiply(normed, layer.gate_up).chunk(2, dim=-1)
    return x + multiply(F.silu(gate) * up, layer.down)


class DenseCache:
    """What transformers needs of a cache: the new token goes to its place, all of it comes back."""

    def __init__(self, layer, rope):
        self.layer, self.position = layer, rope.position

    def update(self, keys, values, *_, **__):
        self.layer.keys.index_copy_(2, self.position, keys)
        self.layer.values.index_copy_(2, self.position, values)
        return self.layer.keys, self.layer.values


def transformers_module(layer):
    """Qwen3DecoderLayer over the same weights."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer
    config = Qwen3Config(hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, head_dim=HEAD_DIM,
                         num_attention_heads=Q_HEADS, num_key_value_heads=KV_HEADS,
                         num_hidden_layers=MODEL_LAYERS, rms_norm_eps=EPS)
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        module = Qwen3DecoderLayer(config, 0).eval()
    attention, mlp = module.self_attn, module.mlp
    kv = KV_HEADS * HEAD_DIM
    query, key, value = layer.qkv.weights.split((Q_HEADS * HEAD_DIM, kv, kv))
    gate, up = layer.gate_up.weights.chunk(2)
    for owner, weights in (
            (module.input_layernorm, layer.input_norm), (attention.q_norm, layer.q_norm),
            (attention.k_norm, layer.k_norm), (module.post_attention_layernorm, layer.post_norm),
            (attention.q_proj, query), (attention.k_proj, key), (attention.v_proj, value),
            (attention.o_proj, layer.out.weights), (mlp.gate_proj, gate), (mlp.up_proj, up),
            (mlp.down_proj, layer.down.weights)):
        owner.weight = torch.nn.Parameter(weights, requires_grad=False)
    return module


def make_steps(variant, layers, rope):
    """A function x -> x for each layer."""
    if not variant.startswith("transformers"):
        run = run_layer
        if variant.endswith("compiled"):
            run = torch.compile(run_layer, dynamic=False)
        return [lambda x, layer=layer: run(x, layer, rope) for layer in layers]

    def run_module(x, module, cache, embedding):
        y = module(x.unsqueeze(1), attention_mask=None, position_ids=rope.position[None],
                   past_key_values=cache, use_cache=True, cache_position=rope.position,
                   position_embeddings=embedding)
        return (y[0] if isinstance(y, tuple) else y).squeeze(1)

    run = torch.compile(run_module, dynamic=False) if variant.endswith("compiled") else run_module
    embedding = (rope.cos.view(1, 1, -1), rope.sin.view(1, 1, -1))
    modules = [(transformers_module(layer), DenseCache(layer, rope)) for layer in layers]
    return [lambda x, module=module, cache=cache: run(x, module, cache, embedding)
            for module, cache in modules]


# ---- What is measured.

def relative_error(step, layer, x, rope, backend):
    """What the step adds to x, against f32, of the first sequence."""
    with sdpa_kernel(backend):
        found = (step(x) - x)[:1].float()
    first = layer._replace(keys=layer.keys[:1], values=layer.values[:1])
    x = x[:1].float()
    with sdpa_kernel(SDPBackend.MATH):
        expected = run_layer(x, first, rope, project_f32) - x
    error = ((found - expected).norm() / expected.norm()).item()
    if not error < MAX_ERROR:
        raise RuntimeError(f"differs from the f32 layer by {error:.4f} of it")
    return error


def make_launch(steps, x, head):
    """A layer of the chain; with a head all of them and the head."""
    state = {}

    def launch_layer(i):
        state["x"] = steps[i % len(steps)](x if i == 0 else state["x"])

    def launch_model(_):
        y = x
        for step in steps:
            y = step(y)
        state["token"] = F.linear(F.rms_norm(y, (HIDDEN,), None, EPS), head.weights).argmax(dim=-1)

    return launch_layer if head is None else launch_model


@torch.no_grad()
def measure(variant, batch, context, is_whole):
    torch.compiler.reset()
    torch.manual_seed(1)
    is_s8 = variant.startswith("s8")
    rope = make_rope(context - 1)
    layers = [make_layer(torch.int8 if is_s8 else torch.bfloat16, batch, context)
              for _ in range(MODEL_LAYERS if is_whole else SETS)]
    head = make_matrix(VOCABULARY, HIDDEN, torch.bfloat16) if is_whole else None
    launch_bytes = layer_bytes(layers[0])
    if is_whole:
        launch_bytes = launch_bytes * MODEL_LAYERS + head.weights.numel() * head.weights.itemsize
    x = torch.randn((batch, HIDDEN), device="cuda", dtype=torch.bfloat16)
    steps = make_steps(variant, layers, rope)
    backend = BACKENDS["flash" if variant.endswith("flash") else "cudnn"]
    error = relative_error(steps[0], layers[0], x, rope, backend)
    with sdpa_kernel(backend):
        row = peer.timed_row(
            f"{'s8' if is_s8 else 'bf16'} b{batch} ctx {context} "
            f"{'model' if is_whole else 'layer'}, {variant}", make_launch(steps, x, head),
            2 if is_whole else LAUNCHES, launch_bytes, warm_launches=1 if is_whole else SETS)
    return row | {"relative_error": round(error, 5)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--context", type=int, nargs="+", default=[4096])
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    cases = [(variant, batch, context, arguments.whole) for batch in arguments.batch
             for context in arguments.context for variant in arguments.variant]
    return cuda_run.measure_each(peer, measure, cases, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
