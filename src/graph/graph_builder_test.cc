// SPDX-License-Identifier: Apache-2.0

#include "graph/graph_builder.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/random_graph.h"

namespace gapless {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// A builder with two kernels and four buffers.
struct Fixture {
  explicit Fixture(const GraphBuilderOptions& options = {}) : builder(options) {
    norm = builder.add_kernel("norm", nullptr).value();
    gate_up = builder.add_kernel("gate_up", nullptr).value();
    x = builder.add_buffer({.name = "x", .kind = BufferKind::kExternal, .bytes = 4096}).value();
    w = builder.add_buffer({.name = "w", .kind = BufferKind::kConstant, .bytes = 4096}).value();
    y = builder.add_buffer({.name = "y", .bytes = 4096}).value();
    z = builder.add_buffer({.name = "z", .bytes = 4096}).value();
  }

  Result<TaskId> add(const std::vector<Argument>& arguments,
                     const std::vector<TaskId>& after = {}) {
    return builder.add_task({.kernel = norm, .arguments = arguments, .after = after});
  }
  // What add_task says about one argument.
  std::string refusal(const Argument& argument) {
    const Result<TaskId> task = builder.add_task({.kernel = gate_up, .arguments = {&argument, 1}});
    return task.has_value() ? "accepted" : task.error().message;
  }

  GraphBuilder builder;
  KernelId norm;
  KernelId gate_up;
  BufferId x, w, y, z;
};

View f32(BufferId buffer, std::initializer_list<int64_t> shape = {1024}) {
  return dense_view(buffer, DType::kF32, shape);
}

std::vector<Edge> producers(const Graph& graph, uint32_t task) {
  const std::span<const Edge> edges = graph.producers_of(task);
  return {edges.begin(), edges.end()};
}

TEST(GraphBuilder, KeepsWhatATaskWasGiven) {
  Fixture f;
  int64_t length = 3;
  const std::array<Argument, 2> arguments = {in(f32(f.x)), out(f32(f.y))};
  const std::array<Scalar, 2> scalars = {Scalar::fixed(7), Scalar::read_from(&length)};
  ASSERT_TRUE(f.add({out(f32(f.x))}).has_value());
  const TaskId task = f.builder
                          .add_task({.kernel = f.gate_up,
                                     .core = CoreKind::kVector,
                                     .arguments = arguments,
                                     .scalars = scalars,
                                     .block_count = 5,
                                     .gang = true,
                                     .predicate = {&length, Comparison::kGreater, 2},
                                     .cost = {.bytes = 11, .flops = 12}})
                          .value();
  EXPECT_EQ(task.id, 1u);
  const Graph graph = f.builder.finish().value();
  const GraphTask& facts = graph.tasks[1];
  EXPECT_EQ(graph.kernel_name(1), "gate_up");
  EXPECT_EQ(facts.core, CoreKind::kVector);
  EXPECT_EQ(facts.block_count, 5);
  EXPECT_TRUE(facts.gang);
  EXPECT_EQ(facts.predicate.value, &length);
  EXPECT_EQ(facts.predicate.comparison, Comparison::kGreater);
  EXPECT_EQ(facts.predicate.operand, 2);
  EXPECT_EQ(facts.cost.bytes, 11);
  EXPECT_EQ(facts.cost.flops, 12);
  ASSERT_EQ(graph.arguments_of(1).size(), 2u);
  EXPECT_EQ(graph.arguments_of(1)[0].view, f32(f.x));
  EXPECT_EQ(graph.arguments_of(1)[1].access, Access::kOut);
  ASSERT_EQ(graph.scalars_of(1).size(), 2u);
  EXPECT_EQ(graph.scalars_of(1)[0].value(), 7);
  EXPECT_FALSE(graph.scalars_of(1)[1].is_fixed());
  EXPECT_EQ(graph.buffers[f.w.index()].name, "w");
  EXPECT_EQ(graph.buffers[f.w.index()].kind, BufferKind::kConstant);
}

TEST(GraphBuilder, FindsDataAndOrderEdges) {
  Fixture f({.reduce_edges = false});
  ASSERT_TRUE(f.add({out(f32(f.y))}).has_value());                // 0 writes y
  ASSERT_TRUE(f.add({in(f32(f.y)), out(f32(f.z))}).has_value());  // 1 reads y
  ASSERT_TRUE(f.add({in(f32(f.y)), out(f32(f.x))}).has_value());  // 2 reads y
  ASSERT_TRUE(f.add({out(f32(f.y))}).has_value());                // 3 overwrites y
  ASSERT_TRUE(f.add({inout(f32(f.y))}).has_value());              // 4 updates y
  const Graph graph = f.builder.finish().value();
  EXPECT_TRUE(producers(graph, 0).empty());
  EXPECT_EQ(producers(graph, 1), (std::vector<Edge>{{0, EdgeKind::kData}}));
  EXPECT_EQ(producers(graph, 2), (std::vector<Edge>{{0, EdgeKind::kData}}));
  const std::vector<Edge> writer = producers(graph, 3);
  EXPECT_TRUE(std::count(writer.begin(), writer.end(), Edge{1, EdgeKind::kOrder}) == 1);
  EXPECT_TRUE(std::count(writer.begin(), writer.end(), Edge{2, EdgeKind::kOrder}) == 1);
  const std::vector<Edge> update = producers(graph, 4);
  EXPECT_TRUE(std::count(update.begin(), update.end(), Edge{3, EdgeKind::kData}) == 1);
}

TEST(GraphBuilder, LeavesConstantsAlone) {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    const View part = slice(f32(f.y), 0, i * 10, 10);
    ASSERT_TRUE(f.add({in(f32(f.w)), out(part), in(f32(f.w))}).has_value());
  }
  const Graph graph = f.builder.finish().value();
  EXPECT_TRUE(graph.producers.empty());
  EXPECT_EQ(graph.arguments_of(2).size(), 3u);
}

