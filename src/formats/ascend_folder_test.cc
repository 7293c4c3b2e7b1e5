// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_folder.h"

#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "formats/ascend_folder_test_support.h"
#include "formats/row_text.h"

namespace gapless {
namespace {

constexpr std::string_view kOutput = "ASCEND_PROFILER_OUTPUT/";
constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 337000\n";

// The kernels of a timeline: one of 10 us on stream 2, and a collective.
constexpr std::string_view kTimeline = R"([
{"ph":"M","name":"process_name","pid":7,"tid":0,"args":{"name":"Ascend Hardware"}},
{"ph":"M","name":"thread_name","pid":7,"tid":2,"args":{"name":"Stream 2"}},
{"ph":"X","name":"MatMulV2","pid":7,"tid":2,"ts":"1000.000","dur":10.0,
 "args":{"Task Type":"AI_CORE","Physic Stream Id":2,"Task Id":1}}])";

CaptureTable read_folder(const std::string& path) {
  Result<CaptureTable> table = read_ascend_folder(path);
  EXPECT_TRUE(table.has_value()) << (table ? "" : table.error().message);
  return table ? std::move(*table) : CaptureTable{};
}

std::string error_of(const std::string& path) {
  const Result<CaptureTable> table = read_ascend_folder(path);
  return table ? "no error" : table.error().message;
}

std::set<int32_t> devices_of(const CaptureTable& table) {
  return {table.device.begin(), table.device.end()};
}

std::vector<int32_t> ranks_in(const std::string& path) {
  std::vector<int32_t> ranks;
  for (const AscendFolder& folder : find_ascend_folders(path)) ranks.push_back(folder.rank);
  return ranks;
}

// One kernel of 10 us on device 4, as ascend_pytorch_profiler.db has it; or wait and transit of
// hcom_allReduce__503_0_1, as analysis.db has it.
constexpr const char* kKernelTables =
    "CREATE TABLE STRING_IDS(id INTEGER, value TEXT);"
    "INSERT INTO STRING_IDS VALUES(1,'MatMulV2_7'),(2,'MatMulV2'),(3,'AI_CORE');"
    "CREATE TABLE TASK(startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, "
    "globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId "
    "INTEGER, taskId INTEGER, modelId INTEGER);"
    "INSERT INTO TASK VALUES(1000000,1010000,4,-1,11,1,3,4294967295,2,1,4294967295);"
    "CREATE TABLE COMPUTE_TASK_INFO(name INTEGER, globalTaskId INTEGER, blockDim INTEGER, "
    "mixBlockDim INTEGER, taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes "
    "INTEGER, inputShapes INTEGER, outputFormats INTEGER, outputDataTypes INTEGER, outputShapes "
    "INTEGER, attrInfo INTEGER);"
    "INSERT INTO COMPUTE_TASK_INFO(name, globalTaskId, taskType, opType) VALUES(1,11,3,2);";
constexpr const char* kAnalysisTables =
    "CREATE TABLE CommAnalyzerTime(hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, "
    "elapse_time NUMERIC, transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, "
    "idle_time NUMERIC, step TEXT, type TEXT);"
    "INSERT INTO CommAnalyzerTime VALUES('hcom_allReduce__503_0_1@175','g',1010.0,0.005,0.001,"
    "0.004,0.002,0,'step50','collective');";

void write_database(const std::string& path, const char* sql) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  EXPECT_EQ(sqlite3_close(database), SQLITE_OK);
}

TEST(AscendFolder, ReadsAWholeRankAndChecksIt) {
  const ProfilerFolder folder;
  folder.write_rank("worker_1_ascend_pt", "0");
  const std::string root = folder.path("worker_1_ascend_pt");
  for (const std::string& path :
       {root, root + "/", folder.path(), root + "/ASCEND_PROFILER_OUTPUT"}) {
    EXPECT_TRUE(is_ascend_folder(path));
    const CaptureTable table = read_folder(path);
    EXPECT_EQ(table.format, "ascend-csv") << path;
    EXPECT_EQ(table.size(), two_steps().size()) << path;
    EXPECT_EQ(finding_count(table.findings, "step-trace-agrees"), 2u) << path;
    EXPECT_EQ(finding_count(table.findings, "communication-joined"), 2u) << path;
    EXPECT_EQ(finding_count(table.findings, "incomplete"), 0u) << path;
    EXPECT_EQ(finding_count(table.findings, "source-unread"), 0u) << path;
    EXPECT_EQ(property_of(table, "ascend.step_trace.computing_ns"), "60000") << path;
    EXPECT_EQ(table.wait_ns.at(1), 4000) << path;
  }
}

