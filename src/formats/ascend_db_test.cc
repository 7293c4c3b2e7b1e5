// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_db.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "formats/database_test_support.h"

namespace gapless {
namespace {

// Tables as the profiler of 2025 makes them. One matmul (task 3), one AI CPU kernel (4), a wrapper
// of a collective (5), a copy (6), a wait (7), a copy of a collective (8), and a collective.
std::string ascend_sql() {
  return "PRAGMA page_size=512;"
         "CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);"
         "INSERT INTO STRING_IDS VALUES (1,'aclnnMatmul_MatMulCommon_MatMulV2'),(2,'MatMulV2'),"
         "(3,'AI_CORE'),(4,'\"16,5120;5120,768\"'),(5,'\"16,768\"'),(6,'N/A'),(7,'Where'),"
         "(8,'AI_CPU'),(9,'allreduceAicpuKernel'),(10,'MEMCPY_ASYNC'),(11,'NOTIFY_WAIT'),"
         "(12,'hcom_allReduce__503_0_1'),(13,'hcom_allReduce_'),(14,'launch'),(15,'KERNEL_AICORE'),"
         "(268435456,'aten::mm'),(268435457,'my range'),(16,'\"\"');"
         "CREATE TABLE TASK (startNs INTEGER,endNs INTEGER,deviceId INTEGER,connectionId INTEGER,"
         "globalTaskId INTEGER,globalPid INTEGER,taskType INTEGER,contextId INTEGER,"
         "streamId INTEGER,taskId INTEGER,modelId INTEGER);"
         "INSERT INTO TASK VALUES "
         "(1736410576431631807,1736410576431651809,2,41,3,77,15,4294967295,148,11,4294967295),"
         "(1736410576431700000,1736410576431700020,2,42,4,77,8,4294967295,148,12,4294967295),"
         "(1736410576431710000,1736410576431790000,2,-1,5,77,8,4294967295,99,13,4294967295),"
         "(1736410576431800000,1736410576431801000,2,-1,6,77,10,4294967295,4294967295,14,1),"
         "(1736410576431810000,1736410576431811000,2,-1,7,77,11,4294967295,148,15,1),"
         "(1736410576431820000,1736410576431821000,2,43,8,77,10,4294967295,149,16,1);"
         "CREATE TABLE COMPUTE_TASK_INFO (name INTEGER,globalTaskId INTEGER PRIMARY KEY,"
         "blockDim INTEGER,mixBlockDim INTEGER,taskType INTEGER,opType INTEGER,"
         "inputFormats INTEGER,inputDataTypes INTEGER,inputShapes INTEGER,outputFormats INTEGER,"
         "outputDataTypes INTEGER,outputShapes INTEGER,attrInfo INTEGER);"
         "INSERT INTO COMPUTE_TASK_INFO VALUES (1,3,24,0,3,2,6,6,4,6,6,5,6),"
         "(7,4,1,0,8,7,6,6,6,6,6,16,6);"
         "CREATE TABLE COMMUNICATION_SCHEDULE_TASK_INFO (name INTEGER,globalTaskId INTEGER,"
         "taskType INTEGER,opType INTEGER);"
         "INSERT INTO COMMUNICATION_SCHEDULE_TASK_INFO VALUES (9,5,8,13);"
         "CREATE TABLE MEMCPY_INFO (globalTaskId INTEGER,size INTEGER,memcpyOperation INTEGER);"
         "INSERT INTO MEMCPY_INFO VALUES (6,4096,1);"
         "CREATE TABLE ENUM_MEMCPY_OPERATION (id INTEGER PRIMARY KEY,name TEXT);"
         "INSERT INTO ENUM_MEMCPY_OPERATION VALUES (1,'host to device');"
         "CREATE TABLE COMMUNICATION_TASK_INFO (name INTEGER,globalTaskId INTEGER,opId INTEGER);"
         "INSERT INTO COMMUNICATION_TASK_INFO VALUES (12,8,1);"
         "CREATE TABLE COMMUNICATION_OP (opName INTEGER,startNs INTEGER,endNs INTEGER,"
         "connectionId INTEGER,groupName INTEGER,opId INTEGER PRIMARY KEY,opType INTEGER);"
         "INSERT INTO COMMUNICATION_OP VALUES "
         "(12,1736410576431655000,1736410576431699000,43,6,1,13);"
         "CREATE TABLE CANN_API (startNs INTEGER,endNs INTEGER,type INTEGER,globalTid INTEGER,"
         "connectionId INTEGER,name INTEGER);"
         "INSERT INTO CANN_API VALUES (1736410576431600000,1736410576431640000,20000,"
         "331115396814,41,6),(1736410576431610000,1736410576431620000,10000,331115396814,41,14),"
         "(1736410576431650000,1736410576431652000,10000,331115396814,43,14),"
         "(1736410576499999999,1736410576500000000,10000,331115396814,42,14);"
         "CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY,name TEXT);"
         "INSERT INTO ENUM_API_TYPE VALUES (10000,'node'),(20000,'acl');"
         "CREATE TABLE STEP_TIME (id INTEGER,startNs INTEGER,endNs INTEGER);"
         "INSERT INTO STEP_TIME VALUES (50,1736410576431600000,1736410576431700000),"
         "(51,1736410576431705000,1736410576431800000);"
         "CREATE TABLE PYTORCH_API (startNs TEXT,endNs TEXT,globalTid INTEGER,"
         "connectionId INTEGER,name INTEGER);"
         "INSERT INTO PYTORCH_API VALUES ('1736410576431500001','1736410576431630003',"
         "331115396814,0,268435456);"
         "CREATE TABLE MSTX_EVENTS (startNs INTEGER,endNs INTEGER,eventType INTEGER,"
         "message INTEGER,globalTid INTEGER);"
         "INSERT INTO MSTX_EVENTS VALUES (1736410576431400000,1736410576431900000,1,268435457,"
         "331115396814),(5,NULL,1,268435457,331115396814);"
         "CREATE TABLE NPU_INFO (id INTEGER,name TEXT); INSERT INTO NPU_INFO VALUES (2,'910B');"
         "CREATE TABLE META_DATA (name TEXT,value TEXT);"
         "INSERT INTO META_DATA VALUES ('SCHEMA_VERSION','1.0.2');"
         "CREATE TABLE HOST_INFO (hostUid TEXT,hostName TEXT);"
         "INSERT INTO HOST_INFO VALUES ('1','node7');";
}

Result<CaptureTable> read_text(std::string_view text, const CaptureReadOptions& options = {}) {
  const Result<Database> database = database_of(text);
  if (!database) return database.error();
  return read_ascend_db(*database, options);
}

CaptureTable read_sql(const std::string& sql, const CaptureReadOptions& options = {}) {
  return sound_table(read_text(database_text(sql), options));
}

size_t row_of(const CaptureTable& table, KernelKind kind) {
  const auto found = std::find(table.kind.begin(), table.kind.end(), kind);
  EXPECT_NE(found, table.kind.end());
  return static_cast<size_t>(found - table.kind.begin());
}

TEST(AscendDb, JoinsTasksWithWhatDescribesThem) {
  const CaptureTable table = read_sql(ascend_sql());
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(table.format, "ascend-db");
  const std::vector<KernelKind> kinds = {KernelKind::kCompute, KernelKind::kCollective,
                                         KernelKind::kAiCpu, KernelKind::kAiCpuCollective,
                                         KernelKind::kCopy};
  EXPECT_EQ(table.kind, kinds);
  EXPECT_EQ(table.start_ns[0], 1736410576431631807) << "exact beyond 2^53";
  EXPECT_EQ(table.duration_ns[0], 20002);
  EXPECT_EQ(table.device, std::vector<int32_t>(5, 2));
  EXPECT_EQ(table.stream, (std::vector<int32_t>{148, -1, 148, 99, -1}));
  EXPECT_EQ(table.task, (std::vector<uint32_t>{11, kNoIndex, 12, 13, 14}));
  EXPECT_EQ(name_at(table, table.name[0]), "aclnnMatmul_MatMulCommon_MatMulV2");
  EXPECT_EQ(name_at(table, table.type[0]), "MatMulV2");
  EXPECT_EQ(name_at(table, table.core[0]), "AI_CORE");
  EXPECT_EQ(name_at(table, table.input_shapes[0]), "16,5120;5120,768");
  EXPECT_EQ(name_at(table, table.output_shapes[0]), "16,768");
  EXPECT_EQ(name_at(table, table.name[1]), "hcom_allReduce__503_0_1");
  EXPECT_EQ(name_at(table, table.type[1]), "hcom_allReduce_");
  EXPECT_EQ(name_at(table, table.input_shapes[2]), "(none)");
  EXPECT_EQ(name_at(table, table.output_shapes[2]), "") << "a scalar";
  EXPECT_EQ(name_at(table, table.name[3]), "allreduceAicpuKernel");
  EXPECT_EQ(name_at(table, table.name[4]), "MEMCPY_ASYNC (host to device)");
  EXPECT_EQ(name_at(table, table.type[4]), "MEMCPY_ASYNC");
  EXPECT_EQ(table.derived_type_count, 0u);
}

TEST(AscendDb, SetsStepsAndLaunches) {
  const CaptureTable table = read_sql(ascend_sql());
  ASSERT_EQ(table.launch_ns.size(), 5u);
  EXPECT_EQ(table.launch_ns[0], 1736410576431610000) << "the call of the level node";
  EXPECT_EQ(table.launch_ns[1], 1736410576431650000);
  EXPECT_EQ(table.launch_ns[2], kAbsent) << "after the start";
  EXPECT_EQ(finding_number(table, "launches-after-start"), 1u);
  EXPECT_EQ(name_at(table, table.step[0]), "50");
  EXPECT_EQ(name_at(table, table.step[2]), "50");
  EXPECT_EQ(name_at(table, table.step[3]), "51");
  EXPECT_EQ(name_at(table, table.step[4]), "51") << "the end is in the step";
  const CaptureTable outside = read_sql(ascend_sql() + "DELETE FROM STEP_TIME WHERE id = 50;");
  EXPECT_EQ(finding_number(outside, "rows-outside-steps"), 3u);
}

TEST(AscendDb, CountsTasksThatAreNoKernels) {
  const CaptureTable table = read_sql(ascend_sql());
  EXPECT_EQ(finding_number(table, "not-a-kernel"), 2u);
  EXPECT_NE(finding_text(table, "not-a-kernel").find("1 MEMCPY_ASYNC, 1 NOTIFY_WAIT"),
            std::string::npos);
  EXPECT_EQ(table.dropped_count, 2u);
  EXPECT_EQ(table.sources.at(0).row_count, 7u);
  EXPECT_EQ(property_of(table, "ascend.npu.2"), "910B");
  EXPECT_EQ(property_of(table, "ascend.schema"), "1.0.2");
  EXPECT_EQ(property_of(table, "ascend.host"), "node7");
}

TEST(AscendDb, KeepsTheHostWhenAsked) {
  EXPECT_TRUE(read_sql(ascend_sql()).host.empty());
  const CaptureTable table = read_sql(ascend_sql(), {.keep_host = true});
  ASSERT_EQ(table.host.size(), 6u);
  EXPECT_EQ(name_at(table, table.host[0].name), "my range");
  EXPECT_EQ(name_at(table, table.host[0].category), "range");
  EXPECT_EQ(table.host[0].process, 77);
  EXPECT_EQ(table.host[0].thread, 331115396814 & 0xffffffff);
  EXPECT_EQ(finding_number(table, "host-spans-dropped"), 1u);
}

// Row 42 of the table of robustness.
TEST(AscendDb, Row42ReadsTimesThatAreText) {
  const CaptureTable table = read_sql(ascend_sql(), {.keep_host = true});
  ASSERT_GE(table.host.size(), 2u);
  EXPECT_EQ(name_at(table, table.host[1].name), "aten::mm");
  EXPECT_EQ(name_at(table, table.host[1].category), "operator");
  EXPECT_EQ(table.host[1].begin_ns, 1736410576431500001);
  EXPECT_EQ(table.host[1].end_ns, 1736410576431630003);
  const CaptureTable text = read_sql(ascend_sql() +
                                     "CREATE TABLE x AS SELECT CAST(startNs AS TEXT) startNs,"
                                     "CAST(endNs AS TEXT) endNs, globalTaskId, deviceId, streamId,"
                                     "taskId, taskType, connectionId, contextId FROM TASK;"
                                     "DROP TABLE TASK; ALTER TABLE x RENAME TO TASK;");
  EXPECT_EQ(text.start_ns, read_sql(ascend_sql()).start_ns);
}

// Row 29: 4294967295 and -1 stand for nothing.
TEST(AscendDb, Row29TakesInvalidNumbersAsAbsent) {
  const CaptureTable table =
      read_sql(ascend_sql() +
                   "UPDATE TASK SET deviceId=4294967295, streamId=-1, taskId=4294967295;"
                   "INSERT INTO CANN_API VALUES (1,2,10000,0,-1,14),(1,2,10000,0,4294967295,14);"
                   "UPDATE TASK SET connectionId=-1; UPDATE COMMUNICATION_OP SET connectionId=-1;"
                   "DELETE FROM NPU_INFO;",
               {.default_device = 5});
  EXPECT_EQ(table.device, std::vector<int32_t>(5, 5));
  EXPECT_EQ(table.stream, std::vector<int32_t>(5, CaptureTable::kNoStream));
  EXPECT_EQ(table.task, std::vector<uint32_t>(5, kNoIndex));
  EXPECT_TRUE(table.launch_ns.empty());
  EXPECT_EQ(finding_number(table, "odd-numbers"), 0u);
  const CaptureTable odd = read_sql(ascend_sql() + "UPDATE TASK SET streamId=-7;");
  EXPECT_EQ(finding_number(odd, "odd-numbers"), 4u);
}

// Row 41: a tool that shows the file adds columns and tables, and names of columns have changed.
TEST(AscendDb, Row41ReadsFilesThatToolsHaveChanged) {
  const CaptureTable plain = read_sql(ascend_sql());
  const CaptureTable changed = read_sql(
      ascend_sql() +
      "ALTER TABLE TASK ADD COLUMN depth INTEGER; ALTER TABLE COMPUTE_TASK_INFO ADD COLUMN waitNs;"
      "ALTER TABLE COMPUTE_TASK_INFO RENAME COLUMN blockDim TO blockNum;"
      "CREATE TABLE OVERLAP_ANALYSIS (id INTEGER PRIMARY KEY AUTOINCREMENT, startNs);"
      "CREATE TABLE _COMPUTE_TASK_INFO_old_20251014 AS SELECT * FROM COMPUTE_TASK_INFO;"
      "CREATE INDEX TaskIndex ON TASK (endNs, globalTaskId);"
      "CREATE TRIGGER tr AFTER INSERT ON TASK BEGIN DELETE FROM TASK; END;");
  EXPECT_EQ(changed.start_ns, plain.start_ns);
  EXPECT_EQ(changed.kind, plain.kind);
  const CaptureTable renamed =
      read_sql(ascend_sql() + "ALTER TABLE COMPUTE_TASK_INFO RENAME COLUMN blockDim TO block_dim;");
  EXPECT_EQ(renamed.start_ns, plain.start_ns);
}

TEST(AscendDb, DerivesTypesThatAreMissing) {
  const CaptureTable table = read_sql(ascend_sql() +
                                      "UPDATE COMPUTE_TASK_INFO SET opType=6;"
                                      "UPDATE COMMUNICATION_OP SET opType=NULL;");
  EXPECT_TRUE(table.types_derived);
  EXPECT_EQ(table.derived_type_count, 3u);
  EXPECT_EQ(finding_number(table, "types-derived"), 3u);
  EXPECT_EQ(name_at(table, table.type[0]), "MatMulV2");
  EXPECT_EQ(name_at(table, table.type[row_of(table, KernelKind::kCollective)]), "hcom_allReduce_");
}

TEST(AscendDb, DropsAndCountsRowsWithBadTimes) {
  const CaptureTable table =
      read_sql(ascend_sql() +
               "INSERT INTO COMPUTE_TASK_INFO(name,globalTaskId,opType) VALUES (1,100,2),(1,101,2),"
               "(1,102,2),(1,103,2),(1,104,2),(1,105,2),(1,106,2);"
               "INSERT INTO TASK(startNs,endNs,globalTaskId) VALUES (0,10,100),(20,10,101),"
               "(NULL,10,102),(20,NULL,103),('soon',20,104),(20,9223372036854775807,105);");
  EXPECT_EQ(table.size(), 5u);
  EXPECT_EQ(finding_number(table, "start-not-positive"), 1u);
  EXPECT_EQ(finding_number(table, "duration-negative"), 1u);
  EXPECT_EQ(finding_number(table, "no-start"), 1u);
  EXPECT_EQ(finding_number(table, "no-duration"), 1u);
  EXPECT_EQ(finding_number(table, "not-a-number"), 1u);
  EXPECT_EQ(finding_number(table, "time-out-of-range"), 1u);
  EXPECT_EQ(finding_number(table, "kernels-without-times"), 1u) << "task 106";
  EXPECT_NE(finding_text(table, "start-not-positive").find("record 7 of TASK of test.db"),
            std::string::npos);
  const Result<CaptureTable> none =
      read_text(database_text(ascend_sql() + "UPDATE TASK SET endNs=1; DELETE FROM "
                                             "COMMUNICATION_OP;"));
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("rows can be used: 4 rows have a negative duration"),
            std::string::npos)
      << none.error().message;
}

TEST(AscendDb, KeepsATaskThatRanAgainAndDropsOneThatIsThereTwice) {
  const CaptureTable table = read_sql(
      ascend_sql() +
      "INSERT INTO TASK SELECT * FROM TASK WHERE globalTaskId=3;"
      "INSERT INTO TASK SELECT startNs+1000000,endNs+1000000,deviceId,connectionId,globalTaskId,"
      "globalPid,taskType,contextId,streamId,taskId,modelId FROM TASK WHERE globalTaskId=4;"
      "INSERT INTO TASK SELECT startNs,endNs,deviceId,connectionId,globalTaskId,globalPid,"
      "taskType,7,streamId,taskId,modelId FROM TASK WHERE globalTaskId=5;");
  EXPECT_EQ(finding_number(table, "duplicate-rows"), 1u);
  EXPECT_EQ(table.size(), 7u) << "the second run, and the same in another context";
  EXPECT_EQ(finding_number(table, "order-breaks"), 2u);
}

TEST(AscendDb, FindsTheDeviceOfACollective) {
  const auto device = [](const std::string& sql, const CaptureReadOptions& options = {}) {
    const CaptureTable table = read_sql(ascend_sql() + sql, options);
    return table.device[row_of(table, KernelKind::kCollective)];
  };
  const std::string two = "UPDATE TASK SET deviceId=globalTaskId;";
  EXPECT_EQ(device(two), 8) << "by its connection";
  EXPECT_EQ(device(two + "UPDATE TASK SET connectionId=-1;"), 8) << "by its task";
  EXPECT_EQ(device(two + "DELETE FROM TASK WHERE globalTaskId=8;", {.default_device = 6}), 6);
  EXPECT_EQ(device(two + "ALTER TABLE COMMUNICATION_OP ADD COLUMN deviceId INTEGER DEFAULT 9;"), 9);
  EXPECT_EQ(device("DELETE FROM TASK WHERE globalTaskId=8;"), 2) << "the only one";
  EXPECT_EQ(device("DROP TABLE TASK;"), 2) << "of NPU_INFO";
  EXPECT_EQ(device("DROP TABLE TASK; CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId "
                   "INTEGER); INSERT INTO RANK_DEVICE_MAP VALUES (13, 4);"),
            4);
}

TEST(AscendDb, ReadsWithoutAnyTableThatMayBeMissing) {
  for (const std::string table :
       {"STRING_IDS", "TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_SCHEDULE_TASK_INFO",
        "MEMCPY_INFO", "ENUM_MEMCPY_OPERATION", "COMMUNICATION_TASK_INFO", "COMMUNICATION_OP",
        "CANN_API", "ENUM_API_TYPE", "STEP_TIME", "PYTORCH_API", "MSTX_EVENTS", "NPU_INFO",
        "META_DATA", "HOST_INFO"}) {
    SCOPED_TRACE(table);
    const CaptureTable read =
        read_sql(ascend_sql() + "DROP TABLE " + table + ";", {.keep_host = true});
    EXPECT_GE(read.size(), 1u);
  }
  const CaptureTable nameless = read_sql(ascend_sql() + "DROP TABLE STRING_IDS;");
  EXPECT_EQ(finding_number(nameless, "no-names"), 4u);
}

TEST(AscendDb, ReadsWithoutAnyColumnThatMayBeMissing) {
  for (const std::string column :
       {"TASK.deviceId", "TASK.connectionId", "TASK.taskType", "TASK.contextId", "TASK.streamId",
        "TASK.taskId", "COMPUTE_TASK_INFO.opType", "COMPUTE_TASK_INFO.taskType",
        "COMPUTE_TASK_INFO.inputShapes", "COMPUTE_TASK_INFO.outputShapes", "COMPUTE_TASK_INFO.name",
        "COMMUNICATION_OP.opType", "COMMUNICATION_OP.connectionId", "CANN_API.type",
        "CANN_API.connectionId", "CANN_API.name", "STEP_TIME.id", "MEMCPY_INFO.memcpyOperation"}) {
    SCOPED_TRACE(column);
    const size_t dot = column.find('.');
    const CaptureTable table = read_sql(ascend_sql() + "ALTER TABLE " + column.substr(0, dot) +
                                        " DROP COLUMN " + column.substr(dot + 1) + ";");
    EXPECT_GE(table.size(), 4u);
  }
}

TEST(AscendDb, RefusesViewsAndOtherDatabases) {
  const Result<CaptureTable> view = read_text(database_text(
      "CREATE VIEW TASK AS WITH RECURSIVE r(startNs) AS (SELECT 1 UNION ALL SELECT startNs + 1 "
      "FROM r) SELECT startNs, startNs AS endNs, startNs AS globalTaskId FROM r;"));
  ASSERT_FALSE(view.has_value());
  EXPECT_NE(view.error().message.find("neither table TASK"), std::string::npos);
  const Result<CaptureTable> other = read_text(database_text("CREATE TABLE moz_places (url);"));
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("COMMUNICATION_OP (startNs, opName)"), std::string::npos);
}

