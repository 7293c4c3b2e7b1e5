// SPDX-License-Identifier: Apache-2.0
//
// The parts of a stall report that replays and streams share.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/cpu_device.h"

namespace gapless {

using NameOfTask = std::function<std::string(uint32_t task)>;

// One line a worker: what it does.
std::string describe_workers(const CpuDevice& device, const NameOfTask& name_of);

// Lines about unfinished tasks: the first ones in full, the rest as a number.
class UnfinishedList {
 public:
  explicit UnfinishedList(std::string& text) : text_(text) {}
  // `missing`: the producers that have not ended. None: it is ready, or runs.
  void add(const std::string& name, std::span<const uint32_t> missing, const NameOfTask& name_of);
  // The same where only their number is known.
  void add_counted(const std::string& name, int32_t missing_count);
  void finish();

 private:
  static constexpr int kMaxLines = 64;
  static constexpr size_t kMaxNames = 4;
  std::string& text_;
  int count_ = 0;
};

}  // namespace gapless