TEST(AscendFolder, GoesWithoutAnythingThatIsMissing) {
  const std::vector<std::string> parts = {"step_trace_time.csv", "communication.json",
                                          "analyse.done"};
  for (uint32_t missing = 0; missing < 8; ++missing) {
    const ProfilerFolder folder;
    folder.write_rank("w_ascend_pt", "0");
    const std::string output = folder.path("w_ascend_pt/" + std::string(kOutput));
    for (size_t part = 0; part < parts.size(); ++part) {
      if ((missing >> part & 1) != 0) std::filesystem::remove(output + parts[part]);
    }
    const CaptureTable table = read_folder(folder.path());
    EXPECT_EQ(table.size(), two_steps().size());
    EXPECT_EQ(finding_count(table.findings, "step-trace-agrees"), (missing & 1) != 0 ? 0u : 2u);
    EXPECT_EQ(table.wait_ns.empty(), (missing & 2) != 0);
    EXPECT_EQ(finding_count(table.findings, "incomplete"), (missing & 4) != 0 ? 1u : 0u);
  }
}

TEST(AscendFolder, SaysThatSumsDiffer) {
  const ProfilerFolder folder;
  folder.write_rank("w_ascend_pt", "0");
  folder.write("w_ascend_pt/" + std::string(kOutput) + "step_trace_time.csv",
               std::string(kStepTraceHeader) + "0,50,300,5,0,5,0,305,0,5,1\n");
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(finding_count(table.findings, "step-trace-differs"), 1u);
}

TEST(AscendFolder, KnowsFilesByTheirContent) {
  const ProfilerFolder folder;
  folder.write("run/a.csv", ascend_text("H12", two_steps()));
  folder.write("run/b.csv", two_steps_trace());
  folder.write("run/c", two_steps_communication());
  folder.write("run/op_statistic.csv", "OP Type,Core Type,Count,Total Time(us)\nMatMul,AI,1,2\n");
  folder.write("run/communication_matrix.json",
               R"({"step": {"collective": {"a": {"0-1": {"Transport Type": "HCCS"}}}}})");
  folder.write("run/mindstudio_insight_data.db", "SQLite format 3");
  const std::vector<AscendFolder> folders = find_ascend_folders(folder.path());
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(folders[0].tables, std::vector<std::string>{folder.path("run/a.csv")});
  EXPECT_EQ(folders[0].step_trace, folder.path("run/b.csv"));
  EXPECT_EQ(folders[0].communication, folder.path("run/c"));
  EXPECT_TRUE(folders[0].databases.empty());
  EXPECT_TRUE(folders[0].is_finished) << "no folder of the profiler: nothing says more";
  EXPECT_TRUE(is_ascend_folder(folder.path()));
}

TEST(AscendFolder, IsNotAnyFolder) {
  const ProfilerFolder folder;
  EXPECT_FALSE(is_ascend_folder(folder.path()));
  EXPECT_FALSE(is_ascend_folder(folder.path("none")));
  folder.write("proc.0/metadata.json", "{}");
  folder.write("trace.json", kTimeline);
  folder.write("notes.csv", "a,b\n1,2\n");
  EXPECT_FALSE(is_ascend_folder(folder.path())) << "a timeline alone may be anyone's";
  EXPECT_FALSE(is_ascend_folder(folder.path("notes.csv")));
  const std::string message = error_of(folder.path());
  EXPECT_TRUE(message.starts_with(folder.path() + ": no output of the Ascend profiler in it"));
  folder.write("empty_ascend_pt/readme", "x");
  EXPECT_TRUE(is_ascend_folder(folder.path())) << "by its name";
  EXPECT_TRUE(error_of(folder.path()).starts_with(folder.path() + ": no output"));
}

TEST(AscendFolder, LooksTwoLevelsDeep) {
  const ProfilerFolder folder;
  folder.write_rank("a/b/w_ascend_pt", "0");
  EXPECT_EQ(find_ascend_folders(folder.path()).size(), 0u);
  EXPECT_EQ(find_ascend_folders(folder.path("a")).size(), 1u);
  EXPECT_EQ(find_ascend_folders(folder.path("a/b")).size(), 1u);
}

