// SPDX-License-Identifier: Apache-2.0
//
// Swimlane files with rows that cannot be used, without a clock, cut short, or bad in other ways.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "formats/swimlane_reader.h"
#include "formats/swimlane_test_support.h"

namespace gapless {
namespace {

// --- rows that cannot be used ---

TEST(SwimlaneDamage, CountsRowsThatItCannotUse) {
  struct Case {
    std::string_view row;
    std::string_view code;
    size_t task_count;
  };
  constexpr Case kCases[] = {
      {"[0, 1, 1, 100]", "too-few-numbers", 0},
      {"[]", "too-few-numbers", 0},
      {"[0, 1, 1, 100, null]", "not-numbers", 0},
      {"[0, 1, 1, 1e400, 5]", "not-numbers", 0},
      {"[0, 1, 1, 100, -5]", "not-numbers", 0},
      {"[-1, 1, 1, 100, 110]", "not-numbers", 0},
      {"[4294967295, 1, 1, 100, 110]", "not-numbers", 0},
      {"[0, 18446744073709551616, 1, 100, 110]", "not-numbers", 0},
      {"[0, 1, 1, 18446744073709551615, 18446744073709551615]", "not-numbers", 0},
      {"{\"core\": 0}", "not-numbers", 0},
      {"\"[0, 1, 1, 100, 110]\"", "not-numbers", 0},
      {"[[0], 1, 1, 100, 110]", "not-numbers", 0},
      {"[0, 1, 1, 0, 110]", "empty-records", 0},
      {"[0, 1, 1, 100, 0]", "no-end", 1},
      {"[0, 1, 1, 100, 90]", "negative-duration", 1},
      {"[0, 1, 1, 100, 110, 100]", "receive-too-early", 1},
      {"[7, 1, 1, 100, 110]", "unknown-core", 1},
  };
  for (const Case& test : kCases) {
    const Trace trace = read_rows(test.row, "");
    EXPECT_EQ(finding_count(trace, test.code), 1u) << test.row;
    EXPECT_EQ(trace.tasks.size(), test.task_count) << test.row;
    expect_sound(trace);
  }
  const Trace backwards = read_rows("[0, 1, 1, 100, 110]", "[0, 1, 120, 115]");
  EXPECT_EQ(finding_count(backwards, "finish-before-dispatch"), 1u);
  EXPECT_EQ(backwards.tasks.at(TaskTime::kDispatch)[0], kAbsent);
}

TEST(SwimlaneDamage, CountsTasksOfTheOldestGenerationThatItCannotUse) {
  const Trace trace = read_or_fail({R"({"tasks": [
      {"task_id": 1, "core_id": 0, "core_type": "aic", "start_time_us": 5, "end_time_us": 4},
      {"task_id": 2, "core_id": 0, "core_type": "aiv", "ring_id": 3, "start_time_us": 6,
       "end_time_us": 7, "dispatch_time_us": -1, "finish_time_us": 9, "fanout": [1, "x"]},
      {"task_id": 3, "core_id": 0, "start_time_us": 1e400}, {"core_id": 0, "start_time_us": 1},
      "{\"task_id\": 1}", [], null]})",
                                    "", ""});
  EXPECT_EQ(trace.tasks.size(), 2u);
  EXPECT_EQ(finding_count(trace, "incomplete-tasks"), 5u);
  EXPECT_EQ(finding_count(trace, "negative-duration"), 1u);
  EXPECT_EQ(finding_count(trace, "core-type-changes"), 1u);
  EXPECT_EQ(finding_count(trace, "other-ring"), 1u);
  EXPECT_EQ(finding_count(trace, "bad-edges"), 1u);
  EXPECT_EQ(trace.tasks.at(TaskTime::kFinish)[1], kAbsent) << "a negative dispatch: not recorded";
  EXPECT_EQ(trace.edges.size(), 1u);
}

TEST(SwimlaneDamage, LeavesOutTimesThatDoNotFit) {
  const Trace trace = read_or_fail(
      {R"({"l2_swimlane_level": 1, "metadata": {"clock_freq_hz": 1, "core_types": ["aic"]},
          "aicore_tasks": [[0, 1, 1, 1, 2], [0, 2, 2, 9000000000, 9000000001]]})",
       "", ""});
  EXPECT_EQ(trace.tasks.size(), 1u);
  EXPECT_EQ(finding_count(trace, "time-out-of-range"), 1u);
}

TEST(SwimlaneDamage, TellsOfDropsAndPartsThatItDoesNotRead) {
  const Trace trace = read_or_fail({R"({"chip_swimlane_level": 7, "metadata": {
      "clock_freq_hz": 50, "num_cores": 4, "core_types": ["aic", "?"],
      "pool": {"dropped_records": 3, "total": 9}, "dropped": 0},
      "aicore_tasks": [], "aicpu_tasks": {}, "aicore_resolve_phases": [[1, 2]],
      "aicpu_scheduler_phases": null, "aicpu_orchestrator_phases": 4, "dropped_total": 2}  x)",
                                    "", ""});
  EXPECT_EQ(finding_count(trace, "dropped-records"), 3u);
  EXPECT_EQ(std::count_if(trace.findings.begin(), trace.findings.end(),
                          [](const Finding& f) { return f.code == "dropped-records"; }),
            2);
  EXPECT_EQ(finding_count(trace, "keys-not-read"), 1u);
  EXPECT_EQ(finding_count(trace, "unknown-level"), 1u);
  EXPECT_EQ(finding_count(trace, "core-count"), 1u);
  EXPECT_EQ(finding_count(trace, "not-a-list"), 1u) << "4 is none; null and {} are empty";
  EXPECT_EQ(finding_count(trace, "trailing-bytes"), 1u);
}

