// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_reader.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "formats/swimlane_test_support.h"

namespace gapless {
namespace {

std::vector<std::string> warnings_of(const Trace& trace) {
  std::vector<std::string> codes;
  for (const Finding& finding : trace.findings) {
    if (finding.severity != Severity::kInfo) codes.push_back(finding.code);
  }
  return codes;
}

int64_t time_of(const Trace& trace, uint32_t row, TaskTime time) {
  return trace.tasks.at(time)[row];
}

std::string_view kernel_of(const Trace& trace, uint32_t row) {
  return trace.names[trace.tasks.kernel[row]];
}

std::optional<uint32_t> row_of(const Trace& trace, uint64_t id) {
  const auto found = std::find(trace.tasks.id.begin(), trace.tasks.id.end(), id);
  if (found == trace.tasks.id.end()) return std::nullopt;
  return static_cast<uint32_t>(found - trace.tasks.id.begin());
}

// Edges as pairs of ids.
std::multiset<std::pair<uint64_t, uint64_t>> edge_ids(const Trace& trace) {
  std::multiset<std::pair<uint64_t, uint64_t>> ids;
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    ids.emplace(trace.tasks.id[trace.edges.producer[edge]],
                trace.tasks.id[trace.edges.consumer[edge]]);
  }
  return ids;
}

// --- what is read ---

TEST(SwimlaneReader, KnowsTheThreeGenerationsByTheirContent) {
  EXPECT_TRUE(looks_like_swimlane(kChip));
  EXPECT_TRUE(looks_like_swimlane("\xef\xbb\xbf {\"l2_swimlane_level\": 1"));
  EXPECT_TRUE(looks_like_swimlane(
      R"({"version": 1, "tasks": [{"task_id": 1, "core_id": 0, "start_time_us": 0.0)"));
  EXPECT_FALSE(looks_like_swimlane(kDeps)) << "the graph alone is no trace";
  EXPECT_FALSE(looks_like_swimlane(R"({"traceEvents": [{"name": "\"l2_swimlane_level\""}]})"));
  EXPECT_FALSE(looks_like_swimlane(R"([{"chip_swimlane_level": 1}])"));
  EXPECT_FALSE(looks_like_swimlane(""));
}

TEST(SwimlaneReader, HasLanesForOrchestratorSchedulersAndCores) {
  const Trace trace = read_or_fail(chip_text());
  ASSERT_EQ(trace.lanes.size(), 5u);
  EXPECT_EQ(trace.format, "swimlane");
  EXPECT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.lanes[0].name, "orchestrator");
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(trace.lanes[1].name, "scheduler 0");
  EXPECT_EQ(trace.lanes[1].kind, LaneKind::kScheduler);
  EXPECT_EQ(trace.lanes[2].name, "AIC_0");
  EXPECT_EQ(trace.lanes[3].kind, LaneKind::kCubeCore) << "a core without a task has a lane too";
  EXPECT_EQ(trace.lanes[4].name, "AIV_2");
  EXPECT_EQ(trace.lanes[4].kind, LaneKind::kVectorCore);
  EXPECT_EQ(trace.lanes[4].number, 2);
}

TEST(SwimlaneReader, GivesTasksTheTimesOfAllRows) {
  const Trace trace = read_or_fail(chip_text());
  ASSERT_EQ(trace.tasks.size(), 2u);
  EXPECT_EQ(trace.tasks.id[1], 4294967298u);
  EXPECT_EQ(trace.tasks.lane[1], 4u);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kSubmit), 60 * 20);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kReady), kAbsent);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kDispatch), 280 * 20);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kReceive), 295 * 20);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kStart), 300 * 20);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kEnd), 350 * 20);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kFinish), 360 * 20);
  EXPECT_TRUE(warnings_of(trace).empty());
}

