// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gapless/trace.h"
#include "trace/clock.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

// A recording into a folder of its own, which goes with the test.
class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gapless_recorder_XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    stop_recording();
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name = "test.gapless") const { return folder_ + "/" + name; }

  void start(FullPolicy policy = FullPolicy::kGrow, uint64_t capacity_bytes = 16 << 20) {
    RecorderOptions options;
    options.path = path();
    options.policy = policy;
    options.capacity_bytes = capacity_bytes;
    ASSERT_TRUE(start_recording(options)) << recording_error();
  }

  Trace read(const std::string& name = "test.gapless") const {
    Result<Trace> trace = read_trace_file(path(name));
    EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
    return trace ? std::move(*trace) : Trace{};
  }

  std::string folder_;
};

uint32_t lane_named(const Trace& trace, std::string_view name) {
  for (uint32_t i = 0; i < trace.lanes.size(); ++i) {
    if (trace.lanes[i].name == name) return i;
  }
  return kNoIndex;
}

bool has_finding(const Trace& trace, std::string_view code) {
  return std::any_of(trace.findings.begin(), trace.findings.end(),
                     [code](const Finding& finding) { return finding.code == code; });
}

std::string all_findings(const Trace& trace) {
  std::string text;
  for (const Finding& finding : trace.findings) text += finding.code + ": " + finding.text + "\n";
  return text;
}

std::string property(const Trace& trace, std::string_view key) {
  for (const Property& entry : trace.properties) {
    if (entry.key == key) return entry.value;
  }
  return "";
}

TEST_F(RecorderTest, ReadsBackNestedSpansWithTheirValues) {
  const NameId outer = intern_name("outer");
  const NameId inner = intern_name("inner");
  start();
  name_thread("the test");
  span_begin(outer, 7);
  span_begin(inner);
  span_end();
  span_end();
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count, 4u);
  EXPECT_EQ(summary.dropped_count, 0u);
  EXPECT_GT(summary.ns_per_event, 0.0);

  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(trace.names[trace.spans.name[0]], "outer");
  EXPECT_EQ(trace.spans.value[0], 7u);
  EXPECT_EQ(trace.names[trace.spans.name[1]], "inner");
  EXPECT_EQ(trace.spans.value[1], kNoValue);
  EXPECT_LE(trace.spans.begin_ns[0], trace.spans.begin_ns[1]);
  EXPECT_GE(trace.spans.end_ns[0], trace.spans.end_ns[1]);
  EXPECT_EQ(trace.lanes[trace.spans.lane[0]].name, "the test");
  EXPECT_TRUE(trace.findings.empty()) << all_findings(trace);
  EXPECT_EQ(property(trace, "recorder.events"), "4");
  EXPECT_EQ(property(trace, "pid"), std::to_string(getpid()));
}

TEST_F(RecorderTest, SwitchIsOneRecordForABoundary) {
  const LaneId core = add_lane({.name = "core 3", .kind = LaneKind::kCubeCore, .number = 3});
  const NameId a = intern_name("a");
  const NameId b = intern_name("b");
  start();
  switch_to(core, a, 1);
  switch_to(core, b, 2);
  switch_off(core);
  EXPECT_EQ(stop_recording().event_count, 3u);

  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(trace.spans.end_ns[0], trace.spans.begin_ns[1]) << "no gap between two tasks";
  const Lane& lane = trace.lanes[trace.spans.lane[0]];
  EXPECT_EQ(lane.name, "core 3");
  EXPECT_EQ(lane.kind, LaneKind::kCubeCore);
  EXPECT_EQ(lane.number, 3);
}

TEST_F(RecorderTest, KeepsInstantsCountersAndFlows) {
  const NameId work = intern_name("work");
  const NameId level = intern_name("level");
  start();
  span_begin(work);
  flow_out(42);
  instant(level, 5);
  counter(level, -1.25e300);
  counter(level, 3.0);
  span_end();
  span_begin(work);
  flow_in(42);
  span_end();
  stop_recording();

  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), 1u);
  EXPECT_EQ(trace.instants.value[0], 5u);
  ASSERT_EQ(trace.counters.size(), 2u);
  EXPECT_EQ(trace.counters.value[0], -1.25e300);
  EXPECT_EQ(trace.counters.value[1], 3.0);
  ASSERT_EQ(trace.flows.size(), 2u);
  EXPECT_EQ(trace.flows.id[0], 42u);
  EXPECT_EQ(trace.flows.span[0], 0u);
  EXPECT_EQ(trace.flows.span[1], 1u);
}

