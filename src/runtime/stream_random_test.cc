// SPDX-License-Identifier: Apache-2.0
//
// Goal: a program leaves the same bits behind whether it is recorded and run one task after the
// other or submitted to a stream, whatever the workers, the window and the rings.
//
// Method: random programs whose results are a fingerprint of the order in which conflicting tasks
// ran. Their tasks go from the graph into a stream one by one, scopes and all; the stream finds
// the edges itself. Heaps and windows are small, so that everything is reused often.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "graph/random_graph.h"
#include "runtime/serial_run.h"
#include "runtime/stream.h"
#include "runtime/stream_test_support.h"

namespace gapless {
namespace {

// Feeds the tasks of a graph to a stream, in the order in which the graph got them.
class GraphPlayer {
 public:
  GraphPlayer(const Graph& graph, GraphMemory& memory, Stream& stream)
      : graph_(graph), memory_(memory), stream_(stream), buffers_(graph.buffers.size()) {
    for (uint16_t i = 0; i < graph.kernels.size(); ++i) {
      const Kernel& kernel = graph.kernels[KernelId{i}];
      kernels_.push_back(must(stream.add_kernel(kernel.name, kernel.run)));
    }
    add_buffers_of(0);
  }

  void play() {
    tasks_.clear();
    for (uint32_t task = 0; task < graph_.task_count(); ++task) add(task);
    while (scopes_.size() > 1) leave_scope();
  }

 private:
  bool is_inside(uint32_t scope, uint32_t outer) const {
    while (graph_.scopes[scope].depth > graph_.scopes[outer].depth) {
      scope = graph_.scopes[scope].parent;
    }
    return scope == outer;
  }
  void enter_scope(uint32_t scope) {
    if (scope == scopes_.back()) return;
    enter_scope(graph_.scopes[scope].parent);
    stream_.begin_scope();
    scopes_.push_back(scope);
    add_buffers_of(scope);
  }
  void leave_scope() {
    must(stream_.end_scope());
    scopes_.pop_back();
  }
  void add_buffers_of(uint32_t scope) {
    for (uint32_t i = 0; i < graph_.buffers.size(); ++i) {
      const GraphBuffer& buffer = graph_.buffers[i];
      if (buffer.scope != scope) continue;
      const bool is_ours = buffer.kind == BufferKind::kIntermediate;
      buffers_[i] =
          must(stream_.add_buffer({.name = buffer.name,
                                   .kind = buffer.kind,
                                   .bytes = buffer.bytes,
                                   .data = is_ours ? nullptr : memory_.data(BufferId{i})}));
    }
  }
  void add(uint32_t task) {
    const GraphTask& facts = graph_.tasks[task];
    while (!is_inside(facts.scope, scopes_.back())) leave_scope();
    enter_scope(facts.scope);
    std::vector<Argument> arguments;
    for (Argument argument : graph_.arguments_of(task)) {
      argument.view.buffer = buffers_[argument.view.buffer.index()];
      arguments.push_back(argument);
    }
    // The stream finds these edges too; given twice they must do no harm.
    std::vector<TaskId> after;
    if (task % 3 == 0) {
      for (const Edge& edge : graph_.producers_of(task)) after.push_back(tasks_[edge.task]);
    }
    tasks_.push_back(must(stream_.add_task({.kernel = kernels_[facts.kernel.id],
                                            .core = facts.core,
                                            .arguments = arguments,
                                            .scalars = graph_.scalars_of(task),
                                            .block_count = facts.block_count,
                                            .after = after,
                                            .predicate = facts.predicate})));
  }

