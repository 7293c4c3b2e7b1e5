// SPDX-License-Identifier: Apache-2.0
//
// Goals of the benchmarks on a GPU. A row that has some says of each whether it was met: on its
// line, in the JSON, and in the line that counts them all at the end (bench/cuda_bench_rows.h).

#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless {

// What a row is to reach; 0: nothing is set.
struct CudaGoals {
  double max_us = 0.0;          // of an "NVIDIA H200": no other GPU is judged by it
  double min_share = 0.0;       // of the read ceiling
  double max_tasks_cost = 0.0;  // recording tasks, as a share of the plain row
};

struct CudaFigures {
  double median_us = 0.0;
  double share = 0.0;
  double tasks_cost = 0.0;
};

struct CudaVerdict {
  std::string goal;  // "<= 66.00 us"
  bool met = false;
};

// In the order of CudaGoals. `gpu` is the name that the driver has for it.
std::vector<CudaVerdict> judge(const CudaGoals& goals, const CudaFigures& figures,
                               const std::string& gpu);

// "  goal <= 66.00 us: met", for the end of a row's line; one that is missed says MISSED.
std::string verdict_text(const std::vector<CudaVerdict>& verdicts);
// [{"goal": "<= 66.00 us", "met": true}]
nlohmann::ordered_json verdict_json(const std::vector<CudaVerdict>& verdicts);
// "2 of 3 goals met"; nothing where there was none.
std::string goal_count_text(const std::vector<CudaVerdict>& verdicts);

}  // namespace gapless