TEST_F(RecorderTest, JoinsTheSevenTimesOfATask) {
  const LaneId core = add_lane({.name = "core", .kind = LaneKind::kWorker});
  const NameId matmul = intern_name("matmul");
  start();
  for (const uint32_t task : {100u, 101u}) task_event(TaskTime::kSubmit, {}, task, matmul);
  task_edge(100, 101, EdgeKind::kLifetime);
  task_event(TaskTime::kReady, {}, 100);
  task_event(TaskTime::kDispatch, core, 100);
  task_event(TaskTime::kReceive, core, 100);
  task_event(TaskTime::kStart, core, 100);
  task_event(TaskTime::kStart, core, 101);  // also the end of 100
  task_event(TaskTime::kFinish, core, 100);
  task_event(TaskTime::kEnd, core, 101);
  stop_recording();

  const Trace trace = read();
  ASSERT_EQ(trace.tasks.size(), 2u);
  int64_t last_ns = kAbsent;
  for (int time = 0; time < kTaskTimeCount; ++time) {
    const int64_t now_ns = trace.tasks.time_ns[static_cast<size_t>(time)][0];
    EXPECT_NE(now_ns, kAbsent) << task_time_name(static_cast<TaskTime>(time));
    EXPECT_GE(now_ns, last_ns) << task_time_name(static_cast<TaskTime>(time));
    last_ns = now_ns;
  }
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd)[0], trace.tasks.at(TaskTime::kStart)[1]);
  EXPECT_EQ(trace.tasks.at(TaskTime::kReady)[1], kAbsent);
  EXPECT_EQ(trace.lanes[trace.tasks.lane[1]].name, "core");
  EXPECT_EQ(trace.names[trace.tasks.kernel[1]], "matmul");
  ASSERT_EQ(trace.edges.size(), 1u);
  EXPECT_EQ(trace.edges.producer[0], 0u);
  EXPECT_EQ(trace.edges.consumer[0], 1u);
  EXPECT_EQ(trace.edges.kind[0], static_cast<uint8_t>(EdgeKind::kLifetime));
}

TEST_F(RecorderTest, SaysWhenSpansDoNotNest) {
  const NameId name = intern_name("span");
  start();
  span_end();
  span_begin(name);
  stop_recording();
  const Trace trace = read();
  EXPECT_TRUE(has_finding(trace, "end-without-begin")) << all_findings(trace);
  EXPECT_TRUE(has_finding(trace, "open-spans")) << all_findings(trace);
  ASSERT_EQ(trace.spans.size(), 1u) << "the open span is kept";
}

TEST_F(RecorderTest, GrowsOverManyChunksWithoutLoss) {
  const NameId name = intern_name("many");
  start();
  constexpr uint32_t kSpans = 200'000;  // 24 chunks
  for (uint32_t i = 0; i < kSpans; ++i) {
    span_begin(name, i);
    span_end();
  }
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count, 2 * kSpans);
  EXPECT_EQ(summary.dropped_count, 0u);
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), kSpans);
  for (uint32_t i = 0; i < kSpans; ++i) ASSERT_EQ(trace.spans.value[i], i);
  EXPECT_TRUE(trace.findings.empty()) << all_findings(trace);
}

TEST_F(RecorderTest, KeepNewestKeepsTheEndAndCountsTheRest) {
  const LaneId lane = add_lane({.name = "ring"});
  const NameId name = intern_name("tick");
  start(FullPolicy::kKeepNewest, 2 << 20);  // 8 chunks: 131,040 records
  constexpr uint32_t kEvents = 500'000;
  for (uint32_t i = 0; i < kEvents; ++i) instant(lane, name, i);
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count + summary.dropped_count, kEvents);
  EXPECT_GT(summary.event_count, 40'000u);
  EXPECT_LE(summary.event_count, 131'040u);

  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), summary.event_count);
  for (size_t i = 0; i < trace.instants.size(); ++i) {
    ASSERT_EQ(trace.instants.value[i], kEvents - trace.instants.size() + i) << "the newest, whole";
  }
  EXPECT_EQ(trace.lanes[trace.instants.lane[0]].dropped_count, summary.dropped_count);
  EXPECT_TRUE(has_finding(trace, "dropped"));
  EXPECT_LT(std::filesystem::file_size(path()), 5u << 20) << "the file does not grow";
}