  const Graph& graph_;
  GraphMemory& memory_;
  Stream& stream_;
  std::vector<KernelId> kernels_;
  std::vector<BufferId> buffers_;       // by buffer of the graph
  std::vector<TaskId> tasks_;           // by task of the graph
  std::vector<uint32_t> scopes_ = {0};  // that are open
};

RandomGraphOptions shape_of(uint64_t seed) {
  RandomGraphOptions options;
  options.task_count = 50 + static_cast<int>(seed * 37 % 150);
  options.buffer_count = 2 + static_cast<int>(seed % 9);
  options.elements = 8 << (seed % 4);
  options.spmd_share = seed % 3 == 0 ? 0.0 : 0.3;
  options.predicate_share = seed % 5 == 0 ? 0.5 : 0.1;
  options.scope_share = seed % 2 == 0 ? 0.1 : 0.25;
  return options;
}

struct StreamCase {
  int worker_count = 1;
  uint32_t window = 16;
};

StreamOptions options_of(const StreamCase& shape, uint64_t seed) {
  StreamOptions options = small_rings();
  options.window_tasks = shape.window;
  options.window_edges = seed % 4 == 0 ? 3 : 512;
  options.ring_count = 1 + static_cast<int>(seed % kMaxStreamRings);
  // One ring holds the intermediates of the whole program, which never go, before all others.
  options.heap_bytes = options.ring_count == kMaxStreamRings ? 4096 : 1 << 16;
  options.max_buffers = 256;
  return options;
}

void expect_stream_agrees(CpuDevice& device, const StreamCase& shape, uint64_t seed) {
  const Graph graph = make_random_graph(seed, shape_of(seed));
  GraphMemory expected(graph, seed);
  GraphMemory memory(graph, seed);
  const std::unique_ptr<Stream> stream = must(Stream::open(device, options_of(shape, seed)));
  GraphPlayer player(graph, memory, *stream);
  const SerialSummary serial = must(run_serially(graph, expected));
  player.play();
  const StreamSummary summary = must(stream->wait());
  EXPECT_EQ(summary.task_count, graph.task_count());
  EXPECT_EQ(summary.run_count, serial.run_count);
  EXPECT_EQ(summary.skipped_count, serial.skipped_count);
  EXPECT_EQ(GraphMemory::first_difference(graph, expected, memory), "");
}

void expect_streams_agree(const StreamCase& shape) {
  const std::unique_ptr<CpuDevice> device = make_device(shape.worker_count);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    expect_stream_agrees(*device, shape, seed * 100 + shape.window);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(StreamRandom, OneWorkerLeavesTheSameBits) {
  for (const uint32_t window : {2u, 16u, 4096u}) {
    SCOPED_TRACE(window);
    expect_streams_agree({.worker_count = 1, .window = window});
  }
}

TEST(StreamRandom, TwoWorkersLeaveTheSameBits) {
  for (const uint32_t window : {2u, 16u, 4096u}) {
    SCOPED_TRACE(window);
    expect_streams_agree({.worker_count = 2, .window = window});
  }
}

TEST(StreamRandom, FourWorkersLeaveTheSameBits) {
  for (const uint32_t window : {2u, 16u, 4096u}) {
    SCOPED_TRACE(window);
    expect_streams_agree({.worker_count = 4, .window = window});
  }
}

TEST(StreamRandom, ClustersLeaveTheSameBits) {
  const std::unique_ptr<CpuDevice> device = must(CpuDevice::create({.cluster_count = 1}));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    expect_stream_agrees(*device, {.worker_count = 3, .window = 16}, seed);
  }
}

// Several programs one after the other in one stream: slots, buffers and the tensor map are those
// that earlier ones have left.
TEST(StreamRandom, ProgramsInARowLeaveTheSameBits) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    const Graph graph = make_random_graph(7, shape_of(7));
    GraphMemory expected(graph, 7);
    GraphMemory memory(graph, 7);
    const std::unique_ptr<Stream> stream = must(
        Stream::open(*device, {.window_tasks = 16, .heap_bytes = 1 << 20, .max_buffers = 4096}));
    GraphPlayer player(graph, memory, *stream);
    for (int step = 0; step < 10; ++step) {
      must(run_serially(graph, expected));
      player.play();
    }
    must(stream->wait());
    EXPECT_EQ(GraphMemory::first_difference(graph, expected, memory), "");
  }
}

// Ten layers of a little network, for whatever takes tasks.
void describe_layers(TaskSink& sink, KernelId copy, KernelId mix, const View& x) {
  for (int64_t layer = 0; layer < 10; ++layer) {
    sink.begin_scope();
    const BufferId buffer = must(sink.add_buffer({.name = "hidden", .bytes = 64}));
    const View hidden = vector_view(buffer, 8);
    const std::vector<Argument> into = {in(x), out(hidden)};
    const std::vector<Argument> back = {in(hidden), out(x)};
    const Scalar number = Scalar::fixed(layer);
    must(sink.add_task({.kernel = copy, .arguments = into}));
    for (int64_t part = 0; part < 4; ++part) {
      const Argument argument = inout(slice(hidden, 0, part * 2, 2));
      must(sink.add_task({.kernel = mix, .arguments = {&argument, 1}, .scalars = {&number, 1}}));
    }
    must(sink.add_task({.kernel = copy, .arguments = back}));
    must(sink.end_scope());
  }
}

TEST(StreamRandom, OneDescriptionServesAGraphAndAStream) {
  Numbers x = {1, 2, 3, 4, 5, 6, 7, 8};
  GraphBuilder builder;
  const KernelId copy = must(builder.add_kernel("copy", copy_kernel));
  const KernelId mix = must(builder.add_kernel("mix", mix_kernel));
  const BufferId buffer = must(builder.add_buffer(
      {.name = "x", .kind = BufferKind::kExternal, .bytes = 64, .data = x.data()}));
  describe_layers(builder, copy, mix, vector_view(buffer, 8));
  const Graph graph = must(builder.finish());
  GraphMemory memory(graph, 1);
  must(run_serially(graph, memory));
  const int64_t* const expected = reinterpret_cast<const int64_t*>(memory.data(buffer));

  const std::unique_ptr<CpuDevice> device = make_device(2);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  const KernelId stream_copy = stream.kernel("copy", copy_kernel);
  const KernelId stream_mix = stream.kernel("mix", mix_kernel);
  describe_layers(*stream.operator->(), stream_copy, stream_mix, xs);
  stream.wait();
  EXPECT_EQ(x, Numbers(expected, expected + 8));
}

}  // namespace
}  // namespace gapless