TEST(SwimlaneDamage, CountsPhasesThatItCannotUse) {
  SwimlaneText text = chip_text();
  const std::string phase = "{\"kind\": \"dispatch\", \"start_cycles\": 1070";
  text.records.insert(text.records.find(phase),
                      "{\"kind\": \"poll\"}, 7, {\"kind\": \"scan\", \"start_time_us\": 1.5, "
                      "\"end_time_us\": 2}, ");
  const Trace trace = read_or_fail(text);
  EXPECT_EQ(finding_count(trace, "incomplete-phases"), 2u);
  EXPECT_EQ(finding_count(trace, "other-clock"), 1u);
  EXPECT_EQ(trace.spans.size(), 4u);
}

TEST(SwimlaneDamage, RefusesWhatHasNoClockOrIsNoSwimlane) {
  const auto message = [](std::string records) {
    const Result<Trace> trace = read_swimlane_text({std::move(records), "", ""});
    return trace ? std::string("it was read") : trace.error().message;
  };
  EXPECT_EQ(message(R"({"chip_swimlane_level": 1, "aicore_tasks": [[0, 1, 1, 5, 6]]})"),
            "records.json: metadata.clock_freq_hz is missing, so that cycles are no times");
  EXPECT_EQ(message(R"({"l2_swimlane_level": 1, "metadata": {"clock_freq_hz": -5}})"),
            "records.json: metadata.clock_freq_hz is -5; it must be from 1 to 1000000000000");
  EXPECT_EQ(message(R"({"l2_swimlane_level": 1, "metadata": {"clock_freq_hz": 1e400}})"),
            "records.json: metadata.clock_freq_hz is 1e400; it must be from 1 to 1000000000000");
  EXPECT_EQ(message("[1]"), "records.json: no swimlane file: it does not begin with an object");
  EXPECT_EQ(message(R"({"version": 2})"),
            "records.json: no swimlane file: it has neither chip_swimlane_level, nor "
            "l2_swimlane_level, nor tasks");
  EXPECT_EQ(message(R"({"chip_swimlane_level": 1, "meta)"),
            "records.json: metadata.clock_freq_hz is missing, so that cycles are no times; the "
            "file is cut short at byte 32");
}

// --- damage ---

TEST(SwimlaneDamage, GivesWhatLiesBeforeTheCutAtEveryByte) {
  const SwimlaneText whole = chip_text();
  size_t most_tasks = 0;
  for (size_t size = 0; size < whole.records.size(); ++size) {
    SwimlaneText text = whole;
    text.records.resize(size);
    const Result<Trace> trace = read_swimlane_text(text);
    if (!trace) {
      EXPECT_TRUE(trace.error().message.starts_with("records.json: ")) << size;
      EXPECT_EQ(most_tasks, 0u) << "once tasks can be read, they are";
      continue;
    }
    EXPECT_EQ(finding_count(*trace, "cut-short"), 1u) << size;
    EXPECT_EQ(finding_count(*trace, "damaged"), 0u) << size;
    expect_sound(*trace);
    const size_t run_count = trace->tasks.size() - finding_count(*trace, "tasks-without-runs");
    EXPECT_GE(trace->tasks.size(), most_tasks);
    most_tasks = std::max(most_tasks, run_count);
  }
  EXPECT_EQ(most_tasks, 2u);
}

TEST(SwimlaneDamage, UsesWhatLiesBeforeTheCutOfTheOtherFiles) {
  const SwimlaneText whole = chip_text();
  for (size_t size = 1; size < whole.deps.size(); ++size) {
    SwimlaneText text = whole;
    text.deps.resize(size);
    const Trace trace = read_or_fail(text);
    EXPECT_EQ(finding_count(trace, "cut-short"), 1u) << size;
    EXPECT_EQ(trace.tasks.size(), 2u);
    expect_sound(trace);
  }
  for (size_t size = 1; size < whole.names.size(); ++size) {
    SwimlaneText text = whole;
    text.names.resize(size);
    EXPECT_EQ(finding_count(read_or_fail(text), "cut-short"), 1u) << size;
  }
}

// Goal: no byte is trusted. Method: each is replaced by one of five that JSON cares for.
TEST(SwimlaneDamage, SurvivesABadByteAnywhere) {
  constexpr std::string_view kBad("\0\"[}9", 5);
  const SwimlaneText whole = chip_text();
  for (size_t at = 0; at < whole.records.size(); ++at) {
    SwimlaneText text = whole;
    text.records[at] = kBad[at % kBad.size()];
    const Result<Trace> trace = read_swimlane_text(text);
    if (trace) expect_sound(*trace);
  }
  for (size_t at = 0; at < whole.deps.size(); ++at) {
    SwimlaneText text = whole;
    text.deps[at] = kBad[at % kBad.size()];
    expect_sound(read_or_fail(text));
  }
}

TEST(SwimlaneDamage, IsNotImpressedByDepth) {
  const std::string deep(100'000, '[');
  const std::string closed = deep + std::string(deep.size(), ']');
  const Trace trace = read_rows(closed + ", [0, 1, 1, 100, 110]", closed);
  EXPECT_EQ(trace.tasks.size(), 1u);
  EXPECT_EQ(finding_count(trace, "not-numbers"), 2u);
  const Result<Trace> open = read_swimlane_text({records_of(deep, ""), "", ""});
  if (open) expect_sound(*open);
  const Trace graph = read_rows("[0, 1, 1, 100, 110]", "", "{\"edges\": [" + closed + "]}");
  EXPECT_EQ(finding_count(graph, "bad-edges"), 1u);
}

}  // namespace
}  // namespace gapless
