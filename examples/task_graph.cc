// SPDX-License-Identifier: Apache-2.0
//
// A graph of tasks: described once, run three ways.
//
// Four layers of a toy network: y = x W in tiles of columns, then every row of y is scaled to
// length one and becomes the next x. Nobody says what must wait for what: each task names the part
// of each buffer that it reads or writes, and the edges follow from that.
//
//   gapless record -o task_graph.gapless -- task_graph     records it
//   gapless info task_graph.gapless                        what the workers did
//   gapless convert task_graph.gapless -o task_graph.pftrace   to look at in Perfetto

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/graph_text.h"
#include "graph/task_context.h"
#include "runtime/cpu_device.h"
#include "runtime/replay.h"
#include "runtime/serial_run.h"
#include "runtime/stream.h"

namespace {

using namespace gapless;

constexpr int64_t kRows = 16;
constexpr int64_t kWidth = 256;
constexpr int64_t kTile = 32;
constexpr int kLayers = 4;
constexpr int64_t kActivationBytes = kRows * kWidth * 4;
constexpr int64_t kWeightBytes = kWidth * kWidth * 4;

// ---- Kernels: plain functions of a TaskContext. The arguments are the views that the task
// ---- declared, so a kernel knows nothing of tiles or layers.

// (rows, width) x (width, columns) -> (rows, columns)
void project(TaskContext& context) {
  const TensorRef<float> x = context.tensor<float>(0);
  const TensorRef<float> weight = context.tensor<float>(1);
  const TensorRef<float> y = context.tensor<float>(2);
  for (int64_t row = 0; row < y.extent(0); ++row) {
    float* const sums = y.write(y.extent(1), row, 0);
    for (int64_t column = 0; column < y.extent(1); ++column) sums[column] = 0.0f;
    for (int64_t k = 0; k < x.extent(1); ++k) {
      const float factor = x.load(row, k);
      const float* const weights = weight.read(y.extent(1), k, 0);
      for (int64_t column = 0; column < y.extent(1); ++column) {
        sums[column] += factor * weights[column];
      }
    }
  }
}

// One block a row: the runtime hands blocks to whichever worker is free.
void normalize(TaskContext& context) {
  const TensorRef<float> y = context.tensor<float>(0);
  const TensorRef<float> next = context.tensor<float>(1);
  const int64_t row = context.block_index();
  const int64_t width = y.extent(1);
  const float* const from = y.read(width, row, 0);
  float* const to = next.write(width, row, 0);
  double square = 0.0;
  for (int64_t i = 0; i < width; ++i) square += double{from[i]} * double{from[i]};
  if (square == 0.0) {
    context.fail("row {} is zero and has no direction", row);
    return;
  }
  const float scale = static_cast<float>(1.0 / std::sqrt(square));
  for (int64_t i = 0; i < width; ++i) to[i] = from[i] * scale;
}

// ---- The network, for whoever takes tasks: a builder that records them, or a stream.

struct Network {
  KernelId project_kernel;
  KernelId normalize_kernel;
  BufferId x;                             // the caller's: input, and output at the end
  std::array<BufferId, kLayers> weights;  // the caller's, never written
};

// Layer by layer: y is needed within a layer only, which is what a scope says.
Result<void> add_layers(TaskSink& sink, const Network& network) {
  const View x = dense_view(network.x, DType::kF32, {kRows, kWidth});
  for (const BufferId weight_buffer : network.weights) {
    const View weight = dense_view(weight_buffer, DType::kF32, {kWidth, kWidth});
    sink.begin_scope();
    const BufferId y_buffer =
        GAPLESS_TRY(sink.add_buffer({.name = "y", .bytes = kActivationBytes}));
    const View y = dense_view(y_buffer, DType::kF32, {kRows, kWidth});
    for (int64_t column = 0; column < kWidth; column += kTile) {
      const std::array<Argument, 3> arguments = {in(x), in(slice(weight, 1, column, kTile)),
                                                 out(slice(y, 1, column, kTile))};
      GAPLESS_TRY(sink.add_task({.kernel = network.project_kernel,
                                 .arguments = arguments,
                                 .cost = {.bytes = kWidth * kTile * 4}}));
    }
    const std::array<Argument, 2> arguments = {in(y), out(x)};
    GAPLESS_TRY(sink.add_task({.kernel = network.normalize_kernel,
                               .arguments = arguments,
                               .block_count = kRows,
                               .cost = {.bytes = kActivationBytes}}));
    GAPLESS_TRY(sink.end_scope());
  }
  return {};
}

struct Memory {
  std::vector<float> x = std::vector<float>(kRows * kWidth);
  std::vector<float> weights = std::vector<float>(kLayers * kWidth * kWidth);
};

// Numbers between -1 and 1 that are the same everywhere.
Memory make_memory() {
  Memory memory;
  uint32_t state = 1;
  for (std::vector<float>* values : {&memory.x, &memory.weights}) {
    for (float& value : *values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  }
  return memory;
}

Result<void> add_buffers(TaskSink& sink, Memory& memory, Network& network) {
  network.x = GAPLESS_TRY(sink.add_buffer({.name = "x",
                                           .kind = BufferKind::kExternal,
                                           .bytes = kActivationBytes,
                                           .data = memory.x.data()}));
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = "weight " + std::to_string(layer);
    network.weights[layer] =
        GAPLESS_TRY(sink.add_buffer({.name = name,
                                     .kind = BufferKind::kConstant,
                                     .bytes = kWeightBytes,
                                     .data = memory.weights.data() + layer * kWidth * kWidth}));
  }
  return {};
}

// ---- Three ways to run it.

Result<Graph> build_graph(Memory& memory) {
  GraphBuilder builder;
  Network network;
  network.project_kernel = GAPLESS_TRY(builder.add_kernel("project", project));
  network.normalize_kernel = GAPLESS_TRY(builder.add_kernel("normalize", normalize));
  GAPLESS_TRY(add_buffers(builder, memory, network));
  GAPLESS_TRY(add_layers(builder, network));
  return builder.finish();
}

// Recorded once, replayed for each step: this is how decode runs.
Result<void> replay_steps(CpuDevice& device, Graph graph, int step_count) {
  Replay replay = GAPLESS_TRY(Replay::prepare(device, std::move(graph)));
  const MemoryPlan& plan = replay.memory_plan();
  std::printf("intermediates take %lld bytes of memory; without sharing it would be %lld\n",
              static_cast<long long>(plan.peak_bytes), static_cast<long long>(plan.sum_bytes));
  for (int step = 0; step < step_count; ++step) GAPLESS_TRY(replay.run());
  return {};
}

// Run while it is being submitted.
Result<void> stream_steps(CpuDevice& device, Memory& memory, int step_count) {
  const std::unique_ptr<Stream> stream = GAPLESS_TRY(Stream::open(device));
  Network network;
  network.project_kernel = GAPLESS_TRY(stream->add_kernel("project", project));
  network.normalize_kernel = GAPLESS_TRY(stream->add_kernel("normalize", normalize));
  GAPLESS_TRY(add_buffers(*stream, memory, network));
  for (int step = 0; step < step_count; ++step) GAPLESS_TRY(add_layers(*stream, network));
  GAPLESS_TRY(stream->wait());
  return {};
}

Result<void> run_example() {
  constexpr int kSteps = 20;
  Memory replayed = make_memory();
  Graph graph = GAPLESS_TRY(build_graph(replayed));
  std::printf("%s\n", graph_text(graph).c_str());

  // Do the edges suffice? Every legal order must give the same bits.
  GAPLESS_TRY(run_in_many_orders(graph, 10, 1));
  std::printf("10 random legal orders give the same bits\n");

  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(CpuDevice::create({.worker_count = 2}));
  GAPLESS_TRY(replay_steps(*device, std::move(graph), kSteps));
  Memory streamed = make_memory();
  GAPLESS_TRY(stream_steps(*device, streamed, kSteps));
  if (replayed.x != streamed.x) {
    return fail(ErrorCode::kInvalidInput, "replay and stream give different results");
  }
  std::printf("%d steps replayed and %d steps streamed on %d workers agree bit by bit\n", kSteps,
              kSteps, device->worker_count());
  return {};
}

}  // namespace

int main() {
  const gapless::Result<void> result = run_example();
  if (result) return 0;
  std::fprintf(stderr, "task_graph: error: %s\n", result.error().message.c_str());
  return 1;
}
