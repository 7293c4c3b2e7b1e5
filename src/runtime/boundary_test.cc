// SPDX-License-Identifier: Apache-2.0

#include "runtime/boundary.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "runtime/test_graphs.h"

namespace gapless {
namespace {

constexpr int64_t kCount = 4;
constexpr int64_t kBytes = kCount * 8;

// Arguments: a, b, sum.
void add_kernel(TaskContext& context) {
  for (int64_t i = 0; i < kCount; ++i) {
    context.data<int64_t>(2)[i] = context.data<int64_t>(0)[i] + context.data<int64_t>(1)[i];
  }
}

// sum = a + b, where all three are the caller's.
struct SumGraph {
  BufferId a;
  BufferId b;
  BufferId sum;
  Graph graph;
};

SumGraph make_sum_graph() {
  SumGraph made;
  TestGraph graph;
  made.a = graph.add_buffer({.name = "a", .kind = BufferKind::kExternal, .bytes = kBytes});
  made.b = graph.add_buffer({.name = "b", .kind = BufferKind::kConstant, .bytes = kBytes});
  made.sum = graph.add_buffer({.name = "sum", .kind = BufferKind::kExternal, .bytes = kBytes});
  graph.add({.name = "add",
             .run = add_kernel,
             .arguments = {in(vector_view(made.a, kCount)), in(vector_view(made.b, kCount)),
                           out(vector_view(made.sum, kCount))}});
  made.graph = graph.finish();
  return made;
}

class BoundaryTest : public ::testing::Test {
 protected:
  std::string bind(const std::vector<Binding>& bindings) {
    return text_of(boundary_.bind(made_.graph, bindings));
  }
  std::string bind_all(void* a, void* b, void* sum) {
    return bind({{made_.a, a, kBytes}, {made_.b, b, kBytes}, {made_.sum, sum, kBytes}});
  }
  const std::byte* address(BufferId buffer) const { return boundary_.addresses()[buffer.index()]; }

