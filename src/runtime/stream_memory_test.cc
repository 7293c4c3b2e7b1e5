// SPDX-License-Identifier: Apache-2.0
//
// Intermediate buffers of a stream: whose memory it is, when it is given out again, and that a
// stream of any length needs no more of it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "runtime/stream.h"
#include "runtime/stream_test_support.h"

namespace gapless {
namespace {

// Arguments: from. Scalars: what every element must be.
void check_kernel(TaskContext& context) {
  const int64_t* const from = context.data<int64_t>(0);
  for (int64_t i = 0; i < context.argument(0).view.shape[0]; ++i) {
    if (from[i] == context.scalar(0)) continue;
    context.fail("element {} is {}, not {}", i, from[i], context.scalar(0));
    return;
  }
}
TestTask check_task_for(const View& from, int64_t value) {
  return {.name = "check",
          .run = check_kernel,
          .scalars = {Scalar::fixed(value)},
          .arguments = {in(from)}};
}
// The same after others had time to do harm.
void check_late_kernel(TaskContext& context) {
  ::sched_yield();
  check_kernel(context);
}
TestTask check_late(const View& from, int64_t value) {
  TestTask task = check_task_for(from, value);
  task.name = "check_late";
  task.run = check_late_kernel;
  return task;
}

uint64_t resident_bytes() {
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long total = 0;
  long long resident = 0;
  const int count = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return count == 2 ? static_cast<uint64_t>(resident * ::sysconf(_SC_PAGESIZE)) : 0;
}

TEST(StreamMemory, IntermediatesCarryDataThroughNestedScopes) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(16, 1);
    int64_t expected = 1;
    TestStream stream(*device, small_rings());
    const View xs = stream.share("x", x);
    for (int64_t i = 0; i < 200; ++i) {
      stream->begin_scope();
      const View outer = stream.add_intermediate("outer", 16);
      stream.add(copy_task(xs, outer));
      stream.add(mix_task(outer, i));
      stream->begin_scope();
      const View inner = stream.add_intermediate("inner", 16);
      stream.add(copy_task(outer, inner));
      stream.add(mix_task(inner, i + 1));
      stream.add(copy_task(inner, outer));
      must(stream->end_scope());
      stream.add(copy_task(outer, xs));
      must(stream->end_scope());
      expected = mixed(mixed(expected, i), i + 1);
    }
    stream.wait();
    EXPECT_EQ(x, Numbers(16, expected));
  }
}

// Goal: memory is given out again only after all tasks that use it have ended.
// Method: every buffer is filled with its number and read by several slow tasks; the heap holds a
// few of them, the window many more tasks.
TEST(StreamMemory, IsReusedOnlyAfterItsTasksHaveEnded) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    StreamOptions options = small_rings();
    options.heap_bytes = 4096;
    TestStream stream(*device, options);
    std::mt19937_64 random(static_cast<uint64_t>(worker_count));
    for (int64_t i = 0; i < 300; ++i) {
      stream->begin_scope();
      const View buffer = stream.add_intermediate("x", 1 + static_cast<int64_t>(random() % 200));
      stream.add(fill_task(buffer, i));
      stream.add(check_late(buffer, i));
      stream.add(check_task_for(buffer, i));
      stream.add(check_late(buffer, i));
      must(stream->end_scope());
    }
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.run_count, 1200u);
    EXPECT_LE(summary.heap_peak_bytes, 4096);
    EXPECT_GT(summary.heap_peak_bytes, 1024);
  }
}

TEST(StreamMemory, WaitsForTheHeapWhereTheWindowHasRoom) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options;
  options.heap_bytes = 1024;
  TestStream stream(*device, options);
  for (int64_t i = 0; i < 100; ++i) {
    stream->begin_scope();
    const View buffer = stream.add_intermediate("x", 128);
    stream.add(fill_task(buffer, i));
    stream.add(check_task_for(buffer, i));
    must(stream->end_scope());
  }
  EXPECT_EQ(stream.wait().waited_count, 99u) << "one buffer fits at a time";
}

// Each level fills a buffer, goes deeper, and finds its own as it was.
void go_deeper(TestStream& stream, int64_t depth, int64_t value) {
  if (depth == 0) return;
  stream->begin_scope();
  const View buffer = stream.add_intermediate("level", 8 + depth);
  stream.add(fill_task(buffer, value + depth));
  go_deeper(stream, depth - 1, value);
  stream.add(check_task_for(buffer, value + depth));
  must(stream->end_scope());
}

