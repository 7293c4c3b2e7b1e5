// SPDX-License-Identifier: Apache-2.0
//
// The matmuls of a decode layer on a GPU, timed: time, bytes of weights per second, and the share
// of the read ceiling that is measured in the same run. tools/cuda_matmul_peer.py times PyTorch's
// the same way.
//
// usage: cuda_matmul_bench [--quick] [--main] [--tune] [--json FILE]
//
// A figure is the time of one launch in a CUDA graph of many. Launches go round several sets of
// weights, together far larger than L2. A row says the median over the graph's replays and their
// range. "early" launches may start before the launch before has ended, and all wait for it before
// they read their tokens.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "bench/cuda_bench_kernels.h"
#include "cuda/device.h"
#include "cuda/matmul.h"

namespace gapless {
namespace {

constexpr int64_t kRotatedBytes = int64_t{768} << 20;  // over which the launches of a graph go
constexpr int kMinLaunches = 16;
constexpr double kWarmUs = 30e3;  // before a graph is timed: clocks take that long to rise

struct Projection {
  const char* name;
  int64_t columns;
  int64_t k;
  bool is_gated;
};
constexpr Projection kGateUp = {"gate/up", 17408, 5120, true};
constexpr Projection kDown = {"down", 5120, 17408, false};
constexpr Projection kQkv = {"qkv", 7168, 5120, false};
constexpr Projection kAttentionOutput = {"o", 5120, 5120, false};
constexpr Projection kHead = {"lm_head", 151936, 5120, false};

struct Case {
  Projection projection;
  DType dtype = DType::kS8;
  int tokens = 16;
  bool starts_early = false;
  CudaMatmulTuning tuning = {};
};

struct TimedRow {
  std::string name;
  double median_us = 0.0;
  double min_us = 0.0;
  double max_us = 0.0;
  double bytes = 0.0;

  double rate() const { return bytes / median_us * 1e-6; }  // TB/s
};

struct Options {
  bool is_quick = false;
  bool tunes = false;
  bool has_all_shapes = true;
  std::string json_path;
};

// ---- Timing.

using Launch = std::function<Result<void>(int index, CudaStream stream)>;

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

Result<TimedRow> time_read(const DeviceBuffer& memory, int64_t bytes, int replays) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const int sets = static_cast<int>(std::max<int64_t>(memory.bytes() / bytes, 1));
  const std::string name = "read " + std::to_string(bytes >> 20) + " MiB a launch";
  const Launch launch = [&](int index, CudaStream stream) {
    const std::byte* at = memory.data() + index % sets * bytes;
    return check_cuda(start_reading(at, bytes, limits.sm_count, memory.data(), stream),
                      "launching a read");
  };
  return time_graph(name, static_cast<double>(bytes), std::max(sets, 4), replays, launch);
}

// ---- A case on the device.

// Also good as f32 and as s8: all of it is finite.
Result<DeviceBuffer> random_elements(int64_t bytes, uint64_t seed, const char* what) {
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what));
  uint16_t* values = reinterpret_cast<uint16_t*>(buffer.data());
  GAPLESS_TRY(check_cuda(start_filling(values, bytes / 2, true, seed), "filling memory"));
  GAPLESS_TRY(synchronize(nullptr));
  return buffer;
}

struct CaseBuffers {
  DeviceBuffer weights;  // of all sets
  DeviceBuffer scales;
  DeviceBuffer x;
  DeviceBuffer token_scales;
  DeviceBuffer output;
  DeviceBuffer workspace;
};

CudaMatmulShape shape_of(const Case& c) {
  return {.weights = {.dtype = c.dtype,
                      .columns = c.projection.columns,
                      .k = c.projection.k,
                      .is_gated = c.projection.is_gated},
          .output_dtype = DType::kBf16,
          .max_tokens = c.tokens};
}

std::string name_of(const Case& c) {
  std::string name = std::string(dtype_name(c.dtype)) + " " + c.projection.name + " m" +
                     std::to_string(c.tokens) + (c.starts_early ? " early" : "");
  if (c.tuning.stage_bricks > 0) name += " stage " + std::to_string(c.tuning.stage_bricks);
  if (c.tuning.ring_slots > 0) name += " slots " + std::to_string(c.tuning.ring_slots);
  if (c.tuning.blocks > 0) name += " blocks " + std::to_string(c.tuning.blocks);
  return name;
}

Result<CaseBuffers> make_buffers(const Case& c, const CudaMatmul& matmul, int sets) {
  const CudaWeightShape& shape = matmul.shape().weights;
  CaseBuffers buffers;
  buffers.weights = GAPLESS_TRY(random_elements(sets * cuda_weight_bytes(shape), 3, "weights"));
  buffers.scales = GAPLESS_TRY(random_elements(cuda_weight_rows(shape) * 4, 4, "weight scales"));
  buffers.x = GAPLESS_TRY(random_elements(c.tokens * shape.k * dtype_bytes(c.dtype), 5, "tokens"));
  buffers.token_scales = GAPLESS_TRY(random_elements(c.tokens * 4, 6, "token scales"));
  buffers.output = GAPLESS_TRY(DeviceBuffer::allocate(c.tokens * shape.columns * 2, "outputs"));
  buffers.workspace = GAPLESS_TRY(DeviceBuffer::allocate(matmul.workspace_bytes(), "workspaces"));
  GAPLESS_TRY(matmul.prepare(buffers.workspace.data(), buffers.workspace.bytes(), nullptr));
  return buffers;
}

