// SPDX-License-Identifier: Apache-2.0

#include "runtime/serial_run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "graph/random_graph.h"
#include "graph/task_context.h"

namespace gapless {
namespace {

constexpr int64_t kElements = 8;
constexpr int64_t kBytes = kElements * 8;
using Row = std::array<int64_t, kElements>;

// y = x + 1 through checked accesses.
void add_one(TaskContext& context) {
  const TensorRef<int64_t> x = context.tensor<int64_t>(0);
  const TensorRef<int64_t> y = context.tensor<int64_t>(1);
  for (int64_t i = 0; i < y.extent(0); ++i) y.store(x.load(i) + 1, i);
}

// y = x + 1 through raw pointers.
void add_one_raw(TaskContext& context) {
  const int64_t* const x = context.data<int64_t>(0);
  int64_t* const y = context.data<int64_t>(1);
  for (int64_t i = 0; i < context.argument(1).view.shape[0]; ++i) y[i] = x[i] + 1;
}

// Takes its argument for a dense one.
void invert_raw(TaskContext& context) {
  int64_t* const y = context.data<int64_t>(0);
  for (int64_t i = 0; i < context.argument(0).view.shape[0]; ++i) y[i] ^= -1;
}

// Not its own inverse and not commutative: the order of such tasks shows.
void times_three_plus(TaskContext& context) {
  const TensorRef<int64_t> y = context.tensor<int64_t>(0);
  for (int64_t i = 0; i < y.extent(0); ++i) {
    const uint64_t value = static_cast<uint64_t>(y.load(i)) * 3;  // wraps
    y.store(static_cast<int64_t>(value + static_cast<uint64_t>(context.scalar(0))), i);
  }
}

void read_outside(TaskContext& context) {
  add_one(context);
  context.tensor<int64_t>(0).load(context.argument(0).view.shape[0]);
}

void write_to_input(TaskContext& context) {
  add_one(context);
  context.tensor<int64_t>(0).store(5, 2);
}

void read_output_first(TaskContext& context) {
  context.tensor<int64_t>(1).load(1);
  add_one(context);
}

void write_input_raw(TaskContext& context) {
  add_one(context);
  context.data<int64_t>(0)[1] ^= -1;
}

void write_beside_raw(TaskContext& context) {
  add_one(context);
  context.data<int64_t>(1)[context.argument(1).view.shape[0]] ^= -1;
}

void write_before_raw(TaskContext& context) {
  add_one(context);
  context.data<int64_t>(1)[-2] ^= -1;
}

void refuse(TaskContext& context) { context.fail("{} is too many", context.scalar(0)); }

void refuse_third_block(TaskContext& context) {
  if (context.block_index() == 2) context.fail("no third one");
}

std::vector<int32_t>* g_blocks = nullptr;
void note_block(TaskContext& context) { g_blocks->push_back(context.block_index()); }

int64_t g_switch = 0;
void set_switch(TaskContext& context) { g_switch = context.scalar(0); }

// What a task has besides its arguments.
struct Extras {
  std::span<const Scalar> scalars = {};
  int32_t block_count = 1;
  bool gang = false;
  std::span<const TaskId> after = {};
  Predicate predicate = {};
};

// A graph of buffers of kElements int64 elements.
class SmallGraph {
 public:
  View buffer(std::string_view name, BufferKind kind = BufferKind::kExternal,
              void* data = nullptr) {
    const Result<BufferId> id =
        builder_.add_buffer({.name = name, .kind = kind, .bytes = kBytes, .data = data});
    EXPECT_TRUE(id.has_value());
    return dense_view(*id, DType::kS64, {kElements});
  }
  void task(std::string name, KernelFunction run, const std::vector<Argument>& arguments,
            const Extras& extras = {}) {
    const Result<KernelId> kernel = builder_.add_kernel(std::move(name), run);
    ASSERT_TRUE(kernel.has_value());
    const Result<TaskId> added = builder_.add_task({.kernel = *kernel,
                                                    .arguments = arguments,
                                                    .scalars = extras.scalars,
                                                    .block_count = extras.block_count,
                                                    .gang = extras.gang,
                                                    .after = extras.after,
                                                    .predicate = extras.predicate});
    ASSERT_TRUE(added.has_value()) << added.error().message;
  }
  Graph finish() { return builder_.finish().value(); }

