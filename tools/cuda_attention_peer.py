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
import json
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Q_HEADS, KV_HEADS, HEAD_DIM = 40, 8, 128
ROTATED_BYTES = 768 << 20
REPLAYS = 25
WARM_S = 0.03
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def attend(query, key, value):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def captured(query, sets):
    """A graph of one launch a set, at least 16."""
    launches = max(len(sets), 16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for key, value in sets[:2]:
            attend(query, key, value)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            attend(query, *sets[i % len(sets)])
    return graph, launches


def time_graph(graph, launches):
    times = []
    begin = time.monotonic()
    while time.monotonic() - begin < WARM_S:
        graph.replay()
        torch.cuda.synchronize()
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return times


def measure(dtype, batch, tokens, backend):
    set_bytes = 2 * batch * KV_HEADS * tokens * HEAD_DIM * 2
    count = min(max(ROTATED_BYTES // set_bytes + 1, 2), 128)
    shape = (batch, KV_HEADS, tokens, HEAD_DIM)
    sets = [tuple(torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
            for _ in range(count)]
    query = torch.randn((batch, Q_HEADS, 1, HEAD_DIM), device="cuda", dtype=dtype)
    with sdpa_kernel(BACKENDS[backend]), torch.no_grad():
        times = time_graph(*captured(query, sets))
    name = f"{str(dtype).split('.')[-1]} b{batch} ctx {tokens} dense, {backend}"
    return {"what": name, "median_us": statistics.median(times), "min_us": min(times),
            "max_us": max(times), "bytes": set_bytes}


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
    rows = []
    for case in cases(arguments.all):
        try:
            row = measure(*case)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            print(f"{case}: {str(error).splitlines()[0]}", flush=True)
            continue
        rows.append(row)
        rate = row["bytes"] / row["median_us"] * 1e-6
        print(f"{row['what']:48} {row['median_us']:8.2f} us ({row['min_us']:.2f}-"
              f"{row['max_us']:.2f}) {rate:6.3f} TB/s", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
                       "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
