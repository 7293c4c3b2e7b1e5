// SPDX-License-Identifier: Apache-2.0

#include "runtime/stream.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/stream_test_support.h"

namespace gapless {
namespace {

constexpr std::array<int, 3> kWorkerCounts = {1, 2, 4};

// ---- Dependencies.

TEST(Stream, AnEmptyStreamOpensWaitsAndCloses) {
  for (const int worker_count : kWorkerCounts) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    TestStream stream(*device);
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.task_count, 0u);
    EXPECT_EQ(summary.run_count, 0u);
  }
}

TEST(Stream, ReadersSeeWhatWasWrittenBefore) {
  for (const int worker_count : kWorkerCounts) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(4, 1), y(4, 0);
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    const View ys = stream.share("y", y);
    int64_t expected = 1;
    for (int64_t i = 0; i < 300; ++i) {
      stream.add(copy_task(xs, ys));
      stream.add(mix_task(ys, i));
      stream.add(copy_task(ys, xs));
      expected = mixed(expected, i);
    }
    EXPECT_EQ(stream.wait().run_count, 900u);
    EXPECT_EQ(x, Numbers(4, expected));
    EXPECT_EQ(y, Numbers(4, expected));
  }
}

TEST(Stream, TheLastOfManyWritesStays) {
  for (const int worker_count : kWorkerCounts) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(64, 0);
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    for (int64_t i = 0; i < 500; ++i) {
      stream.add(fill_task(slice(xs, 0, i % 32, 32), i));
    }
    stream.add(fill_task(slice(xs, 0, 16, 32), -1));
    stream.wait();
    for (size_t i = 16; i < 48; ++i) EXPECT_EQ(x[i], -1);
  }
}

TEST(Stream, ReadersSeeTheValueBeforeTheNextWrite) {
  constexpr int64_t kRounds = 40;
  constexpr int64_t kReaders = 40;  // of each round
  for (const int worker_count : kWorkerCounts) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(1, -1), seen(kRounds * kReaders, -1);
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    const View all = stream.share("seen", seen);
    for (int64_t round = 0; round < kRounds; ++round) {
      stream.add(fill_task(xs, round));
      for (int64_t i = 0; i < kReaders; ++i) {
        stream.add(copy_task(xs, slice(all, 0, round * kReaders + i, 1)));
      }
    }
    stream.wait();
    for (int64_t i = 0; i < kRounds * kReaders; ++i) {
      ASSERT_EQ(seen[static_cast<size_t>(i)], i / kReaders) << "reader " << i;
    }
  }
}

// A single worker runs nothing before wait(), so that every edge is still needed.
TEST(Stream, AWriterWaitsForEachOfManyReaders) {
  for (const uint64_t reader_count : {1, 15, 16, 17, 31, 32, 33, 64, 100}) {
    SCOPED_TRACE(reader_count);
    const std::unique_ptr<CpuDevice> device = make_device(1);
    Numbers x(1, 0), y(reader_count, 0);
    StreamOptions options = small_rings();
    options.window_tasks = 128;
    TestStream stream(*device, options);
    const View xs = stream.share("x", x);
    const View ys = stream.share("y", y);
    for (uint64_t i = 0; i < reader_count; ++i) {
      stream.add(copy_task(xs, slice(ys, 0, static_cast<int64_t>(i), 1)));
    }
    stream.add(fill_task(xs, 1));
    EXPECT_EQ(stream.wait().edge_count, reader_count);
  }
}

TEST(Stream, ASlowReaderHoldsUpTheNextWriter) {
  constexpr int64_t kReaders = 16;
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 7), y(kReaders, 0);
  Gate started, may_end;
  Journal journal;
  TestStream stream(*device, small_rings());
  const View xs = stream.share("x", x);
  const View ys = stream.share("y", y);
  for (int64_t i = 0; i < kReaders - 1; ++i) stream.add(copy_task(xs, slice(ys, 0, i, 1)));
  TestTask slow = start_and_wait(started, may_end);
  slow.arguments = {in(xs)};
  stream.add(slow);
  started.wait();
  stream.add(
      {.name = "write", .run = note_kernel, .scalars = note(journal, 1), .arguments = {out(xs)}});
  // A ring that goes round many times makes this thread run what is ready.
  stream->begin_scope();
  for (int64_t i = 0; i < 1000; ++i) stream.add({.name = "no_code", .run = nullptr});
  must(stream->end_scope());
  EXPECT_EQ(journal.count(1), 0);
  may_end.open();
  stream.wait();
  EXPECT_EQ(journal.count(1), 1);
}

