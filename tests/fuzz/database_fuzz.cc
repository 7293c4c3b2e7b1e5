// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over the readers of profilers' databases. An input that begins like a database is one;
// of any other the first byte picks a small sound database, and the rest are changes to it: two
// bytes of place, one that is put there. Whatever comes in, there is a sentence, or a table whose
// rows are all accounted for, in order and within the range of times.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sqlite3.h>

#include "base/check.h"
#include "formats/ascend_db.h"
#include "formats/database.h"
#include "formats/nsys_db.h"

namespace {

using namespace gapless;

constexpr const char* kAscend =
    "PRAGMA page_size=512; CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO STRING_IDS VALUES (1,'MatMulV2'),(2,'AI_CORE'),(3,'\"16,16\"'),(4,'MEMCPY_ASYNC'),"
    "(5,'hcom_allReduce__1_0_1');"
    "CREATE TABLE TASK (startNs INTEGER,endNs INTEGER,deviceId INTEGER,connectionId INTEGER,"
    "globalTaskId INTEGER,taskType INTEGER,contextId INTEGER,streamId INTEGER,taskId INTEGER);"
    "INSERT INTO TASK VALUES (10,20,0,1,1,2,4294967295,2,1),(30,40,0,2,2,4,4294967295,2,2),"
    "(50,60,0,3,3,2,0,3,3),(50,60,0,3,4,2,0,3,3);"
    "CREATE TABLE COMPUTE_TASK_INFO (name INTEGER,globalTaskId INTEGER PRIMARY KEY,opType INTEGER,"
    "taskType INTEGER,inputShapes INTEGER,outputShapes INTEGER);"
    "INSERT INTO COMPUTE_TASK_INFO VALUES (1,1,1,2,3,3),(1,3,NULL,2,3,NULL);"
    "CREATE TABLE COMMUNICATION_OP (opName INTEGER,startNs INTEGER,endNs INTEGER,connectionId "
    "INTEGER,opId INTEGER PRIMARY KEY,opType INTEGER);"
    "INSERT INTO COMMUNICATION_OP VALUES (5,15,25,3,1,NULL);"
    "CREATE TABLE CANN_API (startNs INTEGER,endNs INTEGER,type INTEGER,globalTid INTEGER,"
    "connectionId INTEGER,name INTEGER);"
    "INSERT INTO CANN_API VALUES (5,6,10000,7,1,1),(8,9,20000,7,3,1);"
    "CREATE TABLE PYTORCH_API (startNs TEXT,endNs TEXT,globalTid INTEGER,name INTEGER);"
    "INSERT INTO PYTORCH_API VALUES ('1','9',7,1);"
    "CREATE TABLE STEP_TIME (id INTEGER,startNs INTEGER,endNs INTEGER);"
    "INSERT INTO STEP_TIME VALUES (1,5,35);"
    "CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT,start_timestamp NUMERIC,wait_time NUMERIC,"
    "transit_time NUMERIC); INSERT INTO CommAnalyzerTime VALUES ('hcom_allReduce__1_0_1',1,2,3.5);";

constexpr const char* kNsys =
    "PRAGMA page_size=512; CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES (1,'gemm(float*)'),(2,'gemm'),(3,'ncclKernel');"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER,end INTEGER,deviceId INTEGER,streamId "
    "INTEGER,correlationId INTEGER,globalPid INTEGER,demangledName INTEGER,shortName INTEGER,"
    "graphNodeId INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,7,1,16777216,1,2,NULL),"
    "(30,40,0,7,2,16777216,3,3,1),(30,40,0,7,2,33554432,3,3,2);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER,end INTEGER,deviceId INTEGER,streamId "
    "INTEGER,correlationId INTEGER,globalPid INTEGER,copyKind INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1,2,0,7,3,16777216,1);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER,end INTEGER,globalTid INTEGER,"
    "correlationId INTEGER,nameId INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5,6,16777217,1,2),(7,8,16777217,2,2);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER,end INTEGER,eventType INTEGER,text TEXT,globalTid "
    "INTEGER,textId INTEGER); INSERT INTO NVTX_EVENTS VALUES (1,50,59,'a',16777217,NULL);"
    "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER,cudaId INTEGER,pid INTEGER);"
    "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0,0,1),(1,0,2);";

std::string made_database(const char* sql) {
  sqlite3* handle = nullptr;
  GAPLESS_CHECK(sqlite3_open(":memory:", &handle) == SQLITE_OK);
  GAPLESS_CHECK(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_int64 size = 0;
  unsigned char* const bytes = sqlite3_serialize(handle, "main", &size, 0);
  const std::string text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(handle);
  return text;
}

std::string changed_database(std::span<const uint8_t> input) {
  static const std::string ascend = made_database(kAscend);
  static const std::string nsys = made_database(kNsys);
  std::string text = input.empty() || input[0] % 2 == 0 ? ascend : nsys;
  for (size_t i = 1; i + 3 <= input.size(); i += 3) {
    const size_t place = static_cast<size_t>(input[i] | input[i + 1] << 8);
    text[place % text.size()] = static_cast<char>(input[i + 2]);
  }
  // A byte that is left over cuts the end off.
  if (input.size() % 3 == 2) text.resize(text.size() - text.size() * input.back() / 256);
  return text;
}

void check_table(const CaptureTable& table) {
  uint64_t row_count = 0;
  for (const KernelSource& source : table.sources) row_count += source.row_count;
  GAPLESS_CHECK(row_count == table.size() + table.dropped_count);
  for_each_kernel_column(table, [&table](const auto& column) {
    GAPLESS_CHECK(column.empty() || column.size() == table.size());
  });
  for (size_t row = 0; row < table.size(); ++row) {
    GAPLESS_CHECK(table.start_ns[row] >= 0);
    GAPLESS_CHECK(table.duration_ns[row] >= 0);
    GAPLESS_CHECK(table.end_ns(row) <= kMaxTimeNs);
    GAPLESS_CHECK(table.name[row] < table.names.size());
    GAPLESS_CHECK(table.type[row] == kNoIndex || table.type[row] < table.names.size());
    GAPLESS_CHECK(table.step[row] == kNoIndex || table.step[row] < table.names.size());
    if (row == 0 || table.device[row] != table.device[row - 1]) continue;
    GAPLESS_CHECK(table.start_ns[row] >= table.start_ns[row - 1]);
  }
  for (size_t i = 0; i < table.host.size(); ++i) {
    GAPLESS_CHECK(table.host[i].end_ns >= table.host[i].begin_ns);
    GAPLESS_CHECK(i == 0 || table.host[i].begin_ns >= table.host[i - 1].begin_ns);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string text =
      looks_like_database(bytes) ? std::string(bytes) : changed_database(std::span(data, size));
  const Result<Database> database =
      Database::from_memory(std::as_bytes(std::span(text.data(), text.size())), "fuzz.db");
  if (!database) {
    GAPLESS_CHECK(!database.error().message.empty());
    return 0;
  }
  Result<CaptureTable> ascend = read_ascend_db(*database, {.keep_host = true});
  const Result<CaptureTable> nsys = read_nsys_db(*database, {.keep_host = true});
  if (ascend) {
    check_table(*ascend);
    const Result<uint64_t> joined = join_ascend_analysis_db(*ascend, *database);
    GAPLESS_CHECK(!joined || *joined <= ascend->size());
    check_table(*ascend);
  }
  if (nsys) check_table(*nsys);
  return 0;
}