TEST(StreamMemory, ScopesMayBeDeeperThanThereAreRings) {
  for (const int ring_count : {1, 2, 4}) {
    SCOPED_TRACE(ring_count);
    const std::unique_ptr<CpuDevice> device = make_device(2);
    StreamOptions options = small_rings();
    options.ring_count = ring_count;
    options.window_tasks = 8;
    options.heap_bytes = 4096;
    TestStream stream(*device, options);
    for (int64_t i = 0; i < 50; ++i) go_deeper(stream, 12, i * 100);
    EXPECT_EQ(stream.wait().run_count, 50u * 24);
  }
}

TEST(StreamMemory, ABufferLargerThanTheHeapIsRefused) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  EXPECT_EQ(text_of(stream->add_buffer({.name = "big", .bytes = 65537})),
            "buffer 'big': 65537 bytes, but a heap ring has 65536");
  stream->begin_scope();
  const View whole = stream.add_intermediate("whole", 8192);
  stream.add(fill_task(whole, 5));
  stream.add(check_task_for(whole, 5));
  must(stream->end_scope());
  stream.wait();
}

TEST(StreamMemory, OpenScopesThatHoldEverythingAreAnErrorAndNoHang) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  TestStream stream(*device, small_rings());
  stream->begin_scope();
  const View first = stream.add_intermediate("first", 4096);
  const View second = stream.add_intermediate("second", 4096);
  stream.add(fill_task(first, 1));
  EXPECT_EQ(text_of(stream->add_buffer({.name = "third", .bytes = 8})),
            "buffer 'third': 8 bytes do not fit: scopes that are still open hold 65536 of the "
            "65536 bytes of heap ring 1, from buffer 'first' on");
  // What is there is as it was, and a deeper scope has a ring of its own.
  stream.add(fill_task(second, 2));
  stream->begin_scope();
  const View inner = stream.add_intermediate("inner", 8192);
  stream.add(fill_task(inner, 3));
  stream.add(check_task_for(first, 1));
  stream.add(check_task_for(second, 2));
  stream.add(check_task_for(inner, 3));
  must(stream->end_scope());
  must(stream->end_scope());
  stream->begin_scope();
  const View third = stream.add_intermediate("third", 8192);
  stream.add(fill_task(third, 4));
  stream.add(check_task_for(third, 4));
  must(stream->end_scope());
  EXPECT_EQ(stream.wait().run_count, 8u);
}

// The oldest buffer can be waited for, the next one cannot: tasks end first, then the error comes.
TEST(StreamMemory, AClosedScopeBeforeAnOpenOneIsWaitedForOnce) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.ring_count = 1;
  TestStream stream(*device, options);
  stream->begin_scope();
  stream.add(fill_task(stream.add_intermediate("closed", 4096), 1));
  must(stream->end_scope());
  stream->begin_scope();
  stream.add_intermediate("open", 4096);
  EXPECT_EQ(text_of(stream->add_buffer({.name = "large", .bytes = 65536})),
            "buffer 'large': 65536 bytes do not fit: scopes that are still open hold 32768 of the "
            "65536 bytes of heap ring 0, from buffer 'open' on");
  const View fits = stream.add_intermediate("fits", 4096);
  stream.add(fill_task(fits, 2));
  stream.add(check_task_for(fits, 2));
  must(stream->end_scope());
  EXPECT_EQ(stream.wait().run_count, 3u);
}

TEST(StreamMemory, ABufferIsGoneWhenItsScopeEnds) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.max_buffers = 1;
  TestStream stream(*device, options);
  stream->begin_scope();
  const View stale = stream.add_intermediate("stale", 8);
  EXPECT_NE(stream->address(stale.buffer), nullptr);
  must(stream->end_scope());
  EXPECT_EQ(stream->address(stale.buffer), nullptr);
  EXPECT_NE(text_of(stream.try_add(fill_task(stale, 1))).find("its scope has ended"),
            std::string::npos);

  // Its number is given out again; the old id stays wrong.
  stream->begin_scope();
  const View fresh = stream.add_intermediate("fresh", 8);
  ASSERT_EQ(fresh.buffer.index(), stale.buffer.index());
  EXPECT_NE(text_of(stream.try_add(fill_task(stale, 1))).find("its scope has ended"),
            std::string::npos);
  stream.add(fill_task(fresh, 1));
  must(stream->end_scope());
  EXPECT_EQ(stream.wait().run_count, 1u);
}