TEST(GraphBuilder, JoinsDuplicatesIntoTheStrongestKind) {
  Fixture f;
  const TaskId first = f.add({out(f32(f.y)), out(f32(f.z))}).value();
  const TaskId other = f.add({}).value();
  // Data by y, order by z, and by hand.
  ASSERT_TRUE(f.add({in(f32(f.y)), out(f32(f.z))}, {first, other, first}).has_value());
  const Graph graph = f.builder.finish().value();
  EXPECT_EQ(producers(graph, 2), (std::vector<Edge>{{0, EdgeKind::kData}, {1, EdgeKind::kOrder}}));
}

TEST(GraphBuilder, ReducesEdgesOnlyWhenAsked) {
  for (const bool reduce : {false, true}) {
    Fixture f({.reduce_edges = reduce});
    const TaskId a = f.add({}).value();
    const TaskId b = f.add({}, {a}).value();
    ASSERT_TRUE(f.add({}, {a, b}).has_value());
    EXPECT_EQ(f.builder.finish().value().producers.size(), reduce ? 2u : 3u);
  }
}

TEST(GraphBuilder, SaysWhereAViewMissesItsBuffer) {
  Fixture f;
  const View whole = dense_view(f.y, DType::kBf16, {16, 128});
  EXPECT_EQ(f.refusal(out(whole)), "accepted");
  View view = whole;
  view.offset = 512;
  EXPECT_EQ(
      f.refusal(out(view)),
      "gate_up: argument 0 (out, bf16[16,128] strides [128,1] at 512) ends at byte 5120, past "
      "the 4096 bytes of buffer 'y'");
  view.offset = -1;
  EXPECT_EQ(
      f.refusal(in(view)),
      "gate_up: argument 0 (in, bf16[16,128] strides [128,1] at -1) begins at byte -2, before "
      "buffer 'y'");
  view = whole;
  view.strides[0] = -128;  // from the last row to the first
  view.offset = 15 * 128;
  EXPECT_EQ(f.refusal(in(view)), "accepted");
  view.offset = 14 * 128;
  EXPECT_EQ(f.refusal(in(view)),
            "gate_up: argument 0 (in, bf16[16,128] strides [-128,1] at 1792) begins at byte -256, "
            "before buffer 'y'");
  view = whole;
  view.shape[1] = -2;
  EXPECT_EQ(f.refusal(in(view)),
            "gate_up: argument 0 (in, bf16[16,-2] strides [128,1] at 0) has a dimension of -2 "
            "elements");
}