 private:
  GraphBuilder builder_{{.reduce_edges = false}};
};

Row row_at(GraphMemory& memory, uint32_t buffer) {
  Row row;
  std::memcpy(row.data(), memory.data(BufferId{buffer}), sizeof(row));
  return row;
}

std::string shadow_fault(const Graph& graph) {
  GraphMemory memory(graph, 1);
  const Result<SerialSummary> done = run_serially(graph, memory, {.shadow = true});
  return done ? "" : done.error().message;
}

// x and y are buffers 0 and 1; the task under test is number 1 and may read x[0..4), write y[2..6).
std::string fault_of(KernelFunction run) {
  SmallGraph maker;
  const View x = maker.buffer("x");
  const View y = maker.buffer("y");
  maker.task("first", add_one, {in(x), out(slice(y, 0, 0, 2))});
  maker.task("copy", run, {in(slice(x, 0, 0, 4)), out(slice(y, 0, 2, 4))});
  return shadow_fault(maker.finish());
}

TEST(GraphMemory, CopiesTheCallersBuffersAndFillsTheOthers) {
  Row data = {1, 2, 3, 4, 5, 6, 7, 8};
  SmallGraph maker;
  maker.buffer("x", BufferKind::kExternal, &data);
  maker.buffer("w", BufferKind::kConstant, &data);
  maker.buffer("y");
  maker.buffer("z", BufferKind::kIntermediate);
  const Graph graph = maker.finish();
  GraphMemory memory(graph, 7);
  GraphMemory same(graph, 7);
  GraphMemory other(graph, 8);
  EXPECT_EQ(row_at(memory, 0), data);
  EXPECT_EQ(row_at(memory, 1), data);
  EXPECT_NE(memory.data(BufferId{0}), reinterpret_cast<std::byte*>(&data));
  EXPECT_EQ(row_at(memory, 2), row_at(same, 2));
  EXPECT_NE(row_at(memory, 2), row_at(other, 2));
  EXPECT_NE(row_at(memory, 2), row_at(memory, 3));
  EXPECT_NE(row_at(memory, 3)[0], row_at(memory, 3)[1]);
}

TEST(GraphMemory, FindsTheFirstDifferenceInTheCallersBuffers) {
  Row data = {};
  SmallGraph maker;
  maker.buffer("z", BufferKind::kIntermediate);
  maker.buffer("x", BufferKind::kExternal, &data);
  const Graph graph = maker.finish();
  GraphMemory a(graph, 7);
  GraphMemory b(graph, 8);  // z differs everywhere
  EXPECT_EQ(GraphMemory::first_difference(graph, a, b), "");
  b.data(BufferId{1})[18] = std::byte{20};
  b.data(BufferId{1})[40] = std::byte{1};
  EXPECT_EQ(GraphMemory::first_difference(graph, a, b),
            "buffer 1 ('x') differs at byte 18: 0 and 20");
}

TEST(RunSerially, RunsTasksInOrder) {
  Row data = {1, 2, 3, 4, 5, 6, 7, 8};
  SmallGraph maker;
  const View x = maker.buffer("x", BufferKind::kExternal, &data);
  const View z = maker.buffer("z", BufferKind::kIntermediate);
  const View y = maker.buffer("y");
  maker.task("a", add_one, {in(x), out(z)});
  maker.task("b", add_one_raw, {in(z), out(y)});
  const Graph graph = maker.finish();
  for (const SerialOptions options : {SerialOptions{}, SerialOptions{.shadow = true},
                                      SerialOptions{.order_seed = 5, .shadow = true}}) {
    GraphMemory memory(graph, 1);
    const Result<SerialSummary> done = run_serially(graph, memory, options);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->run_count, 2u);
    EXPECT_EQ(done->skipped_count, 0u);
    EXPECT_EQ(row_at(memory, 0), data);
    EXPECT_EQ(row_at(memory, 2), (Row{3, 4, 5, 6, 7, 8, 9, 10}));
  }
  EXPECT_EQ(data[0], 1);
}

TEST(RunSerially, TakesAGraphWithoutTasksAndKernelsWithoutCode) {
  const Graph empty = make_graph_of_edges(0, {});
  GraphMemory no_memory(empty, 1);
  EXPECT_EQ(run_serially(empty, no_memory).value().run_count, 0u);
  const Graph graph = make_random_edges(3, 50, 100);
  GraphMemory memory(graph, 1);
  EXPECT_EQ(run_serially(graph, memory, {.order_seed = 9, .shadow = true}).value().run_count, 50u);
}

TEST(RunSerially, RunsEveryBlockOnce) {
  std::vector<int32_t> blocks;
  g_blocks = &blocks;
  SmallGraph maker;
  maker.task("blocks", note_block, {}, {.block_count = 20});
  const Graph graph = maker.finish();
  GraphMemory memory(graph, 1);
  EXPECT_EQ(run_serially(graph, memory).value().run_count, 20u);
  std::vector<int32_t> ascending(20);
  for (size_t i = 0; i < 20; ++i) ascending[i] = static_cast<int32_t>(i);
  EXPECT_EQ(blocks, ascending);
  blocks.clear();
  EXPECT_EQ(run_serially(graph, memory, {.order_seed = 1}).value().run_count, 20u);
  EXPECT_NE(blocks, ascending);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, ascending);
}

