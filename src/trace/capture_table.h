// SPDX-License-Identifier: Apache-2.0
//
// CaptureTable: kernels as a device profiler lists them, one row a kernel or collective on a
// stream.
//
// What lies between a profiler's file and a Trace: rows keep their type, shapes and place in the
// file, so that forward passes can be found in them and written out again byte for byte. Times are
// int64 nanoseconds and were never doubles. Rows are in the order of device, start and file. 69
// bytes a row; a million rows are 69 MB.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

enum class KernelKind : uint8_t {
  kCompute = 0,          // AI core, vector core, mixed, DSA, DVPP
  kAiCpu = 1,            // an operator on the AI CPU
  kCollective = 2,       // the summary row of a collective: no stream of its own
  kFragment = 3,         // a collective's kernel on a stream ("...AivKernel"): the same time again
  kAiCpuCollective = 4,  // "...AicpuKernel": a wrapper whose time holds waiting; in no sum
  kCopy = 5              // a copy or fill of memory, which some profilers list beside kernels
};
inline constexpr int kKernelKindCount = 6;
std::string_view kernel_kind_name(KernelKind kind);

// A file that rows came from. A file in which the header changes on the way is several sources, so
// that a source's header fits all of its rows.
struct KernelSource {
  std::string path;
  std::string header;  // of a CSV file: the record as it stands, without its line end
  std::string line_end;
  bool has_byte_order_mark = false;
  bool is_compressed = false;  // offsets count the unpacked bytes
  uint64_t row_count = 0;      // rows in it, whether they are in the table or not
};

// One row, for those who make tables.
struct KernelRow {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int32_t device = -1;
  int32_t stream = -1;
  uint32_t task = kNoIndex;
  uint32_t name = kNoIndex;
  uint32_t type = kNoIndex;
  uint32_t core = kNoIndex;
  uint32_t input_shapes = kNoIndex;
  uint32_t output_shapes = kNoIndex;
  uint32_t step = kNoIndex;
  KernelKind kind = KernelKind::kCompute;
  uint32_t source = 0;
  int64_t launch_ns = kAbsent;  // when the host's call that launched it began
};

// What the host did, as far as it explains the kernels: calls that launch or wait, and ranges that
// the program marked.
struct HostSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t process = 0;
  int64_t thread = 0;
  uint32_t name = kNoIndex;      // of the table's names
  uint32_t category = kNoIndex;  // "call", "range", "operator"
};

// A forward pass that was found, or a step that the profiler marked.
struct CaptureStep {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t number = 0;
};

struct CaptureTable {
  static constexpr int32_t kNoStream = -1;
  static constexpr int32_t kNoDevice = -1;

  std::string format;               // "ascend-csv", "ascend-db", ...
  std::string device_word = "NPU";  // what a device is called: "GPU"
  NameTable names;
  std::vector<KernelSource> sources;
  std::vector<Property> properties;
  std::vector<Finding> findings;  // every row that is not here, and why

  // One entry a row.
  std::vector<int64_t> start_ns;
  std::vector<int64_t> duration_ns;    // >= 0
  std::vector<int32_t> device;         // kNoDevice: the file does not say
  std::vector<int32_t> stream;         // kNoStream: "N/A" or no such column
  std::vector<uint32_t> task;          // the device's number for it, which wraps; kNoIndex: "N/A"
  std::vector<uint32_t> name;          // of `names`
  std::vector<uint32_t> type;          // kNoIndex: not said, and no name to make one of
  std::vector<uint32_t> core;          // "AI_CORE", "MIX_AIC", ...; kNoIndex: not said
  std::vector<uint32_t> input_shapes;  // "1,4096;1024" without quotes; kNoIndex: not said
  std::vector<uint32_t> output_shapes;
  std::vector<uint32_t> step;  // kNoIndex: outside of all, or no such column
  std::vector<KernelKind> kind;
  std::vector<uint32_t> source;       // of `sources`
  std::vector<uint64_t> text_offset;  // of the record in its source; empty when there is no text
  std::vector<uint32_t> text_bytes;   // without its line end

  // Empty when no row has one; else one entry a row, kAbsent where it is not known.
  std::vector<int64_t> launch_ns;   // when the host's call began
  std::vector<int64_t> wait_ns;     // of a collective: waiting for other ranks
  std::vector<int64_t> transit_ns;  // of a collective: moving bytes

  std::vector<HostSpan> host;      // by begin
  std::vector<CaptureStep> steps;  // by begin, of one device; none overlap

  // Types of some rows were made of their names because the file has none: less certain.
  bool types_derived = false;
  uint64_t derived_type_count = 0;
  uint64_t dropped_count = 0;      // rows of the sources that are not here
  uint64_t order_break_count = 0;  // rows that started before the row above them in the file

  size_t size() const { return start_ns.size(); }
  int64_t end_ns(size_t row) const { return start_ns[row] + duration_ns[row]; }

  void append(const KernelRow& row);
};

// Calls visit(vector) for every column of rows, those that may be empty as well: one list for
// reorderings.
template <typename AnyTable, typename Visit>
void for_each_kernel_column(AnyTable& table, Visit visit) {
  visit(table.start_ns);
  visit(table.duration_ns);
  visit(table.device);
  visit(table.stream);
  visit(table.task);
  visit(table.name);
  visit(table.type);
  visit(table.core);
  visit(table.input_shapes);
  visit(table.output_shapes);
  visit(table.step);
  visit(table.kind);
  visit(table.source);
  visit(table.text_offset);
  visit(table.text_bytes);
  visit(table.launch_ns);
  visit(table.wait_ns);
  visit(table.transit_ns);
}

// The rows `rows` in that order, and no others. Columns that are empty stay so.
void keep_rows(CaptureTable& table, const std::vector<uint32_t>& rows);

// The numbers of the rows in the order of device and start; rows that tie stay as they are.
std::vector<uint32_t> rows_in_order(const CaptureTable& table);

// Leaves out launches that lie behind the start of their kernel, and says how many in a finding:
// clocks of host and device do not fit exactly.
void leave_out_late_launches(CaptureTable& table);

struct KernelSum {
  uint64_t count = 0;
  int64_t duration_ns = 0;
};
// By KernelKind: what the rows add up to, each for itself, overlapping or not. Exact (up to the
// largest int64), for checks against sums that the profiler gives.
std::array<KernelSum, kKernelKindCount> kernel_sums(const CaptureTable& table);

// What a kernel is by its name alone: kCollective ("hcom_...", "nccl..."), kCopy ("Memcpy...") or
// else kCompute.
KernelKind named_kernel_kind(std::string_view name);

// The name without what differs from call to call and from build to build: hashes, tilings, a
// trailing number, the aclnn prefix. "aclnnMatmul_MatMulV2_MatMulV2" is "MatMulV2".
std::string derived_kernel_type(std::string_view name);

}  // namespace gapless
