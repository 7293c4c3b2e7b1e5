#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# PyTorch's attention on the shapes of bench/cuda_attention_bench.cc, timed the same way: a CUDA
# graph of launches that go round sets of keys and values far larger than L2. `cudnn` and `flash`
# have dense keys and values: no page table to follow, and all sequences as long as the longest.
# `flex` is flex_attention over a pool of pages in random order, compiled, with a block mask that
# names the pages of each sequence; it also takes ragged lengths, and is first held against f32.
# Needs PyTorch and a GPU; nothing of Gapless needs this.
# --json is written after every case. Status 1: some did not run, or gave wrong values.
#
# usage: tools/cuda_attention_peer.py [--json FILE] [--all]

import argparse
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import cuda_peer_timing as peer
import cuda_run

Q_HEADS, KV_HEADS, HEAD_DIM, PAGE = 40, 8, 128, 128
DENSE = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def ragged(seed, count=16, most=4096):
    """The lengths of bench/cuda_attention_bench.cc: mt19937, as C++ has it."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    lengths = []
    for i in range(count):
        y = state[i] & 0x80000000 | state[i + 1] & 0x7FFFFFFF
        value = state[i + 397] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        value ^= value >> 11
        value ^= value << 7 & 0x9D2C5680
        value ^= value << 15 & 0xEFC60000
        value ^= value >> 18
        lengths.append(value % most + 1)
    return lengths


def measure_dense(dtype, batch, tokens, backend):
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
    with sdpa_kernel(DENSE[backend]):
        return peer.timed_row(name, attend, max(len(sets), peer.MIN_LAUNCHES), set_bytes)


def pages_of(lengths, page_count):
    """[batch][most pages] in random order, every page once."""
    counts = [-(-length // PAGE) for length in lengths]
    order = torch.randperm(page_count)[: sum(counts)]
    table = torch.zeros((len(lengths), max(counts)), dtype=torch.int32)
    begin = 0
    for i, count in enumerate(counts):
        table[i, :count] = order[begin:begin + count]
        begin += count
    return table.cuda()


def expected(query, pool_key, pool_value, table, lengths, sequence):
    """f32; the pools are [page][token][head][dim]."""
    length = lengths[sequence]
    pages = table[sequence, : -(-length // PAGE)].long()
    key, value = (pool[pages].reshape(-1, KV_HEADS, HEAD_DIM)[:length].float().transpose(0, 1)
                  .repeat_interleave(Q_HEADS // KV_HEADS, 0) for pool in (pool_key, pool_value))
    scores = torch.einsum("hd,htd->ht", query[sequence].float(), key) * HEAD_DIM ** -0.5
    return torch.einsum("ht,htd->hd", scores.softmax(-1), value)


def check(output, query, pools, table, lengths):
    for sequence in (0, len(lengths) // 2, len(lengths) - 1):
        want = expected(query, *pools, table, lengths, sequence)
        error = (output[sequence].float() - want).norm() / want.norm()
        if not error < 2e-2:
            raise RuntimeError(f"sequence {sequence} is off by {error:.3g}")


def flex(query, pools, table, lengths):
    """A function of keys and values, heads first, all pages of a pool in a row."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    batch = len(lengths)
    length = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    full = length // PAGE
    # Of a page, its place in its sequence.
    owner = torch.zeros(pools[0].shape[0], device="cuda", dtype=torch.int32)
    for i in range(batch):
        count = -(-lengths[i] // PAGE)
        owner[table[i, :count].long()] = torch.arange(count, device="cuda", dtype=torch.int32)

    def mask_mod(b, h, q, kv):
        return owner[kv // PAGE] * PAGE + kv % PAGE < length[b]

    rest = (length % PAGE > 0).int()
    # The kernel takes both tables to have the same strides.
    last = torch.zeros_like(table)
    last[:, :1] = table.gather(1, full.clamp(max=table.shape[1] - 1).long()[:, None])
    mask = BlockMask.from_kv_blocks(
        rest[:, None, None], last[:, None, None, :], full[:, None, None], table[:, None, None, :],
        BLOCK_SIZE=(128, PAGE), mask_mod=mask_mod, seq_lengths=(1, pools[0].shape[0] * PAGE),
        compute_q_blocks=False)
    compiled = torch.compile(flex_attention, dynamic=False)
    wide = query[:, :, None, :]

    def attend(key, value):
        return compiled(wide, key, value, block_mask=mask, enable_gqa=True)[:, :, 0, :]

    return attend


def measure_paged(dtype, lengths, name):
    set_bytes = 2 * sum(lengths) * KV_HEADS * HEAD_DIM * 2
    pages = sum(-(-length // PAGE) for length in lengths)
    count = min(max(peer.ROTATED_BYTES // set_bytes + 1, 2), 64)
    query = torch.randn((len(lengths), Q_HEADS, HEAD_DIM), device="cuda", dtype=dtype)
    table = pages_of(lengths, pages)
    sets = [tuple(torch.randn((pages, PAGE, KV_HEADS, HEAD_DIM), device="cuda", dtype=dtype)
                  for _ in range(2)) for _ in range(count)]
    attend = flex(query, sets[0], table, lengths)
    given = [tuple(pool.reshape(1, -1, KV_HEADS, HEAD_DIM).transpose(1, 2).contiguous()
                   for pool in pair) for pair in sets]  # [1][head][token][dim]
    with torch.no_grad():
        check(attend(*given[0]), query, sets[0], table, lengths)
    what = f"{str(dtype).split('.')[-1]} b{len(lengths)} {name} paged, flex"
    return peer.timed_row(what, lambda i: attend(*given[i % len(given)]),
                          max(len(given), peer.MIN_LAUNCHES), set_bytes)


def measure(kind, *case):
    return (measure_dense if kind == "dense" else measure_paged)(*case)


def cases(has_all):
    for dtype in (torch.float16, torch.bfloat16):
        for backend in DENSE:
            yield "dense", dtype, 16, 4096, backend
    yield "paged", torch.bfloat16, [4096] * 16, "ctx 4096"
    for seed in (1, 2, 3):
        yield "paged", torch.bfloat16, ragged(seed), f"ragged 1..4096 ({seed})"
    if has_all:
        for batch in (1, 4, 16, 64):
            for tokens in (512, 1024, 2048, 4096, 8192, 16384, 32768):
                for backend in DENSE:
                    yield "dense", torch.bfloat16, batch, tokens, backend
        for batch in (4, 64):
            yield "paged", torch.bfloat16, ragged(3, batch), "ragged 1..4096 (3)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    return cuda_run.measure_each(peer, measure, cases(arguments.all), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