TEST(RunSerially, AsksPredicatesWhenATaskBecomesReady) {
  Row data = {};
  SmallGraph maker;
  const View x = maker.buffer("x", BufferKind::kExternal, &data);
  const Scalar five = Scalar::fixed(5);
  const TaskId first{0};
  maker.task("switch", set_switch, {}, {.scalars = {&five, 1}});
  maker.task("at_once", times_three_plus, {inout(slice(x, 0, 0, 4))},
             {.scalars = {&five, 1}, .predicate = {&g_switch, Comparison::kEqual, 5}});
  maker.task("later", times_three_plus, {inout(slice(x, 0, 4, 4))},
             {.scalars = {&five, 1},
              .after = {&first, 1},
              .predicate = {&g_switch, Comparison::kEqual, 5}});
  maker.task("after", times_three_plus, {inout(x)}, {.scalars = {&five, 1}});
  const Graph graph = maker.finish();
  g_switch = 0;
  GraphMemory memory(graph, 1);
  const Result<SerialSummary> done = run_serially(graph, memory);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->run_count, 3u);
  EXPECT_EQ(done->skipped_count, 1u);
  EXPECT_EQ(row_at(memory, 0), (Row{5, 5, 5, 5, 20, 20, 20, 20}));
}

TEST(RunSerially, ReportsATasksFailure) {
  SmallGraph maker;
  const Scalar nine = Scalar::fixed(9);
  maker.task("calm", nullptr, {});
  maker.task("refuse", refuse, {}, {.scalars = {&nine, 1}});
  const Graph graph = maker.finish();
  GraphMemory memory(graph, 1);
  EXPECT_EQ(run_serially(graph, memory).error().message, "task 1 (refuse): 9 is too many");
}

TEST(RunSerially, ReportsTheBlockThatFailed) {
  SmallGraph maker;
  maker.task("refuse", refuse_third_block, {}, {.block_count = 5});
  const Graph graph = maker.finish();
  GraphMemory memory(graph, 1);
  EXPECT_EQ(run_serially(graph, memory).error().message,
            "task 0 (refuse), block 2 of 5: no third one");
}

