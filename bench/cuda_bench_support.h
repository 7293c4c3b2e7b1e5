// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of single kernels on a GPU share: launches timed as a CUDA graph, the read
// that is the ceiling of all of them, and the table.
//
// A figure is the time of one launch in a graph of many, which go round sets of data far larger
// than L2; a row says the median over the graph's replays and their range.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/cuda_bench_program.h"
#include "bench/cuda_goals.h"
#include "cuda/device.h"

namespace gapless {

inline constexpr int64_t kRotatedBytes = int64_t{768} << 20;  // over which launches of a graph go
inline constexpr int kMinLaunches = 16;

struct TimedRow {
  std::string name;
  double median_us = 0.0;
  double min_us = 0.0;
  double max_us = 0.0;
  double bytes = 0.0;
  CudaGoals goals = {};

  double rate() const { return bytes / median_us * 1e-6; }  // TB/s
};

using Launch = std::function<Result<void>(int index, CudaStream stream)>;
Result<TimedRow> time_graph(const std::string& name, double bytes, int launches, int replays,
                            const Launch& launch);

// 16-bit values between -2 and 2. As bf16 they are also good as f32 and as s8: all of it is finite.
Result<DeviceBuffer> random_elements(int64_t bytes, bool is_bf16, uint64_t seed, const char* what);

inline constexpr std::string_view kQuickHelp = "5 replays for each row, not 25";
inline int replays_of(const CudaBenchOptions& options) { return options.is_quick ? 5 : 25; }

// Each row is printed and written when it is there.
using AddRow = std::function<Result<void>(const TimedRow& row)>;
using MeasureCases = Result<void> (*)(const CudaBenchOptions& options, const AddRow& add_row);
// The read ceiling and reads of `read_mib` a launch, then the cases, and how many of their goals
// were met.
Result<void> measure_launches(const CudaBenchOptions& options, const std::vector<int64_t>& read_mib,
                              MeasureCases measure_cases);

}  // namespace gapless