TEST(AscendDb, ReadsAFileByItsPath) {
  const TemporaryDirectory folder;
  change_database(folder.path("x.db"), ascend_sql());
  const Result<CaptureTable> table = read_ascend_db(folder.path("x.db"));
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(table->sources.at(0).path, folder.path("x.db"));
  EXPECT_FALSE(read_ascend_db(folder.path("absent.db")).has_value());
}

TEST(AscendDb, ReadsAFileThatIsCutAnywhere) {
  const std::string text = database_text(ascend_sql());
  for (size_t size = 0; size < text.size(); size += 512) {
    const Result<CaptureTable> table =
        read_text(std::string_view(text).substr(0, size), {.keep_host = true});
    if (!table) {
      EXPECT_FALSE(table.error().message.empty());
      EXPECT_EQ(table.error().message.find('\n'), std::string::npos);
      continue;
    }
    expect_sound(*table);
    EXPECT_GE(finding_number(*table, "cut-short"), 1u) << size;
  }
}

TEST(AscendDb, ReadsAFileWithBytesFlipped) {
  const std::string text = database_text(ascend_sql());
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = text;
    const int flips = 1 + round % 4;
    for (int i = 0; i < flips; ++i)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    const Result<CaptureTable> table = read_text(damaged, {.keep_host = true});
    if (table) {
      expect_sound(*table);
    } else {
      EXPECT_FALSE(table.error().message.empty());
    }
  }
}