TEST(RunSerially, RefusesGangsAndCycles) {
  SmallGraph maker;
  maker.task("gang", nullptr, {}, {.block_count = 4, .gang = true});
  Graph graph = maker.finish();
  GraphMemory memory(graph, 1);
  EXPECT_EQ(run_serially(graph, memory).error().message,
            "task 0 (gang): a gang of 4 blocks cannot be run serially: its blocks may wait for "
            "each other");
  graph.tasks[0].block_count = 1;
  EXPECT_TRUE(run_serially(graph, memory).has_value());

  const Graph cycle = make_graph_of_edges(2, {{0, 1, EdgeKind::kData}, {1, 0, EdgeKind::kData}});
  GraphMemory no_memory(cycle, 1);
  EXPECT_FALSE(run_serially(cycle, no_memory).has_value());
}

TEST(RunSerially, FindsNoFaultInWellBehavedKernels) {
  EXPECT_EQ(fault_of(add_one), "");
  EXPECT_EQ(fault_of(add_one_raw), "");
}

TEST(RunSerially, FindsReadsOutsideTheView) {
  EXPECT_EQ(fault_of(read_outside),
            "task 1 (copy): argument 0 (in, s64[4] strides [1] at 0): read element 4 (bytes 32..39 "
            "of buffer 0): element 4 is outside the view");
}

TEST(RunSerially, FindsWritesToInputs) {
  EXPECT_EQ(fault_of(write_to_input),
            "task 1 (copy): argument 0 (in, s64[4] strides [1] at 0): wrote element 2 (bytes "
            "16..23 of buffer 0): the argument is only read");
}

TEST(RunSerially, FindsOutputsReadBeforeTheyAreWritten) {
  EXPECT_EQ(fault_of(read_output_first),
            "task 1 (copy): argument 1 (out, s64[4] strides [1] at 2): read element 1 (bytes "
            "24..31 of buffer 1): element 1 is an output that the task has not written yet");
}

TEST(RunSerially, FindsRawWritesToInputs) {
  EXPECT_EQ(fault_of(write_input_raw),
            "task 1 (copy): wrote bytes 8..15 of buffer 0 ('x', 64 bytes), which it did not "
            "declare");
}

TEST(RunSerially, FindsRawWritesBesideTheView) {
  EXPECT_EQ(fault_of(write_beside_raw),
            "task 1 (copy): wrote bytes 48..55 of buffer 1 ('y', 64 bytes), which it did not "
            "declare");
  EXPECT_EQ(fault_of(write_before_raw),
            "task 1 (copy): wrote bytes 0..7 of buffer 1 ('y', 64 bytes), which it did not "
            "declare");
}

TEST(RunSerially, FindsRawWritesOutsideTheBuffer) {
  SmallGraph past;
  const View x = past.buffer("x");
  past.task("past", write_beside_raw, {in(x), out(past.buffer("y"))});
  EXPECT_EQ(shadow_fault(past.finish()),
            "task 0 (past): wrote bytes 64..71 of buffer 1 ('y', 64 bytes), which it did not "
            "declare");
  SmallGraph before;
  const View z = before.buffer("z");
  before.task("before", write_before_raw, {in(z), out(before.buffer("y"))});
  EXPECT_EQ(shadow_fault(before.finish()),
            "task 0 (before): wrote bytes -16..-9 of buffer 1 ('y', 64 bytes), which it did not "
            "declare");
}

TEST(RunSerially, FindsRawWritesBetweenStridedElements) {
  SmallGraph maker;
  maker.buffer("x");
  View every_second = maker.buffer("y");
  every_second.shape[0] = 4;
  every_second.strides[0] = 2;
  maker.task("dense", invert_raw, {inout(every_second)});
  EXPECT_EQ(shadow_fault(maker.finish()),
            "task 0 (dense): wrote bytes 8..15 of buffer 1 ('y', 64 bytes), which it did not "
            "declare");
}

TEST(RunSerially, NamesTheBlockOfAnUndeclaredWrite) {
  SmallGraph maker;
  const View x = maker.buffer("x");
  const View y = maker.buffer("y");
  maker.task("past", write_beside_raw, {in(x), out(slice(y, 0, 0, 7))}, {.block_count = 3});
  EXPECT_EQ(shadow_fault(maker.finish()),
            "task 0 (past), block 0 of 3: wrote bytes 56..63 of buffer 1 ('y', 64 bytes), which it "
            "did not declare");
}