TEST(Stream, PartsThatDoNotOverlapAreIndependent) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Numbers x(100, 0);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  for (int64_t i = 0; i < 10; ++i) stream.add(fill_task(slice(xs, 0, i * 10, 10), i));
  EXPECT_EQ(stream.wait().edge_count, 0u);
}

TEST(Stream, ExplicitEdgesOrderTasks) {
  for (const int worker_count : kWorkerCounts) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Numbers expected;
    TestStream stream(*device);
    std::vector<TaskId> last;
    for (int64_t i = 0; i < 200; ++i) {
      last = {stream.add({.scalars = note(journal, i), .after = last})};
      expected.push_back(i);
    }
    stream.wait();
    EXPECT_EQ(journal.entries(), expected);
  }
}

TEST(Stream, ATaskMayComeAfterOneThatHasLongEnded) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.window_tasks = 4;
  Journal journal;
  TestStream stream(*device, options);
  const TaskId first = stream.add({.scalars = note(journal, 0)});
  for (int64_t i = 1; i < 100; ++i) stream.add({.scalars = note(journal, i), .after = {first}});
  EXPECT_EQ(stream.wait().run_count, 100u);
  stream.add({.scalars = note(journal, 100), .after = {first, first}});
  EXPECT_EQ(stream.wait().edge_count, 0u);
}

TEST(Stream, AnEdgeThatIsGivenTwiceIsOne) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestStream stream(*device);
  const TaskId first = stream.add({.scalars = note(journal, 0)});
  stream.add({.scalars = note(journal, 1), .after = {first, first, first}});
  EXPECT_EQ(stream.wait().edge_count, 1u);
  EXPECT_EQ(journal.entries(), (Numbers{0, 1}));
}

// ---- Predicates, scalars, constants.

TEST(Stream, ATaskWhosePredicateDoesNotHoldIsSkipped) {
  for (const int worker_count : kWorkerCounts) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(1, 0);
    const int64_t zero = 0;
    const int64_t one = 1;
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    int64_t expected = 0;
    for (int64_t i = 0; i < 100; ++i) {
      TestTask task = mix_task(xs, i);
      task.predicate = {i % 3 == 0 ? &zero : &one, Comparison::kEqual, 1};
      stream.add(task);
      if (i % 3 != 0) expected = mixed(expected, i);
    }
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.skipped_count, 34u);
    EXPECT_EQ(summary.run_count, 66u);
    EXPECT_EQ(x[0], expected);
  }
}

TEST(Stream, APredicateMayBeWrittenByAnEarlierTask) {
  for (const int worker_count : kWorkerCounts) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers flag(1, 0);
    Journal journal;
    TestStream stream(*device);
    const View flags = stream.share("flag", flag);
    for (int64_t i = 0; i < 100; ++i) {
      stream.add(fill_task(flags, i % 2));
      stream.add({.scalars = note(journal, i),
                  .arguments = {in(flags)},
                  .predicate = {flag.data(), Comparison::kNotEqual, 0}});
    }
    EXPECT_EQ(stream.wait().skipped_count, 50u);
    const Numbers noted = journal.sorted();
    ASSERT_EQ(noted.size(), 50u);
    for (size_t i = 0; i < noted.size(); ++i) {
      EXPECT_EQ(noted[i], static_cast<int64_t>(2 * i + 1));
    }
  }
}