TEST(SwimlaneReader, ShowsPhasesAsSpans) {
  const Trace trace = read_or_fail(chip_text());
  ASSERT_EQ(trace.spans.size(), 4u);
  EXPECT_EQ(trace.names[trace.spans.name[0]], "submit");
  EXPECT_EQ(trace.spans.begin_ns[0], 0);
  EXPECT_EQ(trace.spans.end_ns[0], 40 * 20);
  EXPECT_EQ(trace.names[trace.spans.name[2]], "dispatch");
  EXPECT_EQ(trace.spans.lane[2], 1u);
  EXPECT_EQ(trace.spans.value[2], 1u);
  EXPECT_EQ(trace.names[trace.spans.name[3]], "complete");
}

TEST(SwimlaneReader, NamesKernelsByMapThenNumberThenNotAtAll) {
  SwimlaneText text = chip_text();
  const Trace named = read_or_fail(text);
  EXPECT_EQ(kernel_of(named, 0), "kernel 12") << "not in the map";
  EXPECT_EQ(kernel_of(named, 1), "softmax");
  text.names = R"({"12": "matmul"})";
  EXPECT_EQ(kernel_of(read_or_fail(text), 0), "matmul") << "the map alone";
  text.deps.clear();
  const Trace bare = read_or_fail(text);
  EXPECT_EQ(kernel_of(bare, 0), "task");
  EXPECT_EQ(bare.edges.size(), 0u);
  EXPECT_EQ(finding_count(bare, "no-deps"), 1u);
}

TEST(SwimlaneReader, ReadsTheGenerationBeforeTheSameWay) {
  SwimlaneText text = chip_text();
  const Trace chip = read_or_fail(text);
  text.records.replace(text.records.find("chip_"), 5, "l2_");
  const Trace l2 = read_or_fail(text);
  EXPECT_EQ(l2.tasks.time_ns, chip.tasks.time_ns);
  EXPECT_EQ(l2.tasks.id, chip.tasks.id);
  EXPECT_EQ(edge_ids(l2), edge_ids(chip));
}

TEST(SwimlaneReader, ReadsDispatchesInTheirNewerWrapping) {
  SwimlaneText text = chip_text();
  const size_t at = text.records.find("\"aicpu_tasks\": [");
  text.records.replace(at, 16, "\"scheduler_tasks\": {\"producer\": \"aicpu\", \"records\": [");
  text.records.insert(text.records.find("]]", at) + 2, "}");
  const Trace trace = read_or_fail(text);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kDispatch), 80 * 20);
  EXPECT_TRUE(warnings_of(trace).empty());
}

TEST(SwimlaneReader, ReadsTheOldestGeneration) {
  const Trace trace = read_or_fail({R"({"version": 2, "tasks": [
    {"task_id": 5, "func_id": 3, "core_id": 7, "core_type": "aiv", "ring_id": 0,
     "start_time_us": 1.234, "end_time_us": 2.000, "duration_us": 0.766,
     "dispatch_time_us": 0.000, "finish_time_us": 2.500, "fanout": [6, 9], "fanout_count": 2},
    {"task_id": 6, "func_id": -1, "core_id": 1, "core_type": "aic", "start_time_us": 3.001,
     "end_time_us": 4, "dispatch_time_us": 0.0, "finish_time_us": 0.0, "fanout": []}],
    "aicpu_scheduler_phases": [[{"start_time_us": 0.5, "end_time_us": 1.0, "phase": "scan"}]],
    "aicpu_orchestrator": {"start_time_us": 0.100, "end_time_us": 9.999, "submit_count": 2}})",
                                    "", std::string(kNames)});
  ASSERT_EQ(trace.tasks.size(), 2u);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kDispatch), 0);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kStart), 1234);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kEnd), 2000);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kFinish), 2500);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kReceive), kAbsent);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kDispatch), kAbsent) << "0 and 0: not recorded";
  EXPECT_EQ(kernel_of(trace, 0), "softmax");
  EXPECT_EQ(kernel_of(trace, 1), "task");
  EXPECT_EQ(trace.lanes[trace.tasks.lane[0]].name, "AIV_7");
  EXPECT_EQ(edge_ids(trace), (std::multiset<std::pair<uint64_t, uint64_t>>{{5, 6}}));
  EXPECT_EQ(finding_count(trace, "edges-to-nowhere"), 1u) << "task 9 is not there";
  ASSERT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(trace.names[trace.spans.name[0]], "orchestrate");
  EXPECT_EQ(trace.spans.end_ns[0], 9999);
}

