// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_support.h"

#include <algorithm>

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "bench/cuda_bench_kernels.h"
#include "bench/cuda_bench_rows.h"
#include "cuda/ceiling_launch.h"

namespace gapless {
namespace {

constexpr double kWarmUs = 30e3;  // before a graph is timed: clocks take that long to rise
constexpr int64_t kCeilingMib = 4096;

// What a graph needs, destroyed with it.
struct Capture {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;

  ~Capture() {
    if (begin != nullptr) static_cast<void>(cudaEventDestroy(begin));
    if (end != nullptr) static_cast<void>(cudaEventDestroy(end));
    if (exec != nullptr) static_cast<void>(cudaGraphExecDestroy(exec));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
  }
};

Result<void> capture_launches(Capture& capture, int launches, const Launch& launch) {
  GAPLESS_TRY(check_cuda(cudaStreamCreate(&capture.stream), "making a stream"));
  GAPLESS_TRY(check_cuda(cudaEventCreate(&capture.begin), "making an event"));
  GAPLESS_TRY(check_cuda(cudaEventCreate(&capture.end), "making an event"));
  GAPLESS_TRY(check_cuda(cudaStreamBeginCapture(capture.stream, cudaStreamCaptureModeGlobal),
                         "beginning a graph"));
  for (int i = 0; i < launches; ++i) GAPLESS_TRY(launch(i, capture.stream));
  GAPLESS_TRY(check_cuda(cudaStreamEndCapture(capture.stream, &capture.graph), "ending a graph"));
  return check_cuda(cudaGraphInstantiate(&capture.exec, capture.graph, 0), "making a graph");
}

Result<double> time_replay(const Capture& capture) {
  GAPLESS_TRY(check_cuda(cudaEventRecord(capture.begin, capture.stream), "recording an event"));
  GAPLESS_TRY(check_cuda(cudaGraphLaunch(capture.exec, capture.stream), "launching a graph"));
  GAPLESS_TRY(check_cuda(cudaEventRecord(capture.end, capture.stream), "recording an event"));
  GAPLESS_TRY(check_cuda(cudaEventSynchronize(capture.end), "running a graph"));
  float ms = 0.0f;
  GAPLESS_TRY(check_cuda(cudaEventElapsedTime(&ms, capture.begin, capture.end), "reading events"));
  return 1e3 * static_cast<double>(ms);
}

Result<TimedRow> time_read(const DeviceBuffer& memory, int64_t bytes, int replays) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const int sets = static_cast<int>(std::max<int64_t>(memory.bytes() / bytes, 1));
  const std::string name = "read " + std::to_string(bytes >> 20) + " MiB a launch";
  const Launch launch = [&](int index, CudaStream stream) {
    const std::byte* at = memory.data() + index % sets * bytes;
    return check_cuda(ceiling_read_kernel(at, bytes, limits.sm_count, memory.data(), stream),
                      "launching a read");
  };
  return time_graph(name, static_cast<double>(bytes), std::max(sets, 4), replays, launch);
}

Result<void> add_row(CudaBenchRows& rows, const TimedRow& row) {
  const double share = row.rate() / rows.ceiling_tb_s();
  return rows.add(fmt::format("{:58} {:8.2f} us ({:.2f}-{:.2f}) {:6.3f} TB/s {:5.1f} %", row.name,
                              row.median_us, row.min_us, row.max_us, row.rate(), 100.0 * share),
                  {{"what", row.name},
                   {"median_us", row.median_us},
                   {"min_us", row.min_us},
                   {"max_us", row.max_us},
                   {"bytes", row.bytes},
                   {"tb_s", row.rate()},
                   {"share_of_ceiling", share}},
                  row.goals, {.median_us = row.median_us, .share = share});
}

}  // namespace

Result<TimedRow> time_graph(const std::string& name, double bytes, int launches, int replays,
                            const Launch& launch) {
  Capture capture;
  GAPLESS_TRY(capture_launches(capture, launches, launch));
  double warm_us = 0.0;
  while (warm_us < kWarmUs) warm_us += GAPLESS_TRY(time_replay(capture));
  std::vector<double> times;
  for (int replay = 0; replay < replays; ++replay) {
    times.push_back(GAPLESS_TRY(time_replay(capture)) / launches);
  }
  std::sort(times.begin(), times.end());
  return TimedRow{name, times[times.size() / 2], times.front(), times.back(), bytes};
}

Result<DeviceBuffer> random_elements(int64_t bytes, bool is_bf16, uint64_t seed, const char* what) {
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what));
  uint16_t* values = reinterpret_cast<uint16_t*>(buffer.data());
  GAPLESS_TRY(check_cuda(start_filling(values, bytes / 2, is_bf16, seed), "filling memory"));
  GAPLESS_TRY(synchronize(nullptr));
  return buffer;
}

Result<void> measure_launches(const CudaBenchOptions& options, const std::vector<int64_t>& read_mib,
                              MeasureCases measure_cases) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  std::vector<TimedRow> reads;
  {
    const DeviceBuffer memory =
        GAPLESS_TRY(random_elements(kCeilingMib << 20, true, 9, "memory to read"));
    reads.push_back(GAPLESS_TRY(time_read(memory, kCeilingMib << 20, replays_of(options))));
    for (const int64_t mib : read_mib) {
      reads.push_back(GAPLESS_TRY(time_read(memory, mib << 20, replays_of(options))));
    }
  }
  const double ceiling = reads.front().rate();
  fmt::print("{}, {} SMs; shares are of {:.3f} TB/s\n", limits.name, limits.sm_count, ceiling);
  CudaBenchRows rows(limits.name, ceiling, options.json_path);
  for (const TimedRow& read : reads) GAPLESS_TRY(add_row(rows, read));
  GAPLESS_TRY(measure_cases(options, [&](const TimedRow& row) { return add_row(rows, row); }));
  return rows.finish();
}

}  // namespace gapless