TEST(Stream, SkippedTasksOfAllShapesLetTheirSuccessorsGo) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  const int64_t never = 0;
  const Predicate predicate = {&never, Comparison::kNotEqual, 0};
  Journal journal;
  Numbers x(4, 0);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  for (int i = 0; i < 20; ++i) {
    stream.add({.scalars = note(journal, 0), .arguments = {inout(xs)}, .predicate = predicate});
    stream.add({.scalars = note(journal, 0),
                .arguments = {inout(xs)},
                .block_count = 5,
                .predicate = predicate});
    stream.add({.scalars = note(journal, 0),
                .arguments = {inout(xs)},
                .block_count = 2,
                .gang = true,
                .predicate = predicate});
    stream.add({.scalars = note(journal, 1), .arguments = {inout(xs)}});
  }
  const StreamSummary summary = stream.wait();
  EXPECT_EQ(summary.skipped_count, 60u);
  EXPECT_EQ(journal.entries(), Numbers(20, 1));
}

TEST(Stream, ScalarsAreReadWhenTheTaskStarts) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  int64_t length = 5;
  TestStream stream(*device);
  stream.add({.scalars = {pointer_to(journal), Scalar::read_from(&length)}});
  length = 6;
  stream.wait();
  length = 7;
  stream.add({.scalars = {pointer_to(journal), Scalar::read_from(&length)}});
  stream.wait();
  EXPECT_EQ(journal.entries(), (Numbers{6, 7}));
}

TEST(Stream, ConstantsAreNotTracked) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Numbers weights = {3, 4}, x(4, 0);
  TestStream stream(*device);
  const View constant = stream.share_constant("weights", weights);
  const View xs = stream.share("x", x);
  stream.add(copy_task(constant, slice(xs, 0, 0, 2)));
  stream.add(copy_task(constant, slice(xs, 0, 2, 2)));
  stream.add(copy_task(slice(xs, 0, 0, 1), slice(xs, 0, 3, 1)));
  EXPECT_EQ(stream.wait().edge_count, 2u);
  EXPECT_EQ(x, (Numbers{3, 4, 3, 3}));
}

TEST(Stream, ATaskWithoutCodeRunsNothing) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  stream.add(mix_task(xs, 5));
  stream.add({.name = "no_code", .run = nullptr, .arguments = {inout(xs)}});
  stream.add(mix_task(xs, 1));
  EXPECT_EQ(stream.wait().run_count, 3u);
  EXPECT_EQ(x[0], 16);
}

// ---- Back-pressure.

TEST(Stream, AWindowOfAFewTasksIsEnough) {
  for (const int worker_count : kWorkerCounts) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    for (const uint32_t window : {1u, 2u, 4u}) {
      SCOPED_TRACE(testing::Message() << window << " tasks, " << worker_count << " workers");
      Numbers x(3, 1);
      StreamOptions options = small_rings();
      options.window_tasks = window;
      TestStream stream(*device, options);
      const View xs = stream.share("x", x);
      Numbers expected(3, 1);
      for (int64_t i = 0; i < 500; ++i) {
        stream.add(mix_task(slice(xs, 0, i % 2, 2), i));
        for (const int64_t at : {i % 2, i % 2 + 1}) {
          expected[static_cast<size_t>(at)] = mixed(expected[static_cast<size_t>(at)], i);
        }
      }
      const StreamSummary summary = stream.wait();
      EXPECT_EQ(summary.run_count, 500u);
      if (worker_count == 1) {
        EXPECT_GT(summary.waited_count, 0u);
      }
      EXPECT_EQ(x, expected);
    }
  }
}

TEST(Stream, AJoinOverManyProducersFitsIntoOneEdge) {
  for (const int worker_count : kWorkerCounts) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    StreamOptions options = small_rings();
    options.window_edges = 1;
    Numbers x(40, 0), y(40, 0);
    TestStream stream(*device, options);
    const View xs = stream.share("x", x);
    const View ys = stream.share("y", y);
    for (int64_t round = 1; round <= 20; ++round) {
      for (int64_t i = 0; i < 40; ++i) stream.add(fill_task(slice(xs, 0, i, 1), round * i));
      stream.add(copy_task(xs, ys));
      for (int64_t i = 0; i < 40; ++i) stream.add(mix_task(slice(ys, 0, i, 1), 1));
    }
    stream.wait();
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], mixed(20 * i, 1));
  }
}