TEST(SwimlaneReader, SaysWhatRecordingCosts) {
  const Trace trace = read_or_fail(chip_text());
  EXPECT_EQ(finding_count(trace, "observer-effect"), 2u);
  const auto found = std::find_if(trace.findings.begin(), trace.findings.end(),
                                  [](const Finding& f) { return f.code == "observer-effect"; });
  EXPECT_NE(found->text.find("level 4: upstream measured about 0.8 us a task switch and 6.5-9.6 %"),
            std::string::npos)
      << found->text;
}

// --- times ---

TEST(SwimlaneReader, TurnsCyclesIntoNanosecondsExactly) {
  // 2^53 + 1 is no double, and 1e9 times it does not fit into 64 bits.
  const auto start_ns = [](std::string_view hz, std::string_view cycles) {
    const Trace trace =
        read_or_fail({fmt::format(R"({{"l2_swimlane_level": 1, "metadata": {{"clock_freq_hz": {}, )"
                                  R"("core_types": ["aic"]}}, "aicore_tasks": [[0, 1, 1, 1, 1], )"
                                  R"([0, 2, 2, {}, {}]]}})",
                                  hz, cycles, cycles),
                      "", ""});
    return time_of(trace, 1, TaskTime::kStart);
  };
  EXPECT_EQ(start_ns("1000000000", "9007199254740994"), 9007199254740993);
  EXPECT_EQ(start_ns("50000000", "9007199254740994"), 9007199254740993 * 20);
  EXPECT_EQ(start_ns("50000000", "2"), 20);
  EXPECT_EQ(start_ns("3", "2"), 333333333);
  EXPECT_EQ(start_ns("3", "4"), 1000000000);
  EXPECT_EQ(start_ns("1000000000000", "2001"), 2);
}

TEST(SwimlaneReader, KeepsSixteenDigitsOfMicroseconds) {
  const Trace trace = read_or_fail({R"({"tasks": [
    {"task_id": 1, "core_id": 0, "start_time_us": 1730000000000000.123,
     "end_time_us": 1730000000000000.144},
    {"task_id": 2, "core_id": 0, "start_time_us": 1730000000000001.000,
     "end_time_us": "1730000000000001.001"}]})",
                                    "", ""});
  EXPECT_EQ(time_of(trace, 0, TaskTime::kStart), 0);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kEnd), 21);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kStart), 877);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kEnd), 878);
}

// --- joining ---

TEST(SwimlaneReader, JoinsByCoreAndRegisterIdAndNeverByToken) {
  // One task, twice on core 0 and once on core 1; register ids of the two cores are the same.
  const Trace trace =
      read_rows("[0, 5, 1, 100, 110, 0], [0, 5, 2, 200, 210, 0], [1, 5, 1, 300, 310]",
                "[1, 1, 290, 320], [0, 2, 190, 220], [0, 1, 90, 120]");
  ASSERT_EQ(trace.tasks.size(), 3u);
  for (uint32_t row = 0; row < 3; ++row) {
    const int64_t start_ns = time_of(trace, row, TaskTime::kStart);
    EXPECT_EQ(time_of(trace, row, TaskTime::kDispatch), start_ns - 10);
    EXPECT_EQ(time_of(trace, row, TaskTime::kFinish), start_ns + 20);
  }
  EXPECT_EQ(time_of(trace, 0, TaskTime::kReceive), time_of(trace, 0, TaskTime::kStart));
  EXPECT_EQ(time_of(trace, 2, TaskTime::kReceive), kAbsent) << "a row of five numbers";
}

