#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# PyTorch's attention on the shapes of bench/cuda_attention_bench.cc, timed the same way: a CUDA
# graph of launches that go round sets of keys and values far larger than L2. The peer's keys and
# values are dense: it has no page table to follow, and all sequences are as long as the longest.
# Needs PyTorch and a GPU; nothing of Gapless needs this.
#
# usage: tools/cuda_attention_peer.py [--json FILE] [--all]

import argparse

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import cuda_peer_timing as peer

Q_HEADS, KV_HEADS, HEAD_DIM = 40, 8, 128
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def measure(dtype, batch, tokens, backend):
    set_bytes = 2 * batch * KV_HEADS * tokens * HEAD_DIM * 2
    count = min(max(peer.ROTATED_BYTES // set_bytes + 1, 2), 128)
    shape = (batch, KV_HEADS, tokens, HEAD_DIM)
    sets = [tuple(torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
            for _ in range(count)]
    query = torch.randn((batch, Q_HEADS, 1, HEAD_DIM), device="cuda", dtype=dtype)

    def attend(i):
        key, value = sets[i % len(sets)]
        torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    name = f"{str(dtype).split('.')[-1]} b{batch} ctx {tokens} dense, {backend}"
    with sdpa_kernel(BACKENDS[backend]):
        return peer.timed_row(name, attend, max(len(sets), peer.MIN_LAUNCHES), set_bytes)


def cases(has_all):
    for dtype in (torch.float16, torch.bfloat16):
        for backend in BACKENDS:
            yield dtype, 16, 4096, backend
    if has_all:
        for batch in (1, 4, 16, 64):
            for tokens in (512, 1024, 2048, 4096, 8192, 16384, 32768):
                if batch * tokens <= 1 << 20:
                    for backend in BACKENDS:
                        yield torch.bfloat16, batch, tokens, backend


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    peer.write_rows(peer.measure_rows(measure, cases(arguments.all)), arguments.json)


if __name__ == "__main__":
    main()