TEST(Stream, ArgumentsWaitForRoom) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.window_bytes = 4096;
  Numbers x(32, 0);
  TestStream stream(*device, options);
  const View xs = stream.share("x", x);
  const std::vector<Scalar> scalars(kMaxScalars, Scalar::fixed(2));
  const auto check_last = [](TaskContext& context) {
    const bool is_right = context.argument_count() == kMaxArguments &&
                          context.argument(kMaxArguments - 1).view.offset == 31 &&
                          context.scalar(kMaxScalars - 1) == 2;
    if (!is_right) context.fail("arguments have changed");
  };
  std::vector<Argument> arguments;
  for (int64_t i = 0; i < kMaxArguments; ++i) arguments.push_back(inout(slice(xs, 0, i, 1)));
  for (int i = 0; i < 200; ++i) {
    stream.add(
        {.name = "check_last", .run = check_last, .scalars = scalars, .arguments = arguments});
  }
  const StreamSummary summary = stream.wait();
  EXPECT_EQ(summary.run_count, 200u);
  EXPECT_GT(summary.waited_count, 0u);
}

TEST(Stream, AHundredThousandTasksGoThroughAWindowOf64) {
  constexpr int64_t kTasks = 100'000;
  for (const int worker_count : {1, 2}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(4, 0);
    TestStream stream(*device, small_rings());
    const View xs = stream.share("x", x);
    const KernelId mix = stream.kernel("mix", mix_kernel);
    Numbers expected(4, 0);
    for (int64_t i = 0; i < kTasks; ++i) {
      const Argument argument = inout(slice(xs, 0, i % 4, 1));
      const Scalar scalar = Scalar::fixed(i);
      must(stream->add_task({.kernel = mix, .arguments = {&argument, 1}, .scalars = {&scalar, 1}}));
      expected[static_cast<size_t>(i % 4)] = mixed(expected[static_cast<size_t>(i % 4)], i);
    }
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.task_count, static_cast<uint64_t>(kTasks));
    EXPECT_EQ(summary.run_count, static_cast<uint64_t>(kTasks));
    EXPECT_EQ(x, expected);
  }
}

// ---- Waiting.

TEST(Stream, CountsAfreshAfterEachWait) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  int64_t expected = 0;
  for (int64_t i = 1; i <= 50; ++i) {
    for (int64_t j = 0; j < i; ++j) stream.add(mix_task(xs, j));
    for (int64_t j = 0; j < i; ++j) expected = mixed(expected, j);
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.task_count, static_cast<uint64_t>(i));
    EXPECT_EQ(summary.run_count, static_cast<uint64_t>(i));
    EXPECT_EQ(x[0], expected);
  }
  EXPECT_EQ(stream.wait().task_count, 0u);
}

TEST(Stream, KernelsMayBeAddedWhileTasksRun) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  TestStream stream(*device, small_rings());
  for (int64_t i = 0; i < 500; ++i) {
    stream.add({.name = "note " + std::to_string(i), .scalars = note(journal, i)});
  }
  stream.wait();
  const Numbers noted = journal.sorted();
  ASSERT_EQ(noted.size(), 500u);
  EXPECT_EQ(noted.back(), 499);
  EXPECT_NE(text_of(stream->add_kernel("note 7", note_kernel)), "accepted");
}

TEST(Stream, EndsWhatWasSubmittedWhenItGoes) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  for (int round = 0; round < 20; ++round) {
    TestStream stream(*device, small_rings());
    const View xs = stream.share("x", x);
    for (int i = 0; i < 100; ++i) {
      stream.add({.name = "add_one",
                  .run = [](TaskContext& context) { ++*context.data<int64_t>(0); },
                  .arguments = {inout(xs)}});
    }
  }
  EXPECT_EQ(x[0], 2000);
}

TEST(Stream, TakesTheDeviceWhileItIsOpen) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  {
    TestStream stream(*device);
    EXPECT_NE(text_of(Stream::open(*device)), "accepted");
  }
  EXPECT_EQ(text_of(Stream::open(*device)), "accepted");
}

}  // namespace
}  // namespace gapless