TEST(SwimlaneReader, JoinsRegisterIdsThatComeAgainInTheirOrder) {
  const Trace trace = read_rows("[0, 5, 1, 100, 110], [0, 6, 1, 200, 210], [0, 7, 1, 300, 310]",
                                "[0, 1, 90, 120], [0, 1, 190, 220]");
  EXPECT_EQ(time_of(trace, 0, TaskTime::kDispatch), 0);
  EXPECT_EQ(time_of(trace, 1, TaskTime::kDispatch), 100);
  EXPECT_EQ(time_of(trace, 2, TaskTime::kDispatch), kAbsent);
  EXPECT_EQ(finding_count(trace, "repeated-keys"), 3u);
  EXPECT_EQ(finding_count(trace, "aicore-without-aicpu"), 1u);
}

TEST(SwimlaneReader, CountsRowsWithoutAPartner) {
  const Trace trace = read_rows("[0, 5, 1, 100, 110], [0, 6, 2, 200, 210]",
                                "[0, 2, 190, 220], [0, 3, 290, 320], [1, 1, 5, 6], [9, 9, 1, 2]");
  EXPECT_EQ(trace.tasks.size(), 2u);
  EXPECT_EQ(finding_count(trace, "aicpu-without-aicore"), 3u);
  EXPECT_EQ(finding_count(trace, "aicore-without-aicpu"), 1u);
  EXPECT_EQ(time_of(trace, 0, TaskTime::kStart), 0) << "what was left out is not the first time";
  const Trace other_core =
      read_rows("[0, 5, 1, 100, 110], [0, 6, 2, 200, 210]", "[1, 1, 90, 120], [1, 2, 190, 220]");
  EXPECT_EQ(finding_count(other_core, "aicpu-without-aicore"), 2u);
  EXPECT_EQ(finding_count(other_core, "aicore-without-aicpu"), 2u);
}

// --- tasks of several runs ---

std::string graph_task(uint64_t token, std::string_view kernels, int block_count) {
  return fmt::format(R"({{"task_id": "{}", "kernel_ids": [{}], "block_num": {}}})", token, kernels,
                     block_count);
}
std::string graph_edge(uint64_t producer, uint64_t consumer) {
  return fmt::format(R"({{"pred": "{}", "succ": "{}"}})", producer, consumer);
}

TEST(SwimlaneReader, JoinsTheBlocksOfATaskSoThatEdgesAddAndDoNotMultiply) {
  std::string rows;
  constexpr int kBlocks = 20;
  for (int block = 0; block < kBlocks; ++block) {
    rows += fmt::format("{}[0, 1, {}, {}, {}], [0, 2, {}, {}, {}]", block == 0 ? "" : ", ", block,
                        100 + block, 101 + block, 50 + block, 200 + block, 201 + block);
  }
  const Trace trace = read_rows(rows, "",
                                "{\"tasks\": [" + graph_task(1, "7, -1, -1", kBlocks) + ", " +
                                    graph_task(2, "8, -1, -1", kBlocks) + "], \"edges\": [" +
                                    graph_edge(1, 2) + ", " + graph_edge(1, 2) + "]}");
  ASSERT_EQ(trace.tasks.size(), 2u * kBlocks + 1);
  EXPECT_EQ(trace.edges.size(), 2u * kBlocks);
  EXPECT_EQ(finding_count(trace, "repeated-edges"), 1u);
  EXPECT_EQ(finding_count(trace, "several-runs"), 2u);
  const std::optional<uint32_t> join = row_of(trace, 1);
  ASSERT_TRUE(join.has_value());
  EXPECT_EQ(kernel_of(trace, *join), "kernel 7 (all blocks)");
  EXPECT_EQ(time_of(trace, *join, TaskTime::kStart), kAbsent);
  const std::multiset<std::pair<uint64_t, uint64_t>> edges = edge_ids(trace);
  for (uint64_t block = 1; block <= kBlocks; ++block) {
    EXPECT_TRUE(edges.contains({1 + (block << 40), 1}));
    EXPECT_TRUE(edges.contains({1, 2 + (block << 40)}));
  }
  const std::set<uint64_t> ids(trace.tasks.id.begin(), trace.tasks.id.end());
  EXPECT_EQ(ids.size(), trace.tasks.size());
}

