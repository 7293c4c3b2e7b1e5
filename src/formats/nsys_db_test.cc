// SPDX-License-Identifier: Apache-2.0

#include "formats/nsys_db.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "formats/database_test_support.h"

namespace gapless {
namespace {

// Process 100 has the global id 100 << 24 and the thread 7.
constexpr int64_t kProcess = int64_t{100} << 24;

// Two kernels, the second of a graph with two nodes, a collective, a copy and a fill.
std::string nsys_sql() {
  const std::string process = std::to_string(kProcess);
  const std::string thread = std::to_string(kProcess + 7);
  return "PRAGMA page_size=512;"
         "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
         "INSERT INTO StringIds VALUES (1,'void gemm<float>(float*)'),(2,'gemm'),"
         "(3,'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)'),"
         "(4,'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'),(5,'cudaLaunchKernel_v7000'),"
         "(6,'cudaGraphLaunch_v10000'),(7,'a range'),(8,'norm(float*)'),(9,'norm');"
         "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL,end INTEGER NOT NULL,"
         "deviceId INTEGER NOT NULL,contextId INTEGER,streamId INTEGER NOT NULL,"
         "correlationId INTEGER,globalPid INTEGER,demangledName INTEGER NOT NULL,"
         "shortName INTEGER NOT NULL,mangledName INTEGER,gridX INTEGER,graphNodeId INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
         "(1000,1500,0,1,7,11," +
         process +
         ",1,2,NULL,8,NULL),"
         "(2000,2100,0,1,7,12," +
         process +
         ",8,9,NULL,8,90),"
         "(2000,2100,0,1,7,12," +
         process +
         ",8,9,NULL,8,91),"
         "(1600,1900,0,1,9,13," +
         process +
         ",3,4,NULL,8,NULL);"
         "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER,end INTEGER,deviceId INTEGER,"
         "streamId INTEGER,correlationId INTEGER,globalPid INTEGER,bytes INTEGER,"
         "copyKind INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (500,600,0,7,10," +
         process +
         ",4096,1);"
         "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER,end INTEGER,deviceId INTEGER,"
         "streamId INTEGER,correlationId INTEGER,globalPid INTEGER,value INTEGER,bytes INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (700,720,0,7,14," +
         process +
         ",0,64);"
         "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER,end INTEGER,eventClass INTEGER,"
         "globalTid INTEGER,correlationId INTEGER,nameId INTEGER,returnValue INTEGER);"
         "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900,950,0," +
         thread +
         ",11,5,0),"
         "(1800,1850,0," +
         thread + ",12,6,0),(1700,1710,0," + thread +
         ",13,5,0);"
         "CREATE TABLE NVTX_EVENTS (start INTEGER,end INTEGER,eventType INTEGER,text TEXT,"
         "globalTid INTEGER,textId INTEGER);"
         "INSERT INTO NVTX_EVENTS VALUES (100,3000,59,'step 1'," +
         thread +
         ",NULL),"
         "(200,300,60,NULL," +
         thread + ",7),(250,NULL,34,'a mark'," + thread +
         ",NULL),"
         "(260,NULL,59,'never popped'," +
         thread +
         ",NULL);"
         "CREATE TABLE TARGET_INFO_GPU (id INTEGER,name TEXT);"
         "INSERT INTO TARGET_INFO_GPU VALUES (0,'H200');"
         "CREATE TABLE META_DATA_EXPORT (name TEXT,value TEXT);"
         "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION','3.25.0');"
         "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT,value TEXT);"
         "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('CudaDriverVersion','13000'),"
         "('DeviceEnvironment','SECRET=1');";
}

Result<CaptureTable> read_text(std::string_view text, const CaptureReadOptions& options = {}) {
  const Result<Database> database = database_of(text);
  if (!database) return database.error();
  return read_nsys_db(*database, options);
}

CaptureTable read_sql(const std::string& sql, const CaptureReadOptions& options = {}) {
  return sound_table(read_text(database_text(sql), options));
}

TEST(NsysDb, ReadsKernelsCopiesAndFills) {
  const CaptureTable table = read_sql(nsys_sql());
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(table.format, "nsys-db");
  EXPECT_EQ(table.device_word, "GPU");
  EXPECT_EQ(table.start_ns, (std::vector<int64_t>{500, 700, 1000, 1600, 2000, 2000}));
  EXPECT_EQ(table.duration_ns, (std::vector<int64_t>{100, 20, 500, 300, 100, 100}));
  const std::vector<KernelKind> kinds = {KernelKind::kCopy,    KernelKind::kCopy,
                                         KernelKind::kCompute, KernelKind::kCollective,
                                         KernelKind::kCompute, KernelKind::kCompute};
  EXPECT_EQ(table.kind, kinds);
  EXPECT_EQ(table.stream, (std::vector<int32_t>{7, 7, 7, 9, 7, 7}));
  EXPECT_EQ(table.device, std::vector<int32_t>(6, 0));
  EXPECT_EQ(name_at(table, table.name[0]), "Memcpy HtoD");
  EXPECT_EQ(name_at(table, table.name[1]), "Memset");
  EXPECT_EQ(name_at(table, table.name[2]), "void gemm<float>(float*)");
  EXPECT_EQ(name_at(table, table.type[2]), "gemm");
  EXPECT_EQ(name_at(table, table.type[3]), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
  EXPECT_EQ(finding_number(table, "duplicate-rows"), 0u) << "two nodes of a graph are two";
}

TEST(NsysDb, KernelsOfAGraphShareItsLaunch) {
  const CaptureTable table = read_sql(nsys_sql());
  ASSERT_EQ(table.launch_ns.size(), 6u);
  EXPECT_EQ(table.launch_ns, (std::vector<int64_t>{kAbsent, kAbsent, 900, kAbsent, 1800, 1800}));
  EXPECT_EQ(finding_number(table, "launches-after-start"), 1u) << "the collective's";
}

TEST(NsysDb, SaysWhatItRanOnAndNotTheEnvironment) {
  const CaptureTable table = read_sql(nsys_sql());
  EXPECT_EQ(property_of(table, "nsys.gpu.0"), "H200");
  EXPECT_EQ(property_of(table, "nsys.schema"), "3.25.0");
  EXPECT_EQ(property_of(table, "nsys.cuda-driver"), "13000");
  EXPECT_EQ(table.properties.size(), 3u);
}

TEST(NsysDb, KeepsCallsAndRangesWhenAsked) {
  EXPECT_TRUE(read_sql(nsys_sql()).host.empty());
  const CaptureTable table = read_sql(nsys_sql(), {.keep_host = true});
  ASSERT_EQ(table.host.size(), 5u) << "a mark is no range";
  EXPECT_EQ(name_at(table, table.host[0].name), "step 1");
  EXPECT_EQ(name_at(table, table.host[0].category), "range");
  EXPECT_EQ(name_at(table, table.host[1].name), "a range") << "by its number";
  EXPECT_EQ(name_at(table, table.host[2].name), "cudaLaunchKernel_v7000");
  EXPECT_EQ(name_at(table, table.host[2].category), "call");
  EXPECT_EQ(table.host[2].process, 100);
  EXPECT_EQ(table.host[2].thread, 7);
  EXPECT_EQ(finding_number(table, "host-spans-dropped"), 1u) << "never popped";
}

TEST(NsysDb, AGraphThatWasTracedAsAWholeIsOneRow) {
  const CaptureTable table = read_sql(
      nsys_sql() +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER,end INTEGER,deviceId INTEGER,"
      "graphId INTEGER,streamId INTEGER,correlationId INTEGER,globalPid INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (4000,5000,0,109,7,12," +
      std::to_string(kProcess) + ");");
  ASSERT_EQ(table.size(), 7u);
  EXPECT_EQ(name_at(table, table.name[6]), "CUDA graph 109");
  EXPECT_EQ(name_at(table, table.type[6]), "CUDA graph");
  EXPECT_EQ(table.launch_ns[6], 1800);
  EXPECT_EQ(finding_number(table, "graphs-as-one"), 1u);
}

// Correlations and streams count for each process; so do devices where the file says which is
// which.
TEST(NsysDb, KeepsProcessesApart) {
  const std::string process = std::to_string(int64_t{200} << 24);
  const std::string thread = std::to_string((int64_t{200} << 24) + 1);
  const std::string second =
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start,end,deviceId,streamId,correlationId,globalPid,"
      "demangledName,shortName) VALUES (1200,1300,0,7,11," +
      process +
      ",1,2),"
      "(1400,1450,0,7,13," +
      process +
      ",1,2);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1100,1110,0," +
      thread + ",11,5,0);";
  const CaptureTable table = read_sql(nsys_sql() + second);
  ASSERT_EQ(table.size(), 8u);
  EXPECT_EQ(table.start_ns[3], 1200);
  EXPECT_EQ(table.launch_ns[3], 1100) << "not the one of the other process";
  EXPECT_EQ(table.launch_ns[4], kAbsent);
  EXPECT_EQ(table.stream[2], 7);
  EXPECT_EQ(table.stream[3], 1007);
  EXPECT_EQ(finding_number(table, "several-processes"), 2u);
  const CaptureTable mapped =
      read_sql(nsys_sql() + second +
               "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER,cudaId INTEGER,pid INTEGER);"
               "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0,0,100),(3,0,200);");
  EXPECT_EQ(mapped.device, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 3, 3}));
  EXPECT_EQ(mapped.stream[6], 7);
  EXPECT_EQ(finding_number(mapped, "several-processes"), 0u);
}

TEST(NsysDb, KeepsAStartOfZeroButNoKernelWithoutTimes) {
  const CaptureTable table = read_sql(nsys_sql() +
                                      "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start=0;"
                                      "UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET start=0,end=0;");
  EXPECT_EQ(table.size(), 5u);
  EXPECT_EQ(table.start_ns[0], 0);
  EXPECT_EQ(finding_number(table, "start-not-positive"), 1u);
}

TEST(NsysDb, ReadsExactTimesBeyondTheRangeOfDoubles) {
  const CaptureTable table =
      read_sql(nsys_sql() +
               "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start=1736410576431631807,"
               "end='1736410576431631810';");
  EXPECT_EQ(table.start_ns[5], 1736410576431631807);
  EXPECT_EQ(table.duration_ns[5], 3);
}

TEST(NsysDb, ReadsWithoutAnyTableThatMayBeMissing) {
  for (const std::string table :
       {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
        "TARGET_INFO_GPU", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV"}) {
    SCOPED_TRACE(table);
    const CaptureTable read =
        read_sql(nsys_sql() + "DROP TABLE " + table + ";", {.keep_host = true});
    EXPECT_GE(read.size(), 2u);
  }
  EXPECT_EQ(finding_number(read_sql(nsys_sql() + "DROP TABLE StringIds;"), "no-names"), 4u);
}

TEST(NsysDb, ReadsWithoutAnyColumnThatMayBeMissing) {
  for (const std::string column : {"deviceId", "streamId", "correlationId", "globalPid",
                                   "demangledName", "shortName", "graphNodeId", "contextId"}) {
    SCOPED_TRACE(column);
    const CaptureTable table =
        read_sql(nsys_sql() + "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN " + column + ";");
    EXPECT_EQ(table.size(), column == "graphNodeId" ? 5u : 6u);
  }
  // Without processes a correlation is enough.
  const CaptureTable table =
      read_sql(nsys_sql() + "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid;");
  EXPECT_EQ(table.launch_ns[2], 900);
}

TEST(NsysDb, RefusesViewsAndOtherDatabases) {
  for (const std::string sql :
       {"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end;",
        "CREATE TABLE recipes (flour INTEGER);"}) {
    const Result<CaptureTable> table = read_text(database_text(sql));
    ASSERT_FALSE(table.has_value());
    EXPECT_NE(table.error().message.find("none of the tables CUPTI_ACTIVITY_KIND_KERNEL"),
              std::string::npos);
  }
  const TemporaryDirectory folder;
  change_database(folder.path("x.sqlite"), nsys_sql());
  EXPECT_EQ(read_nsys_db(folder.path("x.sqlite"))->size(), 6u);
  EXPECT_FALSE(read_nsys_db(folder.path("absent")).has_value());
}

TEST(NsysDb, ReadsAFileThatIsCutOrDamaged) {
  const std::string text = database_text(nsys_sql());
  for (size_t size = 0; size < text.size(); size += 512) {
    const Result<CaptureTable> table =
        read_text(std::string_view(text).substr(0, size), {.keep_host = true});
    if (table) {
      expect_sound(*table);
      EXPECT_GE(finding_number(*table, "cut-short"), 1u) << size;
    } else {
      EXPECT_FALSE(table.error().message.empty());
    }
  }
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = text;
    for (int i = 0; i <= round % 4; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const Result<CaptureTable> table = read_text(damaged, {.keep_host = true});
    if (table) {
      expect_sound(*table);
    } else {
      EXPECT_FALSE(table.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace gapless