TEST(AscendFolder, FindsTheRank) {
  const ProfilerFolder folder;
  const std::string table = ascend_text("H7", two_steps());
  const auto write = [&](const std::string& name) {
    folder.write(name + "/" + std::string(kOutput) + "kernel_details.csv", table);
  };
  write("int_rank9_ascend_pt");
  folder.write("int_rank9_ascend_pt/profiler_info_3.json", R"({"a": [1], "rank_id": 1})");
  write("text_ascend_pt");
  folder.write("text_ascend_pt/profiler_info_3.json", R"({"rank_id": "2"})");
  write("bad_ascend_pt");
  folder.write("bad_ascend_pt/profiler_info_3.json", R"({"rank_id": )");
  write("dp0_pp0_tp1_rank4_7_ascend_pt");
  write("dp0_pp0_tp5_7_ascend_pt");
  write("profiler-qwen3-input4096-output1-rank6");
  write("dp1_tp0_ascend_pt");
  write("host_17_20250101_ascend_pt");
  EXPECT_EQ(ranks_in(folder.path()), (std::vector<int32_t>{-1, -1, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ranks_in(folder.path("text_ascend_pt/ASCEND_PROFILER_OUTPUT")),
            std::vector<int32_t>{2});
  const CaptureTable rank = read_folder(folder.path("bad_ascend_pt"));
  EXPECT_EQ(devices_of(rank), std::set<int32_t>{3}) << "the table does not say its device";
}

// Row 17.
TEST(AscendFolder, ReadsRanksAsDevices) {
  const ProfilerFolder folder;
  folder.write_rank("b_ascend_pt", "1", "1");
  folder.write_rank("a_ascend_pt", "0", "0");
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(table.size(), 2 * two_steps().size());
  EXPECT_EQ(devices_of(table), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(find_finding(table, "devices-are-ranks"), nullptr);
  EXPECT_EQ(find_finding(table, "ranks-apart"), nullptr);
  EXPECT_EQ(finding_count(table.findings, "communication-joined"), 4u);
  EXPECT_EQ(table.wait_ns.size(), table.size());
  EXPECT_EQ(property_of(table, "ascend.rank0.step_trace.computing_ns"), "60000");
  EXPECT_EQ(property_of(table, "ascend.rank1.step_trace.computing_ns"), "60000");
  EXPECT_EQ(property_of(table, "ascend.rank_count"), "2");
  for (size_t row = 1; row < table.size(); ++row) {
    EXPECT_LE(std::pair(table.device[row - 1], table.start_ns[row - 1]),
              std::pair(table.device[row], table.start_ns[row]));
  }
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), 0u);
  const Result<uint64_t> bytes = write_row_text(table, rows, folder.path("out.csv"));
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
  std::vector<AscendRowCells> cells = two_steps("0");
  for (const AscendRowCells& row : two_steps("1")) cells.push_back(row);
  EXPECT_EQ(*read_text_file(folder.path("out.csv")), ascend_text("H8", cells));
}

TEST(AscendFolder, NumbersDevicesByRankWhereTheyShareOne) {
  const ProfilerFolder folder;
  folder.write_rank("a_ascend_pt", "8", "0");
  folder.write_rank("b_ascend_pt", "9", "0");
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(devices_of(table), (std::set<int32_t>{8, 9}));
  EXPECT_EQ(finding_text(table, "devices-are-ranks"),
            "2 ranks have 1 device numbers between them: devices are numbered by rank here");
  EXPECT_EQ(finding_count(table.findings, "step-trace-agrees"), 4u) << "checked before that";

  const ProfilerFolder same;
  same.write_rank("a_ascend_pt", "8", "0");
  same.write_rank("b_ascend_pt", "8", "0");
  const CaptureTable twice = read_folder(same.path());
  EXPECT_EQ(devices_of(twice), (std::set<int32_t>{0, 1}));
  EXPECT_NE(finding_text(twice, "devices-are-ranks").find("order of their folders"),
            std::string::npos);
  EXPECT_EQ(property_of(twice, "ascend.folder0.step_trace.computing_ns"), "60000");
  EXPECT_EQ(property_of(twice, "ascend.folder1.step_trace.computing_ns"), "60000");
}

TEST(AscendFolder, SaysThatRanksLieApart) {
  const ProfilerFolder folder;
  folder.write("a_ascend_pt/kernel_details.csv", ascend_text("H7", {{.start = "1000"}}));
  folder.write("b_ascend_pt/kernel_details.csv", ascend_text("H7", {{.start = "5000"}}));
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(devices_of(table), (std::set<int32_t>{0, 1}));
  EXPECT_TRUE(finding_text(table, "ranks-apart")
                  .starts_with("one of 2 ranks ends 4000000 ns before another begins"));
}

TEST(AscendFolder, ReadsNativeFoldersOfBothLayouts) {
  const ProfilerFolder folder;
  const std::string root = "PROF_000001_20250101_ABC";
  folder.write(root + "/mindstudio_profiler_output/op_summary_slice_0_1.csv",
               ascend_text("H9", {{.start = "1000"}}));
  folder.write(root + "/mindstudio_profiler_output/op_summary_slice_1_1.csv",
               ascend_text("H9", {{.start = "2000"}}));
  folder.write(root + "/analyze/communication.json", two_steps_communication());
  const std::vector<AscendFolder> folders = find_ascend_folders(folder.path(root));
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(folders[0].tables.size(), 2u);
  EXPECT_EQ(folders[0].communication, folder.path(root + "/analyze/communication.json"));
  EXPECT_EQ(read_folder(folder.path()).size(), 2u);

  const ProfilerFolder old;
  const std::string by_device = ascend_text("H7", {{.start = "1000"}});
  old.write("PROF_1_2_A/device_0/summary/op_summary_0_1.csv", by_device);
  old.write("PROF_1_2_A/device_3/summary/op_summary_3_1.csv", by_device);
  old.write("PROF_1_2_A/device_3/timeline/msprof_3_1.json", kTimeline);
  const CaptureTable table = read_folder(old.path());
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(devices_of(table), (std::set<int32_t>{0, 3})) << "by the names of the folders";
}

TEST(AscendFolder, TakesFromTheNestedFolderWhatIsMissing) {
  const ProfilerFolder folder;
  const std::string native = "w_ascend_pt/PROF_000001_2_A/mindstudio_profiler_output/";
  folder.write_rank("w_ascend_pt", "0");
  folder.write(native + "op_summary_1.csv", ascend_text("H9", {{.start = "77"}}));
  folder.write(native + "msprof_1.json", kTimeline);
  ASSERT_EQ(find_ascend_folders(folder.path()).size(), 1u) << "one rank, not two";
  EXPECT_EQ(read_folder(folder.path()).size(), two_steps().size());
  std::filesystem::remove(
      folder.path("w_ascend_pt/" + std::string(kOutput) + "kernel_details.csv"));
  const CaptureTable table = read_folder(folder.path());
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.start_ns[0], 77'000);
  std::filesystem::remove_all(folder.path("w_ascend_pt/" + std::string(kOutput)));
  EXPECT_EQ(read_folder(folder.path()).size(), 1u);
}

// Row 40.
TEST(AscendFolder, TriesTheNextSourceWhereOneCannotBeRead) {
  const ProfilerFolder folder;
  const std::string output = "w_ascend_pt/" + std::string(kOutput);
  folder.write(output + "kernel_details.csv", kPointer);
  folder.write(output + "ascend_pytorch_profiler.db", "SQLite format 3");
  folder.write(output + "trace_view.json", kTimeline);
  const CaptureTable table = read_folder(folder.path());
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.duration_ns[0], 10'000);
  EXPECT_TRUE(table.text_offset.empty());
  EXPECT_EQ(finding_count(table.findings, "source-unread"), 2u);
  EXPECT_NE(finding_text(table, "source-unread").find("git-lfs pointer"), std::string::npos);

  std::filesystem::remove(folder.path(output + "ascend_pytorch_profiler.db"));
  write_database(folder.path(output + "ascend_pytorch_profiler.db"), kKernelTables);
  const CaptureTable from_database = read_folder(folder.path());
  ASSERT_EQ(from_database.size(), 1u);
  EXPECT_EQ(from_database.device[0], 4);
  EXPECT_EQ(finding_count(from_database.findings, "source-unread"), 1u);
}

TEST(AscendFolder, SaysWhyNoSourceCanBeRead) {
  const ProfilerFolder folder;
  folder.write("w_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "");
  folder.write("w_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", "[]");
  const Result<CaptureTable> table = read_ascend_folder(folder.path());
  ASSERT_FALSE(table.has_value());
  EXPECT_NE(table.error().message.find("kernel_details.csv"), std::string::npos)
      << table.error().message;
}

TEST(AscendFolder, JoinsAnalysisDatabasesWhereThereIsNoJson) {
  const ProfilerFolder folder;
  folder.write_rank("w_ascend_pt", "0");
  const std::string output = folder.path("w_ascend_pt/" + std::string(kOutput));
  write_database(output + "analysis.db", kAnalysisTables);
  EXPECT_EQ(read_folder(folder.path()).wait_ns.at(4), 6500) << "of the JSON file";
  std::filesystem::remove(output + "communication.json");
  const CaptureTable table = read_folder(folder.path());
  ASSERT_EQ(table.wait_ns.size(), table.size());
  EXPECT_EQ(table.wait_ns[1], 4000);
  EXPECT_EQ(table.transit_ns[1], 1000);
  EXPECT_EQ(table.wait_ns[4], kAbsent);
  EXPECT_EQ(finding_count(table.findings, "communication-joined"), 1u);
}

TEST(AscendFolder, SaysThatSlicesAreMissing) {
  const ProfilerFolder folder;
  const std::string output = "PROF_000001_20261116_ABC/mindstudio_profiler_output/";
  for (const int slice : {0, 2, 3}) {
    folder.write(output + "op_summary_slice_" + std::to_string(slice) + "_20261116.csv",
                 ascend_text("H8", {{.start = std::to_string(1000 + 100 * slice) + ".000\t"}}));
  }
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(finding_count(table.findings, "slices-missing"), 1u);
  folder.write(output + "op_summary_slice_1_20261116.csv",
               ascend_text("H8", {{.start = "1100.000\t"}}));
  EXPECT_EQ(finding_count(read_folder(folder.path()).findings, "slices-missing"), 0u);
}

TEST(AscendFolder, ReadsOtherSlicesWhenOneIsDamaged) {
  const ProfilerFolder folder;
  folder.write("PROF_1_2_A/mindstudio_profiler_output/op_summary_slice_0_1.csv", kPointer);
  folder.write("PROF_1_2_A/mindstudio_profiler_output/op_summary_slice_1_1.csv",
               ascend_text("H9", two_steps()));
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(table.size(), two_steps().size());
  EXPECT_EQ(finding_count(table.findings, "source-unread"), 1u);
}

TEST(AscendFolder, ReadsOtherRanksWhenOneIsDamaged) {
  const ProfilerFolder folder;
  folder.write_rank("a_ascend_pt", "0");
  folder.write_rank("b_ascend_pt", "1");
  folder.write("a_ascend_pt/" + std::string(kOutput) + "kernel_details.csv", kPointer);
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(table.size(), two_steps().size());
  EXPECT_EQ(finding_count(table.findings, "source-unread"), 1u);
  folder.write("b_ascend_pt/" + std::string(kOutput) + "kernel_details.csv", "");
  const std::string message = error_of(folder.path());
  EXPECT_TRUE(message.starts_with(folder.path() + ": no source of kernels can be read: "))
      << message;
}

TEST(AscendFolder, MixesSourcesOfRanks) {
  const ProfilerFolder folder;
  folder.write_rank("a_ascend_pt", "0");
  folder.write("b_rank1_ascend_pt/" + std::string(kOutput) + "trace_view.json", kTimeline);
  const CaptureTable table = read_folder(folder.path());
  EXPECT_EQ(table.size(), two_steps().size() + 1);
  EXPECT_EQ(table.format, "ascend-folder");
  EXPECT_TRUE(table.text_offset.empty()) << "not all rows have a text";
  EXPECT_EQ(devices_of(table), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(table.wait_ns.size(), table.size());
  EXPECT_EQ(table.wait_ns.back(), kAbsent);
}

TEST(AscendFolder, ReadsSideFilesCutAnywhere) {
  const ProfilerFolder folder;
  folder.write_rank("w_ascend_pt", "0");
  const std::string output = "w_ascend_pt/" + std::string(kOutput);
  const std::string steps = two_steps_trace();
  const std::string times = two_steps_communication();
  for (size_t bytes = 0; bytes < times.size(); bytes += 13) {
    folder.write(output + "step_trace_time.csv",
                 steps.substr(0, bytes * steps.size() / times.size()));
    folder.write(output + "communication.json", times.substr(0, bytes));
    const CaptureTable table = read_folder(folder.path());
    EXPECT_EQ(table.size(), two_steps().size()) << bytes;
    EXPECT_GE(finding_count(table.findings, "source-unread") +
                  finding_count(table.findings, "communication-cut-short"),
              1u)
        << bytes;
  }
}

}  // namespace
}  // namespace gapless