TEST(GraphBuilder, CountsBytesWithoutOverflow) {
  Fixture f;
  const std::string beyond = "reaches further than 64 bits, past buffer 'y'";
  View view = f32(f.y, {2, 2});
  for (const int64_t hostile : {kMost, kMost / 2, kMost / 4, kLeast, kLeast / 2}) {
    SCOPED_TRACE(hostile);
    View moved = view;
    moved.offset = hostile;
    EXPECT_NE(f.refusal(in(moved)).find(beyond), std::string::npos) << f.refusal(in(moved));
    View wide = view;
    wide.shape = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max(), 0, 0};
    wide.strides = {hostile, hostile, 0, 0};
    EXPECT_NE(f.refusal(in(wide)).find(beyond), std::string::npos) << f.refusal(in(wide));
  }
  // The two ends of a view are counted apart: a step back does not make up for one too far.
  view.strides = {kMost / 8, -(kMost / 8), 0, 0};
  EXPECT_NE(f.refusal(in(view)), "accepted");
}

TEST(GraphBuilder, TakesViewsOfNothingWithinTheBuffer) {
  Fixture f;
  View view = f32(f.y, {0, 4});
  view.strides = {kMost, kMost, 0, 0};
  EXPECT_EQ(f.refusal(in(view)), "accepted");
  view.offset = 1024;
  EXPECT_EQ(f.refusal(out(view)), "accepted");
  view.offset = 1025;
  EXPECT_NE(f.refusal(in(view)).find("ends at byte 4100"), std::string::npos);
  const Graph graph = f.builder.finish().value();
  EXPECT_TRUE(graph.producers.empty());
}

TEST(GraphBuilder, RefusesArgumentsThatCannotBe) {
  Fixture f;
  EXPECT_EQ(f.refusal(out(f32(f.w))),
            "gate_up: argument 0 (out, f32[1024] strides [1] at 0) writes buffer 'w', which is "
            "constant");
  EXPECT_NE(f.refusal(inout(f32(f.w))), "accepted");
  EXPECT_EQ(f.refusal(in(f32(BufferId{4}))),
            "gate_up: argument 0 (in, f32[1024] strides [1] at 0) names buffer 0x4, which does not "
            "exist");
  // An index that exists, given out by somebody else.
  EXPECT_NE(f.refusal(in(f32(BufferId{(1u << BufferId::kIndexBits) | f.y.id}))), "accepted");
  View view = f32(f.y);
  view.rank = 5;
  EXPECT_EQ(f.refusal(in(view)), "gate_up: argument 0 has 5 dimensions, more than 4");
  view = f32(f.y);
  view.dtype = static_cast<DType>(99);
  EXPECT_EQ(f.refusal(in(view)), "gate_up: argument 0 has access 0 and type 99: no such");
  EXPECT_EQ(f.refusal({f32(f.y), static_cast<Access>(3)}),
            "gate_up: argument 0 has access 3 and type 4: no such");
}