TEST(SwimlaneReader, NamesTheKernelsOfAMixedTaskByTheirCores) {
  const Trace trace =
      read_rows("[0, 1, 1, 100, 110], [1, 1, 1, 101, 111], [1, 2, 2, 120, 130]", "",
                "{\"tasks\": [" + graph_task(1, "4, 5, 5", 1) + ", " +
                    graph_task(2, "-1, -1, 6", 1) + "], \"edges\": [" + graph_edge(1, 2) + "]}");
  ASSERT_EQ(trace.tasks.size(), 4u);
  EXPECT_EQ(kernel_of(trace, 0), "kernel 4");
  EXPECT_EQ(kernel_of(trace, 1), "kernel 5");
  EXPECT_EQ(kernel_of(trace, 2), "kernel 6");
  EXPECT_EQ(finding_count(trace, "block-count"), 1u) << "the second vector kernel has no run";
  const Trace differing = read_rows("[1, 1, 1, 100, 110], [1, 1, 2, 120, 130]", "",
                                    "{\"tasks\": [" + graph_task(1, "-1, 5, 6", 1) + "]}");
  EXPECT_EQ(finding_count(differing, "second-vector-kernel"), 2u);
}

TEST(SwimlaneReader, GathersManyProducersBeforeManyBlocks) {
  std::string rows;
  std::string tasks;
  std::string edges;
  constexpr int kCount = 100;  // 100 x 100 edges would be more than are made directly
  for (int i = 1; i <= kCount; ++i) {
    rows += fmt::format("{}[0, {}, {}, {}, {}], [1, 500, {}, {}, {}]", i == 1 ? "" : ", ", i, i,
                        1000 + i, 1001 + i, i, 5000 + i, 5001 + i);
    tasks += graph_task(static_cast<uint64_t>(i), "1, -1, -1", 1) + ", ";
    edges += (i == 1 ? "" : ", ") + graph_edge(static_cast<uint64_t>(i), 500);
  }
  const Trace trace = read_rows(rows, "",
                                "{\"tasks\": [" + tasks + graph_task(500, "-1, 2, -1", kCount) +
                                    "], \"edges\": [" + edges + "]}");
  EXPECT_EQ(trace.edges.size(), 2u * kCount);
  EXPECT_EQ(kernel_of(trace, 2 * kCount), "kernel 2 (before all blocks)");
  const std::set<uint64_t> ids(trace.tasks.id.begin(), trace.tasks.id.end());
  EXPECT_EQ(ids.size(), trace.tasks.size());
}

TEST(SwimlaneReader, KeepsIdsApartWhenTokensLeaveNoRoom) {
  const uint64_t largest = ~uint64_t{0};
  const Trace trace =
      read_rows(fmt::format("[0, {}, 1, 100, 110], [0, {}, 2, 120, 130], [0, 0, 3, 140, 150]",
                            largest, largest),
                "");
  const std::set<uint64_t> ids(trace.tasks.id.begin(), trace.tasks.id.end());
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(ids.contains(0));
}

TEST(SwimlaneReader, KeepsWaitingThroughTasksThatDidNotRun) {
  const Trace trace =
      read_rows("[0, 1, 1, 100, 110], [0, 3, 2, 120, 130]", "[0, 1, 90, 111], [0, 2, 115, 131]",
                "{\"tasks\": [" + graph_task(1, "1, -1, -1", 1) + ", " +
                    graph_task(2, "-1, -1, -1", 1) + ", " + graph_task(3, "1, -1, -1", 1) + ", " +
                    graph_task(4, "9, -1, -1", 1) + "], \"edges\": [" + graph_edge(1, 2) + ", " +
                    graph_edge(2, 3) + ", " + graph_edge(77, 3) + ", " + graph_edge(3, 3) + "]}");
  EXPECT_EQ(edge_ids(trace), (std::multiset<std::pair<uint64_t, uint64_t>>{{1, 2}, {2, 3}}));
  EXPECT_EQ(kernel_of(trace, *row_of(trace, 2)), "no kernel");
  EXPECT_EQ(finding_count(trace, "tasks-without-kernel"), 1u);
  EXPECT_EQ(finding_count(trace, "tasks-without-runs"), 1u);
  EXPECT_EQ(finding_count(trace, "edges-to-nowhere"), 1u);
  EXPECT_EQ(finding_count(trace, "self-edges"), 1u);
}