TEST_F(RecorderTest, KeepOldestKeepsTheBeginningAndCountsTheRest) {
  const LaneId lane = add_lane({.name = "start"});
  const NameId name = intern_name("tick");
  start(FullPolicy::kKeepOldest, 1 << 20);  // 4 chunks: 65,520 records
  constexpr uint32_t kEvents = 200'000;
  for (uint32_t i = 0; i < kEvents; ++i) instant(lane, name, i);
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count, 65'520u);
  EXPECT_EQ(summary.dropped_count, kEvents - 65'520u);
  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), 65'520u);
  for (uint32_t i = 0; i < trace.instants.size(); ++i) ASSERT_EQ(trace.instants.value[i], i);
  EXPECT_EQ(trace.lanes[trace.instants.lane[0]].dropped_count, summary.dropped_count);
}

// Goal: threads may come and go, unregistered, while recordings start and stop, and everything
// that was recorded while one was under way is in it.
// Method: 64 threads of 1000 spans each, eight at a time, none of which prepared anything.
TEST_F(RecorderTest, TakesThreadsThatNeverRegistered) {
  const NameId name = intern_name("short life");
  start();
  for (int round = 0; round < 8; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([name] {
        for (uint32_t n = 0; n < 1000; ++n) {
          span_begin(name, n);
          span_end();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count, 128'000u);
  const Trace trace = read();
  EXPECT_EQ(trace.spans.size(), 64'000u);
  const std::set<uint32_t> lanes(trace.spans.lane.begin(), trace.spans.lane.end());
  EXPECT_EQ(lanes.size(), 64u) << "each thread has its own lane";
  EXPECT_LE(std::stoi(property(trace, "recorder.writers")), 16) << "writers are used again";
}

TEST_F(RecorderTest, RecordsAfterThreadLocalDestructorsWithoutACrash) {
  struct Late {
    NameId name;
    ~Late() { span_begin(name); }
  };
  const NameId name = intern_name("late");
  start();
  std::thread([name] {
    static thread_local Late late{name};
    late.name = name;
    span_begin(name);
    span_end();
  }).join();
  EXPECT_GE(stop_recording().event_count, 2u);
}

TEST_F(RecorderTest, StopsWhileOthersRecord) {
  const NameId name = intern_name("busy");
  std::atomic<bool> quit = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&quit, name] {
      while (!quit) {
        span_begin(name);
        span_end();
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    start();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const RecordingSummary summary = stop_recording();
    const Trace trace = read();
    EXPECT_FALSE(has_finding(trace, "records-missing")) << all_findings(trace);
    EXPECT_FALSE(has_finding(trace, "damaged-chunk")) << all_findings(trace);
    EXPECT_EQ(property(trace, "recorder.events"), std::to_string(summary.event_count));
  }
  quit = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RecorderTest, PausesAndResumes) {
  const NameId name = intern_name("on and off");
  start();
  instant(name, 1);
  pause_recording();
  EXPECT_FALSE(is_recording());
  instant(name, 2);
  resume_recording();
  instant(name, 3);
  stop_recording();
  resume_recording();
  EXPECT_FALSE(is_recording()) << "there is nothing to resume";
  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), 2u);
  EXPECT_EQ(trace.instants.value[1], 3u);
}

TEST_F(RecorderTest, RefusesASecondRecordingAndABadPath) {
  start();
  RecorderOptions second;
  second.path = path("second");
  EXPECT_FALSE(start_recording(second));
  EXPECT_NE(recording_error().find("under way"), std::string::npos);
  stop_recording();
  second.path = "/dev/null";
  EXPECT_FALSE(start_recording(second));
  EXPECT_NE(recording_error().find("not a plain file"), std::string::npos) << recording_error();
  EXPECT_TRUE(std::filesystem::exists("/dev/null"));
  second.path = "/nowhere/at/all";
  EXPECT_FALSE(start_recording(second));
  EXPECT_NE(recording_error().find("/nowhere/at/all"), std::string::npos) << recording_error();
  EXPECT_FALSE(is_recording());
}

// Goal: a full disk loses events, counted, and nothing else; the newest stay whole if asked for.
// Method: a limit on the size of files stands for the disk. SIGXFSZ keeps its default, which would
// end the child. Threads that come when the limit is reached must live too.
class FullDisk : public RecorderTest, public ::testing::WithParamInterface<FullPolicy> {};

TEST_P(FullDisk, CostsEventsThatAreCountedAndNothingElse) {
  constexpr uint32_t kEvents = 1'000'000;
  constexpr uint32_t kLate = 8;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{4 << 20, 4 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    RecorderOptions options;
    options.path = path();
    options.policy = GetParam();
    if (!start_recording(options)) _exit(2);
    const NameId name = intern_name("flood");
    for (uint32_t i = 0; i < kEvents; ++i) instant(name, i);
    for (uint32_t i = 0; i < kLate; ++i) std::thread([name] { instant(name, 1); }).join();
    const RecordingSummary summary = stop_recording();
    const bool adds_up = summary.event_count + summary.dropped_count == kEvents + kLate;
    _exit(adds_up && summary.dropped_count > 0 ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "the program that is watched must live";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const Trace trace = read();
  // Ten chunks of 16,380 records fit; with kKeepNewest up to five of them wait, are being emptied
  // or begin.
  EXPECT_GE(trace.instants.size(), 5u * 16'380u);
  EXPECT_TRUE(has_finding(trace, "dropped")) << all_findings(trace);
  EXPECT_FALSE(has_finding(trace, "cut-short")) << all_findings(trace);
  std::vector<uint32_t> values;
  for (const uint32_t value : trace.instants.value) {
    if (value > 1) values.push_back(value);
  }
  ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
  if (GetParam() != FullPolicy::kKeepNewest) return;
  EXPECT_EQ(values.back(), kEvents - 1);
  EXPECT_EQ(values.back() - values.front() + 1, values.size()) << "the newest, whole";
}

INSTANTIATE_TEST_SUITE_P(Policies, FullDisk,
                         ::testing::Values(FullPolicy::kGrow, FullPolicy::kKeepNewest));

// Goal: SIGKILL loses nothing that was recorded. Method: a child records a known number of spans on
// two threads, says so through a pipe, and kills itself in the middle of an open span.
TEST_F(RecorderTest, LeavesEverythingWhenKilled) {
  constexpr uint32_t kSpans = 50'000;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RecorderOptions options;
    options.path = path();
    if (!start_recording(options)) _exit(2);
    const auto work = [] {
      const NameId name = intern_name("before the kill");
      for (uint32_t i = 0; i < kSpans; ++i) {
        span_begin(name, i);
        span_end();
      }
    };
    std::thread other(work);
    work();
    other.join();
    name_thread("the victim");
    span_begin(intern_name("during the kill"));
    kill(getpid(), SIGKILL);
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));

  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 2 * kSpans + 1);
  EXPECT_TRUE(has_finding(trace, "not-closed")) << all_findings(trace);
  EXPECT_TRUE(has_finding(trace, "open-spans")) << all_findings(trace);
  EXPECT_EQ(trace.names[trace.spans.name.back()], "during the kill");
  EXPECT_NE(lane_named(trace, "the victim"), kNoIndex);
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    ASSERT_LT(trace.spans.end_ns[i] - trace.spans.begin_ns[i], 10'000'000'000) << "times are sane";
  }
}

TEST_F(RecorderTest, AForkedChildLeavesTheParentsTraceAlone) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizers of g++ 12 cannot go on after a fork beside other threads";
#endif
  const NameId name = intern_name("parent");
  start();
  span_begin(name);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool quiet = !is_recording();
    for (int i = 0; i < 100; ++i) instant(name);
    RecorderOptions options;
    options.path = path("child.%p.gapless");
    const bool started = start_recording(options);
    for (int i = 0; i < 10; ++i) instant(name);
    const RecordingSummary summary = stop_recording();
    _exit(quiet && started && summary.event_count == 10 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  span_end();
  EXPECT_EQ(stop_recording().event_count, 2u);
  EXPECT_EQ(read().spans.size(), 1u);
  EXPECT_EQ(read("child." + std::to_string(child) + ".gapless").instants.size(), 10u);
}

// Goal: times agree with the system's clock. Method: spans around sleeps whose length is measured
// by CLOCK_MONOTONIC_RAW as well.
TEST_F(RecorderTest, TimesAgreeWithTheSystemClock) {
  const NameId name = intern_name("sleep");
  start();
  const int64_t before_ns = read_anchor().time_ns;
  span_begin(name);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  span_end();
  const int64_t after_ns = read_anchor().time_ns;
  stop_recording();
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 1u);
  EXPECT_GE(trace.spans.begin_ns[0], before_ns - 1000);
  EXPECT_LE(trace.spans.end_ns[0], after_ns + 1000);
  EXPECT_GE(trace.spans.end_ns[0] - trace.spans.begin_ns[0], 30'000'000 - 1000);
}

TEST_F(RecorderTest, NamesAndLanesMadeDuringTheRecordingAreInIt) {
  start();
  const LaneId lane = add_lane({.name = "made late", .kind = LaneKind::kStream, .device = "chip"});
  for (int i = 0; i < 5000; ++i) instant(lane, intern_name("name " + std::to_string(i)));
  rename_lane(lane, "renamed");
  stop_recording();
  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), 5000u);
  EXPECT_EQ(trace.names[trace.instants.name[4999]], "name 4999");
  const uint32_t index = lane_named(trace, "renamed");
  ASSERT_NE(index, kNoIndex);
  EXPECT_EQ(trace.devices[trace.lanes[index].device].name, "chip");
}