TEST(GraphBuilder, RefusesTasksThatCannotBe) {
  Fixture f;
  const auto refusal = [&](const TaskSpec& spec) {
    return f.builder.add_task(spec).error().message;
  };
  const std::vector<Argument> arguments(33, in(f32(f.x)));
  const std::vector<Scalar> scalars(17);
  const TaskId future = {0};
  EXPECT_EQ(refusal({.kernel = KernelId{2}}), "a task with kernel 2, but there are 2 kernels");
  EXPECT_EQ(refusal({}), "a task with kernel 65535, but there are 2 kernels");
  EXPECT_EQ(refusal({.kernel = f.norm, .arguments = arguments}),
            "norm: 33 arguments, more than 32");
  EXPECT_EQ(refusal({.kernel = f.norm, .scalars = scalars}), "norm: 17 scalars, more than 16");
  EXPECT_EQ(refusal({.kernel = f.norm, .block_count = 0}),
            "norm: 0 blocks, a task has 1 to 1048576");
  EXPECT_EQ(refusal({.kernel = f.norm, .core = static_cast<CoreKind>(4)}),
            "norm: there is no core kind 4");
  EXPECT_EQ(refusal({.kernel = f.norm, .predicate = {nullptr, static_cast<Comparison>(6), 0}}),
            "norm: there is no comparison 6");
  EXPECT_EQ(refusal({.kernel = f.norm, .cost = {.bytes = -1}}),
            "norm: a cost of -1 bytes and 0 flops");
  EXPECT_EQ(refusal({.kernel = f.norm, .after = {&future, 1}}),
            "norm: to come after task 0, but only 0 tasks come before it");
}

TEST(GraphBuilder, IsUnchangedByATaskThatFails) {
  Fixture f;
  ASSERT_TRUE(f.add({out(f32(f.y))}).has_value());
  // The first argument would be a new writer of y; the second is wrong.
  EXPECT_FALSE(f.add({out(f32(f.y)), out(f32(f.w))}).has_value());
  EXPECT_FALSE(f.add({out(f32(f.y))}, {TaskId{1}}).has_value());
  EXPECT_EQ(f.builder.task_count(), 1u);
  EXPECT_EQ(f.add({in(f32(f.y))}).value().id, 1u);
  const Graph graph = f.builder.finish().value();
  EXPECT_EQ(graph.arguments.size(), 2u);
  EXPECT_EQ(producers(graph, 1), (std::vector<Edge>{{0, EdgeKind::kData}}));
}

TEST(GraphBuilder, RefusesBuffersThatCannotBe) {
  GraphBuilder builder;
  EXPECT_EQ(builder.add_buffer({.name = "y", .bytes = -1}).error().message,
            "buffer 'y' with -1 bytes");
  EXPECT_EQ(builder.add_buffer({.name = "y", .kind = static_cast<BufferKind>(3)}).error().message,
            "buffer 'y': there is no buffer kind 3");
  for (uint32_t i = 0; i < BufferId::kIndexMask; ++i) {
    ASSERT_EQ(builder.add_buffer({}).value().id, i);
  }
  EXPECT_EQ(builder.add_buffer({.name = "y"}).error().message,
            "buffer 'y': there are 1048575 buffers, no more are possible");
}

TEST(GraphBuilder, RecordsScopes) {
  Fixture f;
  ASSERT_TRUE(f.add({}).has_value());
  f.builder.begin_scope();
  ASSERT_TRUE(f.add({}).has_value());
  f.builder.begin_scope();
  const BufferId inner = f.builder.add_buffer({.name = "inner", .bytes = 64}).value();
  ASSERT_TRUE(f.add({}).has_value());
  ASSERT_TRUE(f.builder.end_scope().has_value());
  ASSERT_TRUE(f.builder.end_scope().has_value());
  ASSERT_TRUE(f.add({}).has_value());
  const Graph graph = f.builder.finish().value();
  ASSERT_EQ(graph.scopes.size(), 3u);
  EXPECT_EQ(graph.scopes[0].first_task, 0u);
  EXPECT_EQ(graph.scopes[0].end_task, 4u);
  EXPECT_EQ(graph.scopes[1].depth, 1u);
  EXPECT_EQ(graph.scopes[1].first_task, 1u);
  EXPECT_EQ(graph.scopes[1].end_task, 3u);
  EXPECT_EQ(graph.scopes[2].parent, 1u);
  EXPECT_EQ(graph.scopes[2].depth, 2u);
  EXPECT_EQ(graph.scopes[2].first_task, 2u);
  EXPECT_EQ(graph.tasks[2].scope, 2u);
  EXPECT_EQ(graph.tasks[3].scope, 0u);
  EXPECT_EQ(graph.buffers[inner.index()].scope, 2u);
}

