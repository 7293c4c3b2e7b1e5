// SPDX-License-Identifier: Apache-2.0
//
// Rows of a benchmark on a GPU: each is printed when it is there, with what became of its goals,
// and the JSON file is written anew, so that what was measured is kept whatever ends the program.

#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "bench/cuda_goals.h"

namespace gapless {

class CudaBenchRows {
 public:
  // `gpu` is the name that the driver has for it. An empty path: rows are only printed.
  CudaBenchRows(std::string gpu, double ceiling_tb_s, std::string json_path);

  double ceiling_tb_s() const { return ceiling_tb_s_; }

  // Prints `line` and writes `row`, both with the verdicts on its goals.
  Result<void> add(const std::string& line, nlohmann::ordered_json row, const CudaGoals& goals = {},
                   const CudaFigures& figures = {});
  // Prints how many goals were met, and writes to what is no file (/dev/stdout), which add() cannot
  // write anew.
  Result<void> finish() const;

 private:
  Result<void> write() const;

  std::string gpu_;
  double ceiling_tb_s_;
  std::string json_path_;
  bool is_file_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  std::vector<CudaVerdict> verdicts_;  // of all rows
};

}  // namespace gapless