  SumGraph made_ = make_sum_graph();
  Boundary boundary_{made_.graph};
  alignas(64) std::array<std::byte, 256> memory_ = {};
  std::byte* at(size_t byte) { return memory_.data() + byte; }
};

TEST_F(BoundaryTest, RefusesABufferWithoutMemory) {
  EXPECT_EQ(bind({}), "buffer 0 ('a', 32 bytes) is not bound to memory");
  EXPECT_EQ(bind({{made_.a, at(0), kBytes}, {made_.b, at(32), kBytes}}),
            "buffer 2 ('sum', 32 bytes) is not bound to memory");
  EXPECT_EQ(bind_all(at(0), at(32), nullptr), "buffer 2 ('sum', 32 bytes) is not bound to memory");
}

TEST_F(BoundaryTest, AcceptsDistinctMemory) {
  EXPECT_EQ(bind_all(at(0), at(32), at(64)), "accepted");
  EXPECT_EQ(address(made_.a), at(0));
  EXPECT_EQ(address(made_.b), at(32));
  EXPECT_EQ(address(made_.sum), at(64));
  EXPECT_EQ(bind({}), "accepted") << "what was bound stays bound";
}

TEST_F(BoundaryTest, RefusesAnotherSize) {
  EXPECT_EQ(bind({{made_.a, at(0), 16}}),
            "binding of buffer 0 ('a'): 16 bytes, but the graph was recorded with 32");
  EXPECT_EQ(bind({{made_.a, at(0), 64}}),
            "binding of buffer 0 ('a'): 64 bytes, but the graph was recorded with 32");
}

TEST_F(BoundaryTest, RefusesABufferThatDoesNotExist) {
  EXPECT_EQ(bind({{BufferId{9}, at(0), kBytes}}), "binding of buffer 9: the graph has 3 buffers");
}

TEST_F(BoundaryTest, RefusesAMisalignedAddress) {
  EXPECT_EQ(bind_all(at(0), at(36), at(128)),
            fmt::format("buffer 1 ('b') is bound to address {:#x}, which is not a multiple of 8",
                        reinterpret_cast<uintptr_t>(at(36))));
}

TEST_F(BoundaryTest, RefusesMemoryThatIsWrittenAndShared) {
  EXPECT_EQ(bind_all(at(0), at(64), at(0)),
            "buffers 0 ('a') and 2 ('sum') share memory, and the graph writes 'sum'; edges between "
            "them were not recorded");
  EXPECT_EQ(bind_all(at(0), at(64), at(24)),
            "buffers 0 ('a') and 2 ('sum') share memory, and the graph writes 'sum'; edges between "
            "them were not recorded");
  EXPECT_EQ(bind_all(at(0), at(96), at(72)),
            "buffers 2 ('sum') and 1 ('b') share memory, and the graph writes 'sum'; edges between "
            "them were not recorded");
}

TEST_F(BoundaryTest, AcceptsSharedMemoryThatIsOnlyRead) {
  EXPECT_EQ(bind_all(at(0), at(0), at(64)), "accepted");
  EXPECT_EQ(bind_all(at(0), at(16), at(64)), "accepted");
}

TEST_F(BoundaryTest, AcceptsMemoryThatTouchesButDoesNotOverlap) {
  EXPECT_EQ(bind_all(at(0), at(64), at(32)), "accepted");
}

// A long buffer that is only read may hide behind a short one that begins later.
TEST(Boundary, SeesAnOverlapBehindAShorterBuffer) {
  alignas(8) std::array<std::byte, 64> memory = {};
  TestGraph builder;
  const BufferId wide =
      builder.add_buffer({.name = "wide", .kind = BufferKind::kExternal, .bytes = 64});
  const BufferId short_one =
      builder.add_buffer({.name = "short", .kind = BufferKind::kExternal, .bytes = 8});
  const BufferId result =
      builder.add_buffer({.name = "result", .kind = BufferKind::kExternal, .bytes = 8});
  builder.add({.run = nullptr,
               .arguments = {in(vector_view(wide, 8)), in(vector_view(short_one, 1)),
                             out(vector_view(result, 1))}});
  const Graph graph = builder.finish();
  Boundary boundary(graph);
  const std::vector<Binding> bindings = {{wide, memory.data(), 64},
                                         {short_one, memory.data() + 8, 8},
                                         {result, memory.data() + 32, 8}};
  EXPECT_EQ(text_of(boundary.bind(graph, bindings)),
            "buffers 0 ('wide') and 2 ('result') share memory, and the graph writes 'result'; "
            "edges between them were not recorded");
}

TEST(Boundary, AsksOnlyForTheAlignmentOfWhatIsUsed) {
  alignas(8) std::array<std::byte, 64> memory = {};
  TestGraph builder;
  const BufferId bytes =
      builder.add_buffer({.name = "bytes", .kind = BufferKind::kExternal, .bytes = 8});
  builder.add_buffer({.name = "unused", .kind = BufferKind::kExternal, .bytes = 8});
  builder.add({.run = nullptr, .arguments = {in(vector_view(bytes, 8, DType::kU8))}});
  const Graph graph = builder.finish();
  Boundary boundary(graph);
  const std::vector<Binding> bindings = {{bytes, memory.data() + 3, 8}};
  EXPECT_EQ(text_of(boundary.bind(graph, bindings)), "accepted");
}

TEST(Boundary, RefusesToBindAnIntermediate) {
  TestGraph builder;
  const BufferId own = builder.add_buffer({.name = "own", .bytes = 8});
  builder.add({.run = nullptr, .arguments = {out(vector_view(own, 1))}});
  const Graph graph = builder.finish();
  Boundary boundary(graph);
  int64_t memory = 0;
  const std::vector<Binding> bindings = {{own, &memory, 8}};
  EXPECT_EQ(text_of(boundary.bind(graph, bindings)),
            "binding of buffer 0 ('own'): it is an intermediate, whose memory is planned");
}

TEST_F(BoundaryTest, AFailedBindLeavesTheOldAddresses) {
  ASSERT_EQ(bind_all(at(0), at(32), at(64)), "accepted");
  EXPECT_NE(bind_all(at(128), at(160), at(128)), "accepted");
  EXPECT_NE(bind({{made_.a, at(128), kBytes}, {made_.b, at(160), 1}}), "accepted");
  EXPECT_EQ(address(made_.a), at(0));
  EXPECT_EQ(address(made_.b), at(32));
  EXPECT_EQ(address(made_.sum), at(64));
  EXPECT_EQ(bind({}), "accepted");
}

TEST(BoundaryOfReplay, AStepUsesTheNewAddresses) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  SumGraph made = make_sum_graph();
  Replay replay = must(Replay::prepare(*device, std::move(made.graph)));
  std::vector<int64_t> a = {1, 2, 3, 4};
  std::vector<int64_t> b = {10, 20, 30, 40};
  std::vector<int64_t> first(kCount, 0);
  std::vector<int64_t> second(kCount, 0);
  EXPECT_EQ(text_of(replay.run()), "buffer 0 ('a', 32 bytes) is not bound to memory");
  must(replay.run(
      std::vector<Binding>{bind_to(made.a, a), bind_to(made.b, b), bind_to(made.sum, first)}));
  EXPECT_EQ(first, (std::vector<int64_t>{11, 22, 33, 44}));
  EXPECT_EQ(replay.address(made.sum), reinterpret_cast<std::byte*>(first.data()));

