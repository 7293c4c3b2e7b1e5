#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# PyTorch's matmuls on the shapes of bench/cuda_matmul_bench.cc, timed the same way: a CUDA graph of
# launches that go round sets of weights far larger than L2. bf16 is cuBLAS; its 8-bit matmul takes
# 17 tokens and more, so 32 stand for 16, and has no scales and no SiLU: gate/up is one matmul of
# twice the columns. Needs PyTorch and a GPU; nothing of Gapless needs this.
#
# usage: tools/cuda_matmul_peer.py [--json FILE]

import argparse
import json
import statistics
import time

import torch

PROJECTIONS = {"gate/up": (34816, 5120), "down": (5120, 17408), "qkv": (7168, 5120),
               "o": (5120, 5120), "lm_head": (151936, 5120)}
ROTATED_BYTES = 768 << 20
REPLAYS = 25
WARM_S = 0.03


def random_weights(dtype, rows, k):
    if dtype == torch.int8:
        return torch.randint(-127, 128, (rows, k), device="cuda", dtype=dtype)
    return torch.randn((rows, k), device="cuda", dtype=dtype)


def multiply(x, weights):
    if x.dtype == torch.int8:
        return torch._int_mm(x, weights.t())
    return torch.nn.functional.linear(x, weights)


def captured(x, sets):
    """A graph of one launch a set, at least 16."""
    launches = max(len(sets), 16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for weights in sets[:2]:
            multiply(x, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            multiply(x, sets[i % len(sets)])
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


def measure(dtype, name, tokens):
    rows, k = PROJECTIONS[name]
    set_bytes = rows * k * dtype.itemsize
    sets = [random_weights(dtype, rows, k) for _ in range(max(ROTATED_BYTES // set_bytes + 1, 2))]
    x = random_weights(dtype, tokens, k)
    with torch.no_grad():
        times = time_graph(*captured(x, sets))
    return {"what": f"{'s8' if dtype == torch.int8 else 'bf16'} {name} m{tokens}",
            "median_us": statistics.median(times), "min_us": min(times), "max_us": max(times),
            "bytes": set_bytes}


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
    rows = []
    for case in cases():
        try:
            row = measure(*case)
        except RuntimeError as error:
            print(f"{case}: {str(error).splitlines()[0]}", flush=True)
            continue
        rows.append(row)
        rate = row["bytes"] / row["median_us"] * 1e-6
        print(f"{row['what']:30} {row['median_us']:8.2f} us ({row['min_us']:.2f}-"
              f"{row['max_us']:.2f}) {rate:6.3f} TB/s", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
                       "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