TEST(GraphBuilder, RefusesAnIntermediateWhoseScopeHasEnded) {
  Fixture f;
  f.builder.begin_scope();
  const BufferId local = f.builder.add_buffer({.name = "local", .bytes = 64}).value();
  const BufferId external =
      f.builder.add_buffer({.name = "kept", .kind = BufferKind::kExternal, .bytes = 64}).value();
  EXPECT_EQ(f.refusal(out(f32(local, {16}))), "accepted");
  EXPECT_EQ(f.refusal(out(f32(external, {16}))), "accepted");
  f.builder.begin_scope();
  EXPECT_EQ(f.refusal(in(f32(local, {16}))), "accepted");
  ASSERT_TRUE(f.builder.end_scope().has_value());
  EXPECT_EQ(f.refusal(in(f32(local, {16}))), "accepted");
  ASSERT_TRUE(f.builder.end_scope().has_value());
  const std::string ended =
      "gate_up: argument 0 (in, f32[16] strides [1] at 0) uses buffer 'local', whose scope 1 ended "
      "after 4 tasks";
  EXPECT_EQ(f.refusal(in(f32(local, {16}))), ended);
  f.builder.begin_scope();  // another scope of the same depth does not bring it back
  EXPECT_EQ(f.refusal(in(f32(local, {16}))), ended);
  EXPECT_EQ(f.refusal(in(f32(external, {16}))), "accepted");
  ASSERT_TRUE(f.builder.end_scope().has_value());
  const Graph graph = f.builder.finish().value();
  EXPECT_EQ(producers(graph, 4), (std::vector<Edge>{{1, EdgeKind::kData}}));
}

TEST(GraphBuilder, RefusesScopesThatDoNotMatch) {
  Fixture f;
  EXPECT_EQ(f.builder.end_scope().error().message,
            "the end of a scope after 0 tasks, but none is open");
  f.builder.begin_scope();
  ASSERT_TRUE(f.add({}).has_value());
  f.builder.begin_scope();
  EXPECT_EQ(f.builder.finish().error().message,
            "2 scopes are still open at the end; the innermost began after 1 tasks");
  ASSERT_TRUE(f.builder.end_scope().has_value());
  ASSERT_TRUE(f.builder.end_scope().has_value());
  EXPECT_EQ(f.builder.finish().value().task_count(), 1u);
}

TEST(GraphBuilder, TakesMoreTasksThanItExpects) {
  Fixture f({.expected_tasks = 2});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(f.add({inout(f32(f.y)), in(f32(f.x))}).has_value());
  const Graph graph = f.builder.finish().value();
  EXPECT_EQ(graph.task_count(), 10u);
  EXPECT_EQ(graph.producers.size(), 9u);
}

TEST(GraphBuilder, IsEmptyAfterTheEnd) {
  Fixture f;
  ASSERT_TRUE(f.add({out(f32(f.y))}).has_value());
  ASSERT_TRUE(f.builder.finish().has_value());
  EXPECT_EQ(f.builder.task_count(), 0u);
  const Graph graph = f.builder.finish().value();
  EXPECT_EQ(graph.kernels.size(), 0u);
  EXPECT_TRUE(graph.buffers.empty());
  EXPECT_EQ(graph.scopes.size(), 1u);
  EXPECT_EQ(graph.producer_begin.size(), 1u);
}

// Elements of a view, as bytes of its buffer: the slow way.
std::vector<bool> bytes_of(const View& view, int64_t buffer_bytes) {
  std::vector<bool> bytes(static_cast<size_t>(buffer_bytes), false);
  const int64_t size = dtype_bytes(view.dtype);
  const int64_t rows = view.shape[0];
  const int64_t columns = view.rank == 2 ? view.shape[1] : 1;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t element = view.offset + row * view.strides[0] + column * view.strides[1];
      for (int64_t i = 0; i < size; ++i) bytes[static_cast<size_t>(element * size + i)] = true;
    }
  }
  return bytes;
}

