// SPDX-License-Identifier: Apache-2.0
//
// How far a model of a forward pass is from the pass that was measured, kernel type by kernel type.
//
// Both sides are lists of kernels with counts and times per pass. Times are sums, as if kernels ran
// one after the other: what a model of single kernels can be held against. A wrong count shows a
// wrong window or a missing operator before any time does.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/kernel_match.h"
#include "base/result.h"
#include "trace/capture_table.h"
#include "trace/collective_rows.h"

namespace gapless {

// Kernels of one type (and shape) on one side, over all of its passes.
struct AlignEntry {
  std::string type;
  std::string
      shape;  // "16,5120;5120,768": normalised input shapes; empty: not asked for or unknown
  double count = 0.0;
  int64_t total_ns = 0;
  bool is_collective = false;
};

struct AlignSide {
  std::string source;
  double pass_count = 1.0;  // counts and times are divided by it
  std::vector<AlignEntry> entries;
  bool has_counts = true;      // else nobody knows them, and only times are compared
  uint64_t merged_count = 0;   // rows that another row of the collective counts for
  uint64_t wrapper_count = 0;  // rows on the AI CPU that are in no sum
};

enum class AlignStatus : uint8_t {
  kHit = 0,      // count and time agree within the tolerances
  kPartial = 1,  // both sides have it; one of them does not agree
  kMiss = 2,     // measured, not modelled
  kExtra = 3     // modelled, not measured
};
inline constexpr int kAlignStatusCount = 4;
std::string_view align_status_name(AlignStatus status);  // "HIT", ...

struct AlignOptions {
  bool by_shape = false;
  double time_tolerance = 0.15;  // of the mean time of one kernel
  double count_tolerance = 0.0;
  double low_ratio = 0.85;  // of the overall ratio: a model within these two is close enough
  double high_ratio = 1.15;
};

struct AlignRow {
  std::string type;        // several measured types: "Transpose+BatchMatMulV2"
  std::string model_type;  // where it is called something else
  std::string shape;
  AlignStatus status = AlignStatus::kMiss;
  bool is_collective = false;
  bool is_composite = false;    // different types of a side stand for one: counts do not compare
  bool has_counts = true;       // that can be compared; else judged by the total time alone
  double measured_count = 0.0;  // a pass; 0 as well where the side has no counts
  double model_count = 0.0;
  double measured_ns = 0.0;  // a pass
  double model_ns = 0.0;
  double time_error = 0.0;  // model / measured - 1 of the total; 0 where one side is empty
  double mean_error = 0.0;  // of one kernel; 0 as well where counts cannot be compared
  double count_error = 0.0;
  double share = 0.0;  // of the measured time

  double difference_ns() const { return model_ns - measured_ns; }
  bool is_count_off() const { return has_counts && count_error != 0.0; }
};

struct AlignSum {
  uint64_t row_count = 0;
  double measured_ns = 0.0;
  double model_ns = 0.0;
  // Model over measured; 0 when nothing was measured.
  double ratio() const { return measured_ns > 0.0 ? model_ns / measured_ns : 0.0; }
};

struct Alignment {
  std::vector<AlignRow> rows;  // the largest of the two times first
  double measured_ns = 0.0;    // a pass, all rows
  double model_ns = 0.0;
  double ratio = 0.0;     // model over measured: "M6"; 0 when nothing was measured
  bool is_close = false;  // within low_ratio and high_ratio
  // Differences of the rows, each without its sign, over the measured time: what a ratio near one
  // may hide.
  double row_error = 0.0;
  double hit_share = 0.0;  // of the measured time, by status
  double partial_share = 0.0;
  double miss_share = 0.0;
  std::array<AlignSum, kAlignStatusCount> by_status;
  AlignSum compute;  // what is no collective
  AlignSum matched;  // what both sides have
  std::vector<std::string> warnings;
};

// "16, 5120;;5120,768;" in quotes or not, "[[16,5120],[5120,768]]" and "16x5120;5120x768" are all
// "16,5120;5120,768"; "N/A" and slots of scalars are nothing.
std::string normalised_shapes(std::string_view text);

// The rows `rows` (of one pass, or of several) that count.
AlignSide align_side_of(const CaptureTable& table, std::span<const uint32_t> rows,
                        const CollectiveRows& collectives, bool by_shape);

// Whether a file that begins like this has a header with a type or a time in it. True of a
// profiler's kernel table too: ask for that first.
bool looks_like_align_csv(std::string_view first_bytes);
// Text of a table "type,shape,us,count" (any order, shape and count may be missing, "us" is the
// time of one kernel, "total_us" of all and goes before it). Without a count a line is one kernel.
// Error: a sentence with the line and the numbers.
Result<AlignSide> align_side_of_csv(std::string_view text, const std::string& source,
                                    bool by_shape);

// Error when the map names a type that its side does not have, or a number of passes is not one.
Result<Alignment> align(const AlignSide& measured, const AlignSide& model,
                        const AlignOptions& options, const KernelMap& map = {});

}  // namespace gapless