TEST(StreamMemory, AddressesAreAlignedAndDoNotOverlap) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  std::vector<std::byte*> addresses;
  for (int64_t count = 1; count < 20; ++count) {
    addresses.push_back(stream->address(stream.add_intermediate("x", count).buffer));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(addresses.back()) % 64, 0u);
  }
  for (size_t i = 1; i < addresses.size(); ++i) {
    EXPECT_GE(addresses[i] - addresses[i - 1], static_cast<ptrdiff_t>(8 * i));
  }
}

TEST(StreamMemory, TooManyLiveBuffersAreAnError) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.max_buffers = 3;
  Numbers x(1, 0), other(1, 0);
  TestStream stream(*device, options);
  const View xs = stream.share("x", x);
  stream->begin_scope();
  stream.add_intermediate("a", 1);
  stream.add_intermediate("b", 1);
  const std::string text = "stream: 3 buffers are alive and none can be freed before a scope ends";
  EXPECT_EQ(text_of(stream->add_buffer({.name = "c", .bytes = 8})), text);
  EXPECT_EQ(text_of(stream->add_buffer(
                {.name = "d", .kind = BufferKind::kExternal, .bytes = 8, .data = other.data()})),
            text);
  must(stream->end_scope());
  stream->begin_scope();
  const View c = stream.add_intermediate("c", 1);
  stream.add(fill_task(c, 4));
  stream.add(copy_task(c, xs));
  must(stream->end_scope());
  stream.wait();
  EXPECT_EQ(x[0], 4);
}

TEST(StreamMemory, BufferNumbersAreWaitedFor) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  StreamOptions options = small_rings();
  options.max_buffers = 2;
  TestStream stream(*device, options);
  for (int64_t i = 0; i < 500; ++i) {
    stream->begin_scope();
    const View buffer = stream.add_intermediate("x", 8);
    stream.add(fill_task(buffer, i));
    stream.add(check_late(buffer, i));
    must(stream->end_scope());
  }
  EXPECT_EQ(stream.wait().run_count, 1000u);
}

TEST(StreamMemory, BuffersOfNoSizeAreFree) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  TestStream stream(*device, small_rings());
  for (int64_t i = 0; i < 300; ++i) {
    stream->begin_scope();
    const View nothing = stream.add_intermediate("nothing", 0);
    const View large = stream.add_intermediate("large", 8192);
    stream.add(fill_task(nothing, i));
    stream.add(fill_task(large, i));
    stream.add(check_task_for(large, i));
    must(stream->end_scope());
  }
  EXPECT_EQ(stream.wait().run_count, 900u);
}

TEST(StreamMemory, AHeapWithoutRoomHoldsBuffersOfNoSize) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.heap_bytes = 0;
  TestStream stream(*device, options);
  stream.add(fill_task(stream.add_intermediate("nothing", 0), 1));
  EXPECT_EQ(text_of(stream->add_buffer({.name = "something", .bytes = 1})),
            "buffer 'something': 1 bytes, but a heap ring has 0");
  EXPECT_EQ(stream.wait().run_count, 1u);
}

// The outer task ends only after thousands of tasks and buffers of inner scopes have come and gone:
// with one ring for all this would never end.
TEST(StreamMemory, ASlowTaskOutsideDoesNotHoldUpTheScopesInside) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Gate started, may_end;
  Numbers x(1, 0);
  TestStream stream(*device, small_rings());
  const View xs = stream.share("x", x);
  TestTask slow = start_and_wait(started, may_end);
  const View held = stream.add_intermediate("held", 8);
  slow.arguments = {inout(xs), out(held)};
  stream.add(slow);
  started.wait();
  for (int64_t i = 0; i < 3000; ++i) {
    stream->begin_scope();
    const View buffer = stream.add_intermediate("x", 100);
    stream.add(fill_task(buffer, i));
    stream.add(check_task_for(buffer, i));
    if (i == 2999) stream.add(open_task(may_end));
    must(stream->end_scope());
  }
  stream.add(fill_task(xs, 9));
  EXPECT_EQ(stream.wait().run_count, 6003u);
  EXPECT_EQ(x[0], 9);
}

TEST(StreamMemory, ScopesMustBeBegunBeforeTheyEnd) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  EXPECT_EQ(text_of(stream->end_scope()), "stream: end_scope() without begin_scope()");
  stream->begin_scope();
  EXPECT_EQ(text_of(stream->end_scope()), "accepted");
  EXPECT_EQ(text_of(stream->end_scope()), "stream: end_scope() without begin_scope()");
}

