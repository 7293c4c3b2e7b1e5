// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_rows.h"

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/file.h"

namespace gapless {
namespace {

// Or will be one.
bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return std::filesystem::is_regular_file(status) || !std::filesystem::exists(status);
}

}  // namespace

CudaBenchRows::CudaBenchRows(std::string gpu, double ceiling_tb_s, std::string json_path)
    : gpu_(std::move(gpu)),
      ceiling_tb_s_(ceiling_tb_s),
      json_path_(std::move(json_path)),
      is_file_(is_regular_file(json_path_)) {}

Result<void> CudaBenchRows::add(const std::string& line, nlohmann::ordered_json row,
                                const CudaGoals& goals, const CudaFigures& figures) {
  const std::vector<CudaVerdict> verdicts = judge(goals, figures, gpu_);
  fmt::print("{}{}\n", line, verdict_text(verdicts));
  std::fflush(stdout);
  if (!verdicts.empty()) row["goals"] = verdict_json(verdicts);
  rows_.push_back(std::move(row));
  verdicts_.insert(verdicts_.end(), verdicts.begin(), verdicts.end());
  return is_file_ ? write() : Result<void>();
}

Result<void> CudaBenchRows::finish() const {
  if (!verdicts_.empty()) fmt::print("{}\n", goal_count_text(verdicts_));
  return is_file_ ? Result<void>() : write();
}

Result<void> CudaBenchRows::write() const {
  if (json_path_.empty()) return {};
  const nlohmann::ordered_json document = {
      {"gpu", gpu_}, {"ceiling_tb_s", ceiling_tb_s_}, {"rows", rows_}};
  return write_text_file(json_path_, document.dump(1) + "\n");
}

}  // namespace gapless
