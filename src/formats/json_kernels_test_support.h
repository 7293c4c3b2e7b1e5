// SPDX-License-Identifier: Apache-2.0
//
// Profilers' timelines for tests, and the readers over texts.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "formats/json_kernels.h"
#include "trace/capture_table.h"
#include "trace/capture_table_test_support.h"

namespace gapless {

inline InputStream json_stream(std::string_view text) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "t.json");
}

inline CaptureTable json_table(std::string_view text, const CaptureReadOptions& options = {}) {
  Result<CaptureTable> table = read_json_kernels(json_stream(text), options);
  EXPECT_TRUE(table.has_value()) << table.error().message;
  return table ? std::move(*table) : CaptureTable{};
}

inline std::string json_error(std::string_view text) {
  const Result<CaptureTable> table = read_json_kernels(json_stream(text));
  return table ? "no error" : table.error().message;
}

// The count of a finding; 0: there is none.
inline uint64_t count_of(const CaptureTable& table, std::string_view code) {
  for (const Finding& finding : table.findings) {
    if (finding.code == code) return finding.count;
  }
  return 0;
}

inline std::string text_of(const CaptureTable& table, uint32_t id) {
  return id == kNoIndex ? "(none)" : std::string(table.names[id]);
}

// Events of a timeline always have a name, and so a type.
inline void expect_sound_timeline(const CaptureTable& table) {
  expect_sound(table);
  for (const uint32_t type : table.type) ASSERT_NE(type, kNoIndex);
}

// --- Kineto ---

// One step with an operator that launches an addition, and a copy, on stream 7 of device 0.
inline constexpr std::string_view kKinetoEvents = R"json(
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 90, "tid": 91,
   "ts": 1000, "dur": 500.5},
  {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 90, "tid": 91, "ts": 1010, "dur": 50,
   "args": {"External id": 5, "Input Dims": [[2, 4096], [4096], []]}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 90, "tid": 91,
   "ts": 1020.125, "dur": 5, "args": {"correlation": 17, "cbid": 211}},
  {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 1600.001, "dur": 2.112,
   "name": "void at::native::add_kernel<4, std::array<char*, 3> >(int, float)",
   "args": {"External id": 5, "device": 0, "stream": 7, "correlation": 17,
            "grid": [1, 1, 1], "block": [128, 1, 1]}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7,
   "ts": 1590, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 99, "bytes": 64}},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#3", "pid": 0, "tid": 7,
   "ts": 1590, "dur": 100})json";

inline std::string bare_list(std::string_view events) { return fmt::format("[{}]", events); }
inline std::string wrapped(std::string_view events) {
  return fmt::format(R"({{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000001,
    "traceEvents": [{}], "traceName": "t.json"}})",
                     events);
}
// An event of a device with a correlation.
inline std::string kineto_kernel(std::string_view name, int64_t ts, uint64_t correlation) {
  return fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": 7, "ts": {},
    "dur": 1, "args": {{"device": 0, "stream": 7, "correlation": {}}}}})",
                     name, ts, correlation);
}

// --- Ascend ---

inline constexpr std::string_view kAscendNames = R"(
  {"ph": "M", "name": "process_name", "pid": 800, "tid": 0, "args": {"name": "Ascend Hardware"}},
  {"ph": "M", "name": "process_labels", "pid": 800, "tid": 0, "args": {"labels": "NPU 3"}},
  {"ph": "M", "name": "thread_name", "pid": 800, "tid": 2, "args": {"name": "Stream 2"}},
  {"ph": "M", "name": "process_name", "pid": 801, "tid": 0, "args": {"name": "HCCL"}},
  {"ph": "M", "name": "process_labels", "pid": 801, "tid": 0, "args": {"labels": "NPU 3"}},
  {"ph": "M", "name": "thread_name", "pid": 801, "tid": 0,
   "args": {"name": "Group 0 Communication"}},
  {"ph": "M", "name": "thread_name", "pid": 801, "tid": 1, "args": {"name": "Plane 0"}},
  {"ph": "M", "name": "process_name", "pid": 802, "tid": 0, "args": {"name": "Overlap Analysis"}},
  {"ph": "M", "name": "process_name", "pid": 803, "tid": 0, "args": {"name": "CANN"}})";

inline constexpr std::string_view kAscendEvents = R"json(
  {"ph": "X", "name": "AscendCL@aclnnAdd", "pid": 803, "tid": 55, "ts": "1736408883700000.000",
   "dur": 9.5, "args": {"Thread Id": 55, "connection_id": 9}},
  {"ph": "s", "name": "HostToDevice9", "cat": "HostToDevice", "id": "9", "pid": 803, "tid": 55,
   "ts": "1736408883700001.000"},
  {"ph": "s", "bp": "e", "name": "torch_to_npu", "cat": "async_npu", "id": 1736408883704643212,
   "pid": 70, "tid": 70, "ts": "1736408883699990.500"},
  {"ph": "X", "name": "aclnnAdd_AddAiCore_Add", "pid": 800, "tid": 2,
   "ts": "1736408883704643.212", "dur": 53.7410625,
   "args": {"Model Id": 4294967295, "Task Type": "AI_CORE", "Physic Stream Id": 2,
            "Task Id": 11051}},
  {"ph": "f", "name": "HostToDevice9", "cat": "HostToDevice", "id": "9", "pid": 800, "tid": 2,
   "ts": "1736408883704643.212", "bp": "e"},
  {"ph": "f", "bp": "e", "name": "torch_to_npu", "cat": "async_npu", "id": 1736408883704643212,
   "pid": 800, "tid": 2, "ts": "1736408883704643.212"},
  {"ph": "X", "name": "EVENT_RECORD", "pid": 800, "tid": 2, "ts": "1736408883704700.000",
   "dur": 0.02, "args": {"Task Type": "EVENT_RECORD_SQE", "Physic Stream Id": 2}},
  {"ph": "X", "name": "MEMCPY_ASYNC", "pid": 800, "tid": 2, "ts": "1736408883704710.000",
   "dur": 0.5, "args": {"Task Type": "SDMA_SQE", "Task Id": 11052}},
  {"ph": "X", "name": "hcom_allReduce__586_0_1", "pid": 801, "tid": 0,
   "ts": "1736408883704720.001", "dur": 100, "args": {"alg_type": "MESH-RING", "count": 4}},
  {"ph": "X", "name": "Reduce_Inline", "pid": 801, "tid": 1, "ts": "1736408883704720.001",
   "dur": 4, "args": {"notify_id": "0", "stream id": 4, "task type": "Reduce_Inline"}},
  {"ph": "X", "name": "Memcpy", "pid": 801, "tid": 1, "ts": "1736408883704730.001", "dur": 4},
  {"ph": "X", "name": "Computing", "pid": 802, "tid": 0, "ts": "1736408883704643.212",
   "dur": 53.741},
  {"ph": "X", "name": "Computing", "pid": 802, "tid": 0, "ts": "1736408883704800.212",
   "dur": 0.001},
  {"ph": "X", "name": "Communication(Not Overlapped)", "pid": 802, "tid": 2,
   "ts": "1736408883704800.212", "dur": "12.5"})json";

inline std::string ascend_text() { return fmt::format("[{},{}]", kAscendNames, kAscendEvents); }

}  // namespace gapless