TEST(AscendAnalysisDb, SplitsCollectivesIntoWaitingAndTransit) {
  CaptureTable table = read_sql(ascend_sql());
  const std::string sql =
      "CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC,"
      "elapse_time NUMERIC, transit_time NUMERIC, wait_time NUMERIC, step TEXT, type TEXT);"
      "INSERT INTO CommAnalyzerTime VALUES ('hcom_allReduce__503_0_1@170','g',1.5,0.044,0.0125,"
      "0.03,'step50','collective'),('Total Op Info','g',0,9,9,9,'step50','collective');";
  const TemporaryDirectory folder;
  change_database(folder.path("analysis.db"), sql);
  const Result<uint64_t> count = join_ascend_analysis_db(table, folder.path("analysis.db"));
  ASSERT_TRUE(count.has_value()) << count.error().message;
  EXPECT_EQ(*count, 1u);
  EXPECT_EQ(table.wait_ns, (std::vector<int64_t>{kAbsent, 30000, kAbsent, kAbsent, kAbsent}));
  EXPECT_EQ(table.transit_ns, (std::vector<int64_t>{kAbsent, 12500, kAbsent, kAbsent, kAbsent}));
  change_database(folder.path("analysis.db"),
                  "INSERT INTO CommAnalyzerTime SELECT * FROM CommAnalyzerTime;");
  CaptureTable unclear = read_sql(ascend_sql());
  EXPECT_EQ(*join_ascend_analysis_db(unclear, folder.path("analysis.db")), 0u);
  EXPECT_TRUE(unclear.wait_ns.empty());
  EXPECT_EQ(finding_number(unclear, "collectives-unclear"), 1u);
  const Result<Database> other = database_of(database_text(ascend_sql()));
  ASSERT_TRUE(other.has_value());
  const Result<uint64_t> refused = join_ascend_analysis_db(table, *other);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("CommAnalyzerTime"), std::string::npos);
}

}  // namespace
}  // namespace gapless