TEST_F(RecorderTest, CutsTextsThatNoChunkCouldHold) {
  start();
  const std::string huge(2 << 20, 'x');
  const LaneId lane = add_lane({.name = huge, .device = huge});
  instant(lane, intern_name(huge));
  rename_lane(lane, huge);
  stop_recording();
  const Trace trace = read();
  ASSERT_EQ(trace.instants.size(), 1u);
  EXPECT_EQ(trace.lanes[trace.instants.lane[0]].name.size(), 4096u);
  EXPECT_TRUE(trace.findings.empty()) << all_findings(trace);
}

// Goal: kKeepOldest keeps exactly its capacity, from the first event on, however the keeper and the
// thread meet. Method: many short rounds.
TEST_F(RecorderTest, KeepOldestHasNoGapHoweverOftenItIsTried) {
  const NameId name = intern_name("tick");
  for (int round = 0; round < 30; ++round) {
    start(FullPolicy::kKeepOldest, 1 << 20);
    for (uint32_t i = 0; i < 70'000; ++i) instant(name, i);
    EXPECT_EQ(stop_recording().event_count, 65'520u) << "round " << round;
    EXPECT_EQ(read().instants.value.back(), 65'519u);
  }
}

// Goal: a thread that is cancelled in the middle of recording does not keep stop_recording waiting.
TEST_F(RecorderTest, SurvivesThreadsThatAreCancelled) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer takes the end of a cancelled thread for an overflow";
#endif
  const NameId name = intern_name("cancelled");
  for (int round = 0; round < 5; ++round) {
    start();
    std::atomic<bool> began = false;
    std::thread thread([&began, name] {
      while (true) {
        for (uint32_t i = 0; i < 50'000; ++i) instant(name, i);
        began = true;
        pthread_testcancel();
      }
    });
    while (!began) std::this_thread::yield();
    pthread_cancel(thread.native_handle());
    thread.join();
    EXPECT_GE(stop_recording().event_count, 50'000u);
  }
}

TEST_F(RecorderTest, AReplacedProgramDoesNotOverwriteItsFirstTrace) {
  RecorderOptions options;
  options.path = path("run.%p.gapless");
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(start_recording(options)) << recording_error();
    for (int i = 0; i <= run; ++i) instant(intern_name("run"));
    stop_recording();
  }
  const std::string id = std::to_string(getpid());
  EXPECT_EQ(read("run." + id + ".gapless").instants.size(), 1u);
  EXPECT_EQ(read("run." + id + "-2.gapless").instants.size(), 2u);
}

TEST_F(RecorderTest, ScopesAndCounterMacrosRecord) {
  start();
  {
    GAPLESS_TRACE_SCOPE("a block");
    GAPLESS_TRACE_COUNTER("a counter", 11);
  }
  stop_recording();
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 1u);
  EXPECT_EQ(trace.names[trace.spans.name[0]], "a block");
  ASSERT_EQ(trace.counters.size(), 1u);
  EXPECT_EQ(trace.counters.value[0], 11.0);
}

}  // namespace
}  // namespace gapless
