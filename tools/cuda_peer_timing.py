# SPDX-License-Identifier: Apache-2.0
#
# What the cuda_*_peer.py scripts share: launches timed as a CUDA graph, as bench/cuda_bench_support
# does it, and rows printed and written as JSON. Needs PyTorch and a GPU.

import json
import statistics
import time

import torch

ROTATED_BYTES = 768 << 20  # over which the launches of a graph go, so that L2 is cold
MIN_LAUNCHES = 16
REPLAYS = 25
WARM_S = 0.03  # before a graph is timed: clocks take that long to rise


def captured(launch, launches, warm_launches=2):
    """A graph of launch(0), launch(1), ...; the first few run once before."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(warm_launches):
            launch(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            launch(i)
    return graph


def time_graph(graph, launches):
    """Microseconds of a launch, one value a replay."""
    begin = time.monotonic()
    while time.monotonic() - begin < WARM_S:
        graph.replay()
        torch.cuda.synchronize()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return times


def timed_row(what, launch, launches, launch_bytes, warm_launches=2):
    with torch.no_grad():
        times = time_graph(captured(launch, launches, warm_launches), launches)
    return {"what": what, "median_us": statistics.median(times), "min_us": min(times),
            "max_us": max(times), "bytes": launch_bytes}


def measure_rows(measure, cases):
    """Rows of measure(*case), printed as they come. A case that this PyTorch or GPU does not run
    is a line that says why."""
    rows = []
    for case in cases:
        torch.cuda.empty_cache()
        try:
            row = measure(*case)
        except Exception as error:  # whatever a version of PyTorch or transformers does not run
            reason = str(error).strip().splitlines() or [""]
            print(f"{case}: {type(error).__name__}: {reason[0]}", flush=True)
            continue
        rows.append(row)
        rate = row["bytes"] / row["median_us"] * 1e-6
        print(f"{row['what']:48} {row['median_us']:8.2f} us ({row['min_us']:.2f}-"
              f"{row['max_us']:.2f}) {rate:6.3f} TB/s", flush=True)
    return rows


def write_rows(rows, path):
    """Nothing where no file was asked for."""
    if not path:
        return
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": rows},
                  file, indent=1)