TEST(RunSerially, DoesNotCheckWithoutShadow) {
  SmallGraph maker;
  const View x = maker.buffer("x");
  maker.task("write", write_to_input, {in(x), out(maker.buffer("y"))});
  const Graph graph = maker.finish();
  GraphMemory memory(graph, 1);
  EXPECT_TRUE(run_serially(graph, memory).has_value());
  EXPECT_EQ(row_at(memory, 0)[2], 5);
}

Graph four_in_a_row() {
  SmallGraph maker;
  const View x = maker.buffer("x");
  const std::array<Scalar, 4> values = {Scalar::fixed(1), Scalar::fixed(2), Scalar::fixed(3),
                                        Scalar::fixed(4)};
  for (size_t i = 0; i < values.size(); ++i) {
    maker.task("step_" + std::to_string(i), times_three_plus, {inout(x)},
               {.scalars = {&values[i], 1}});
  }
  return maker.finish();
}

TEST(RunInManyOrders, AcceptsACompleteGraph) {
  EXPECT_TRUE(run_in_many_orders(four_in_a_row(), 50, 1).has_value());
}

TEST(RunInManyOrders, FindsAMissingEdge) {
  Graph graph = four_in_a_row();
  std::vector<GraphEdge> edges = edges_of(graph);
  std::erase_if(edges,
                [](const GraphEdge& edge) { return edge.consumer >= 2 && edge.producer == 1; });
  ASSERT_TRUE(set_edges(graph, edges).has_value());
  const Result<void> found = run_in_many_orders(graph, 50, 1);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("buffer 0 ('x') differs at byte 0: "), std::string::npos)
      << found.error().message;
}

TEST(RunInManyOrders, NamesASeedThatShowsTheFaultAgain) {
  Graph graph = four_in_a_row();
  ASSERT_TRUE(set_edges(graph, {}).has_value());
  const Result<void> found = run_in_many_orders(graph, 50, 3);
  ASSERT_FALSE(found.has_value());
  const std::string& message = found.error().message;
  const std::string before_seed = "(order_seed 0x";
  const size_t at = message.find(before_seed);
  ASSERT_NE(at, std::string::npos) << message;
  const uint64_t order_seed = std::stoull(message.substr(at + before_seed.size()), nullptr, 16);
  GraphMemory expected(graph, 3);
  GraphMemory again(graph, 3);
  ASSERT_TRUE(run_serially(graph, expected).has_value());
  ASSERT_TRUE(run_serially(graph, again, {.order_seed = order_seed}).has_value());
  EXPECT_EQ(message.substr(message.find("buffer")),
            GraphMemory::first_difference(graph, expected, again));
}

TEST(RunInManyOrders, PassesAFailureOn) {
  SmallGraph maker;
  const Scalar nine = Scalar::fixed(9);
  maker.task("refuse", refuse, {}, {.scalars = {&nine, 1}});
  EXPECT_EQ(run_in_many_orders(maker.finish(), 3, 1).error().message,
            "task 0 (refuse): 9 is too many");
}

// Goal: random orders are all orders. Method: three tasks without edges have six.
TEST(RunInManyOrders, ReachesEveryLegalOrder) {
  Graph graph = four_in_a_row();
  ASSERT_TRUE(
      set_edges(graph, {{0, 1, EdgeKind::kData}, {0, 2, EdgeKind::kData}, {0, 3, EdgeKind::kData}})
          .has_value());
  std::vector<Row> results;
  for (uint64_t order_seed = 1; order_seed <= 100; ++order_seed) {
    GraphMemory memory(graph, 1);
    ASSERT_TRUE(run_serially(graph, memory, {.order_seed = order_seed}).has_value());
    results.push_back(row_at(memory, 0));
  }
  std::sort(results.begin(), results.end());
  results.erase(std::unique(results.begin(), results.end()), results.end());
  EXPECT_EQ(results.size(), 6u);
}

}  // namespace
}  // namespace gapless