bool meet(const std::vector<bool>& a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

// Whether two tasks touch a common byte that one of them writes.
bool conflict(const Graph& graph, uint32_t a, uint32_t b) {
  for (const Argument& first : graph.arguments_of(a)) {
    for (const Argument& second : graph.arguments_of(b)) {
      if (first.view.buffer != second.view.buffer) continue;
      if (!writes(first.access) && !writes(second.access)) continue;
      const int64_t bytes = graph.buffers[first.view.buffer.index()].bytes;
      if (meet(bytes_of(first.view, bytes), bytes_of(second.view, bytes))) return true;
    }
  }
  return false;
}

// Goal: the edges are right for whole programs. Method: random programs, against conflicts that are
// found byte by byte: two tasks that conflict are ordered as they were added, and every edge that
// nobody asked for by hand is between tasks that conflict.
TEST(GraphBuilder, OrdersExactlyWhatConflicts) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraphOptions options = {
        .task_count = 60, .buffer_count = 4, .elements = 64, .after_share = 0.0};
    options.reduce_edges = false;
    const Graph graph = make_random_graph(seed, options);
    const Closure closure(graph);
    for (uint32_t b = 0; b < graph.task_count(); ++b) {
      for (uint32_t a = 0; a < b; ++a) {
        EXPECT_TRUE(!conflict(graph, a, b) || closure.at(a, b)) << a << " before " << b;
        EXPECT_FALSE(closure.at(b, a));
      }
      for (const Edge& edge : graph.producers_of(b)) {
        EXPECT_TRUE(conflict(graph, edge.task, b)) << edge.task << " before " << b;
      }
    }
  }
}

TEST(GraphBuilder, KeepsTheOrderOfProgramsWhenItReduces) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Graph reduced = make_random_graph(seed, {.after_share = 0.2});
    const Graph full = make_random_graph(seed, {.after_share = 0.2, .reduce_edges = false});
    EXPECT_LT(reduced.producers.size(), full.producers.size());
    EXPECT_EQ(Closure(reduced), Closure(full));
    for (const GraphEdge& edge : edges_of(full)) EXPECT_LT(edge.producer, edge.consumer);
  }
}

// Goal: the quick look never takes what the close one refuses.
// Method: random views, many of them wrong by a little, and hostile ones.
TEST(GraphBuilder, TheQuickLookAtAViewIsRight) {
  KernelTable kernels;
  const KernelId kernel = *kernels.add("kernel", nullptr);
  std::mt19937_64 random(1);
  const auto pick = [&random](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  uint32_t plain_count = 0;
  for (int round = 0; round < 200000; ++round) {
    View view;
    view.rank = static_cast<uint8_t>(pick(0, 5));
    view.dtype = static_cast<DType>(pick(0, kDTypeCount - 1));
    view.offset = pick(0, 9) == 0 ? pick(-5, INT64_MAX) : pick(-1, 20);
    for (size_t i = 0; i < kMaxRank; ++i) {
      const bool is_used = i < view.rank || pick(0, 19) == 0;
      if (!is_used) continue;
      view.shape[i] =
          static_cast<int32_t>(pick(0, 19) == 0 ? pick(INT32_MIN, INT32_MAX) : pick(0, 4));
      view.strides[i] = pick(0, 19) == 0 ? pick(INT64_MIN, INT64_MAX) : pick(-1, 8);
    }
    const int64_t bytes = pick(0, 400);
    if (!is_plainly_inside(view, bytes)) continue;
    ++plain_count;
    const Argument argument = in(view);
    const TaskSpec spec = {.kernel = kernel, .arguments = {&argument, 1}};
    const Result<void> close =
        check_argument(spec, 0, kernels, {bytes, BufferKind::kExternal, "x"});
    ASSERT_TRUE(close.has_value()) << close.error().message;
  }
  EXPECT_GT(plain_count, 10000u);
}

}  // namespace
}  // namespace gapless