TEST(SwimlaneReader, TellsEdgesByWhatTheyAreFor) {
  const Trace trace =
      read_rows("[0, 1, 1, 100, 110], [0, 2, 2, 120, 130], [0, 3, 3, 140, 150]", "",
                R"({"edges": [{"pred": "1", "succ": "2", "source": "explicit", "flags": ["wait"]},
          {"pred": "2", "succ": "3", "source": "explicit"},
          {"pred": "2", "succ": "3", "source": "creator", "flags": ["wait", "retain"]},
          {"pred": "1", "succ": "3", "source": "creator", "flags": ["retain"]},
          {"pred": "x", "succ": "3"}]})");
  ASSERT_EQ(trace.edges.size(), 2u);
  EXPECT_EQ(trace.edges.kind[0], static_cast<uint8_t>(EdgeKind::kOrder));
  EXPECT_EQ(trace.edges.kind[1], static_cast<uint8_t>(EdgeKind::kData)) << "both: for data";
  EXPECT_EQ(finding_count(trace, "edges-without-wait"), 1u);
  EXPECT_EQ(finding_count(trace, "bad-edges"), 1u);
  EXPECT_EQ(finding_count(trace, "not-in-deps"), 3u);
}

// --- files ---

void write_or_fail(const std::string& path, std::string_view text) {
  const Result<void> written = write_text_file(path, text);
  ASSERT_TRUE(written.has_value()) << written.error().message;
}

TEST(SwimlaneReader, FindsTheFilesOfAFolderByTheirContent) {
  const TemporaryDirectory folder;
  write_or_fail(folder.path("anything.json"), kChip);
  write_or_fail(folder.path("deps.json"), kDeps);
  write_or_fail(folder.path("name_map_Decode_case1.json"), kNames);
  write_or_fail(folder.path("merged_swimlane.json"), R"({"traceEvents": []})");
  EXPECT_TRUE(is_swimlane_folder(folder.path()));
  for (const std::string& path : {folder.path(), folder.path("anything.json")}) {
    const Result<Trace> trace = read_swimlane(path, {});
    ASSERT_TRUE(trace.has_value()) << trace.error().message;
    EXPECT_EQ(trace->edges.size(), 1u);
    EXPECT_EQ(kernel_of(*trace, 1), "softmax");
  }
  write_or_fail(folder.path("name_map_Decode_case0.json"),
                R"({"level": 3, "callable_id_to_name": {"3": "layer"}})");
  const Result<Trace> trace = read_swimlane(folder.path(), {});
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(kernel_of(*trace, 1), "softmax") << "level 2 is that of the kernels";
  EXPECT_EQ(finding_count(*trace, "several-name-maps"), 2u);
}

TEST(SwimlaneReader, SaysWhichFoldersItCannotRead) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(is_swimlane_folder(folder.path()));
  EXPECT_FALSE(is_swimlane_folder(folder.path("nothing")));
  const Result<Trace> none = read_swimlane(folder.path(), {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, folder.path() +
                                      ": a directory without a swimlane file; looked for a .json "
                                      "with chip_swimlane_level, l2_swimlane_level or tasks");
  write_or_fail(folder.path("a.json"), kChip);
  write_or_fail(folder.path("b.json"), kChip);
  EXPECT_TRUE(is_swimlane_folder(folder.path()));
  const Result<Trace> two = read_swimlane(folder.path(), {});
  ASSERT_FALSE(two.has_value());
  EXPECT_EQ(two.error().message,
            folder.path() + ": holds 2 swimlane files (a.json, b.json); give one of them");
}

}  // namespace
}  // namespace gapless
