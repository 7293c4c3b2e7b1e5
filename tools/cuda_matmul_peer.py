#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# PyTorch's matmuls on the shapes of bench/cuda_matmul_bench.cc, timed the same way: a CUDA graph of
# launches that go round sets of weights far larger than L2. bf16 is cuBLAS; its 8-bit matmul takes
# 17 tokens and more, so 32 stand for 16, and has no scales and no SiLU: gate/up is one matmul of
# twice the columns. Needs PyTorch and a GPU; nothing of Gapless needs this.
# --json is written after every case. Status 1: some did not run.
#
# usage: tools/cuda_matmul_peer.py [--json FILE]

import argparse
import sys

import torch

import cuda_peer_timing as peer
import cuda_run

PROJECTIONS = {"gate/up": (34816, 5120), "down": (5120, 17408), "qkv": (7168, 5120),
               "o": (5120, 5120), "lm_head": (151936, 5120)}


def random_weights(dtype, rows, k):
    if dtype == torch.int8:
        return torch.randint(-127, 128, (rows, k), device="cuda", dtype=dtype)
    return torch.randn((rows, k), device="cuda", dtype=dtype)


def multiply(x, weights):
    if x.dtype == torch.int8:
        return torch._int_mm(x, weights.t())
    return torch.nn.functional.linear(x, weights)


def measure(dtype, name, tokens):
    rows, k = PROJECTIONS[name]
    set_bytes = rows * k * dtype.itemsize
    sets = [random_weights(dtype, rows, k)
            for _ in range(max(peer.ROTATED_BYTES // set_bytes + 1, 2))]
    x = random_weights(dtype, tokens, k)
    return peer.timed_row(f"{'s8' if dtype == torch.int8 else 'bf16'} {name} m{tokens}",
                          lambda i: multiply(x, sets[i % len(sets)]),
                          max(len(sets), peer.MIN_LAUNCHES), set_bytes)


def cases():
    for name in ("gate/up", "down", "qkv", "o"):
        for tokens in (32, 64):
            yield torch.int8, name, tokens
    for name in PROJECTIONS:
        for tokens in (1, 16, 64):
            yield torch.bfloat16, name, tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    arguments = parser.parse_args()
    return cuda_run.measure_each(peer, measure, cases(), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