  std::vector<int64_t> other_a = {5, 5, 5, 5};
  must(replay.run(std::vector<Binding>{bind_to(made.a, other_a), bind_to(made.sum, second)}));
  EXPECT_EQ(second, (std::vector<int64_t>{15, 25, 35, 45}));
  EXPECT_EQ(first, (std::vector<int64_t>{11, 22, 33, 44})) << "the old memory is left alone";
}

TEST(BoundaryOfReplay, ARefusedStepRunsNothingAndTheNextOneUsesTheOldAddresses) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  SumGraph made = make_sum_graph();
  Replay replay = must(Replay::prepare(*device, std::move(made.graph)));
  std::vector<int64_t> a = {1, 2, 3, 4};
  std::vector<int64_t> b = {10, 20, 30, 40};
  std::vector<int64_t> sum(kCount, 0);
  must(replay.run(
      std::vector<Binding>{bind_to(made.a, a), bind_to(made.b, b), bind_to(made.sum, sum)}));
  sum.assign(kCount, 0);
  EXPECT_FALSE(replay.run(std::vector<Binding>{bind_to(made.a, sum)}).has_value());
  EXPECT_EQ(sum, std::vector<int64_t>(kCount, 0));
  must(replay.run());
  EXPECT_EQ(sum, (std::vector<int64_t>{11, 22, 33, 44}));
}

TEST(BoundaryOfReplay, MemoryThatTheGraphKnowsNeedsNoBinding) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  std::vector<int64_t> a = {1, 2, 3, 4};
  std::vector<int64_t> sum(kCount, 0);
  TestGraph builder;
  const BufferId in_buffer = builder.add_buffer(
      {.name = "a", .kind = BufferKind::kExternal, .bytes = kBytes, .data = a.data()});
  const BufferId sum_buffer = builder.add_buffer(
      {.name = "sum", .kind = BufferKind::kExternal, .bytes = kBytes, .data = sum.data()});
  const View whole = vector_view(in_buffer, kCount);
  builder.add({.name = "add",
               .run = add_kernel,
               .arguments = {in(whole), in(whole), out(vector_view(sum_buffer, kCount))}});
  Replay replay = must(Replay::prepare(*device, builder.finish()));
  must(replay.run());
  EXPECT_EQ(sum, (std::vector<int64_t>{2, 4, 6, 8}));
}

}  // namespace
}  // namespace gapless