Result<TimedRow> time_case(const Case& c, int replays) {
  const CudaMatmul matmul = GAPLESS_TRY(CudaMatmul::make(shape_of(c), c.tuning));
  const int64_t bytes = cuda_weight_bytes(matmul.shape().weights);
  const int sets = static_cast<int>(std::max<int64_t>(kRotatedBytes / bytes + 1, 2));
  const CaseBuffers buffers = GAPLESS_TRY(make_buffers(c, matmul, sets));
  const CudaMatmulArgs args = {
      .weights = buffers.weights.data(),
      .weight_scales = reinterpret_cast<const float*>(buffers.scales.data()),
      .tokens = c.tokens,
      .x = buffers.x.data(),
      .x_stride = c.projection.k,
      .token_scales = reinterpret_cast<const float*>(buffers.token_scales.data()),
      .output = buffers.output.data(),
      .output_stride = c.projection.columns,
      .workspace = buffers.workspace.data(),
      .workspace_bytes = buffers.workspace.bytes(),
      .starts_early = c.starts_early};
  GAPLESS_TRY(synchronize(nullptr));
  const Launch launch = [&](int index, CudaStream stream) {
    CudaMatmulArgs set_args = args;
    set_args.weights = buffers.weights.data() + index % sets * bytes;
    return matmul.launch(set_args, stream);
  };
  return time_graph(name_of(c), static_cast<double>(bytes), std::max(sets, kMinLaunches), replays,
                    launch);
}

// ---- What is measured.

void add_main(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const bool starts_early : {false, true}) {
        cases.push_back({.projection = projection, .dtype = dtype, .starts_early = starts_early});
      }
    }
  }
  cases.push_back({.projection = kHead, .dtype = DType::kBf16});
}

// How the kernel may be cut, and bytes in flight.
void add_tuning(std::vector<Case>& cases) {
  const CudaMatmulTuning tunings[] = {{2, 6, 0}, {3, 3, 0}, {3, 4, 0},
                                      {4, 2, 0}, {4, 3, 0}, {6, 2, 0}};
  for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
    for (const bool starts_early : {false, true}) {
      for (const CudaMatmulTuning& tuning : tunings) {
        cases.push_back({.projection = projection, .starts_early = starts_early, .tuning = tuning});
      }
    }
  }
}

void add_sweep(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const int tokens : {1, 4, 8, 17, 32, 64}) {
        cases.push_back({.projection = projection, .dtype = dtype, .tokens = tokens});
      }
    }
  }
}

void print_row(const TimedRow& row, double ceiling) {
  std::printf("%-46s %8.2f us (%.2f-%.2f) %6.3f TB/s %5.1f %%\n", row.name.c_str(), row.median_us,
              row.min_us, row.max_us, row.rate(), 100.0 * row.rate() / ceiling);
  std::fflush(stdout);
}

Result<void> write_json(const std::vector<TimedRow>& rows, double ceiling, const CudaLimits& limits,
                        const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return fail(ErrorCode::kSystem, "{}: cannot be written", path);
  std::fprintf(file, "{\n \"gpu\": \"%s\",\n \"ceiling_tb_s\": %.4f,\n \"rows\": [",
               limits.name.c_str(), ceiling);
  for (size_t i = 0; i < rows.size(); ++i) {
    const TimedRow& row = rows[i];
    std::fprintf(file,
                 "%s\n  {\"what\": \"%s\", \"median_us\": %.3f, \"min_us\": %.3f, "
                 "\"max_us\": %.3f, \"bytes\": %.0f, \"tb_s\": %.4f, \"share_of_ceiling\": %.4f}",
                 i == 0 ? "" : ",", row.name.c_str(), row.median_us, row.min_us, row.max_us,
                 row.bytes, row.rate(), row.rate() / ceiling);
  }
  std::fprintf(file, "\n ]\n}\n");
  if (std::fclose(file) != 0) return fail(ErrorCode::kSystem, "{}: cannot be written", path);
  return {};
}

Result<std::vector<TimedRow>> time_ceilings(int replays) {
  const DeviceBuffer memory = GAPLESS_TRY(random_elements(int64_t{4} << 30, 9, "memory to read"));
  std::vector<TimedRow> rows;
  for (const int64_t mib : {4096, 170, 85, 35}) {
    rows.push_back(GAPLESS_TRY(time_read(memory, mib << 20, replays)));
  }
  return rows;
}

Result<void> measure(const Options& options) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const int replays = options.is_quick ? 5 : 25;
  std::vector<TimedRow> rows = GAPLESS_TRY(time_ceilings(replays));
  const double ceiling = rows.front().rate();
  std::printf("%s, %d SMs; shares are of %.3f TB/s\n", limits.name.c_str(), limits.sm_count,
              ceiling);
  for (const TimedRow& row : rows) print_row(row, ceiling);
  std::vector<Case> cases;
  add_main(cases);
  if (options.tunes) add_tuning(cases);
  if (options.has_all_shapes) add_sweep(cases);
  for (const Case& c : cases) {
    rows.push_back(GAPLESS_TRY(time_case(c, replays)));
    print_row(rows.back(), ceiling);
  }
  if (options.json_path.empty()) return {};
  return write_json(rows, ceiling, limits, options.json_path);
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      options.is_quick = true;
    } else if (argument == "--tune") {
      options.tunes = true;
    } else if (argument == "--main") {
      options.has_all_shapes = false;
    } else if (argument == "--json" && i + 1 < argc) {
      options.json_path = argv[++i];
    } else {
      return fail(ErrorCode::kUsage, "unknown option {}", argument);
    }
  }
  return options;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) {
  const gapless::Result<gapless::Options> options = gapless::parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "cuda_matmul_bench: %s\n", options.error().message.c_str());
    return 2;
  }
  const gapless::Result<void> done = gapless::measure(*options);
  if (done) return 0;
  std::fprintf(stderr, "cuda_matmul_bench: error: %s\n", done.error().message.c_str());
  return 1;
}