TEST(StreamMemory, BuffersOfTheCallerNeedAnAddress) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  EXPECT_EQ(text_of(stream->add_buffer({.name = "x", .kind = BufferKind::kExternal, .bytes = 8})),
            "buffer 'x': a stream needs its address now");
  EXPECT_EQ(text_of(stream->add_buffer({.name = "y", .bytes = -1})), "buffer 'y': -1 bytes");
  int64_t number = 0;
  EXPECT_NE(text_of(stream->add_buffer(
                {.name = "z", .kind = BufferKind{7}, .bytes = 8, .data = &number})),
            "accepted");
}

// A scope: a new buffer, filled, read, and parts of `xs` that are never the same twice.
class EndlessProgram {
 public:
  EndlessProgram(TestStream& stream, const View& xs)
      : stream_(stream),
        xs_(xs),
        fill_(stream.kernel("fill", fill_kernel)),
        check_(stream.kernel("check", check_kernel)) {}

  void add_scope() {
    stream_->begin_scope();
    const int64_t count = 8 + scope_ % 57;
    const View buffer = stream_.add_intermediate("x", count);
    add(fill_, out(buffer));
    add(check_, in(slice(buffer, 0, scope_ % 7, 1)));
    for (int i = 0; i < 2; ++i) {
      const int64_t size = 1 + view_ % 61;
      add(fill_, out(slice(xs_, 0, view_ * 64 % xs_.shape[0], size)));
      ++view_;
    }
    must(stream_->end_scope());
    ++scope_;
  }

 private:
  void add(KernelId kernel, const Argument& argument) {
    const Scalar scalar = Scalar::fixed(scope_);
    must(stream_->add_task(
        {.kernel = kernel, .arguments = {&argument, 1}, .scalars = {&scalar, 1}}));
  }

  TestStream& stream_;
  View xs_;
  KernelId fill_;
  KernelId check_;
  int64_t scope_ = 0;
  int64_t view_ = 0;
};

TEST(StreamMemory, AMillionTasksNeedNoMoreThanAHundredThousand) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Numbers x(1 << 20, 0);
  TestStream stream(*device, small_rings());
  EndlessProgram program(stream, stream.share("x", x));
  for (int scope = 0; scope < 25'000; ++scope) program.add_scope();
  const uint64_t before = resident_bytes();
  for (int scope = 25'000; scope < 250'000; ++scope) program.add_scope();
  const uint64_t after = resident_bytes();
  EXPECT_EQ(stream.wait().run_count, 1'000'000u);
  ASSERT_GT(before, 0u);
  EXPECT_LT(after, before + (uint64_t{4} << 20));
}

TEST(StreamMemory, SeveralWorkersNeedNoMoreMemoryEither) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1 << 16, 0);
  TestStream stream(*device, small_rings());
  EndlessProgram program(stream, stream.share("x", x));
  for (int scope = 0; scope < 5'000; ++scope) program.add_scope();
  const uint64_t before = resident_bytes();
  for (int scope = 5'000; scope < 15'000; ++scope) program.add_scope();
  const uint64_t after = resident_bytes();
  EXPECT_EQ(stream.wait().run_count, 60'000u);
  EXPECT_LT(after, before + (uint64_t{4} << 20));
}

TEST(StreamMemory, RefusesTheSameMemoryUnderTwoNames) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  Numbers x(4, 0);
  const auto add = [&stream](const char* name, BufferKind kind, int64_t* data) {
    return text_of(stream->add_buffer({.name = name, .kind = kind, .bytes = 16, .data = data}));
  };
  EXPECT_EQ(add("x", BufferKind::kExternal, x.data()), "accepted");
  EXPECT_EQ(add("y", BufferKind::kExternal, x.data() + 1),
            "buffer 'y' shares memory with buffer 'x'; edges between them would not be found");
  EXPECT_EQ(add("y", BufferKind::kConstant, x.data() + 1),
            "buffer 'y' shares memory with buffer 'x'; edges between them would not be found");
  EXPECT_EQ(add("y", BufferKind::kConstant, x.data() + 2), "accepted");
  EXPECT_EQ(add("z", BufferKind::kConstant, x.data() + 2), "accepted") << "nobody writes constants";
}

TEST(StreamMemory, RefusesAnAddressThatDoesNotSuitTheElements) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device, small_rings());
  Numbers x(2, 0);
  void* const odd = reinterpret_cast<std::byte*>(x.data()) + 4;
  const BufferId buffer = must(
      stream->add_buffer({.name = "odd", .kind = BufferKind::kExternal, .bytes = 8, .data = odd}));
  const std::string text =
      text_of(stream.try_add(fill_task(dense_view(buffer, DType::kS64, {1}), 1)));
  EXPECT_NE(text.find("argument 0 is s64, but buffer 'odd' begins at address"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace gapless
