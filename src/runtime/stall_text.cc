// SPDX-License-Identifier: Apache-2.0

#include "runtime/stall_text.h"

#include <fmt/core.h>

namespace gapless {

std::string describe_workers(const CpuDevice& device, const NameOfTask& name_of) {
  std::string text;
  for (int i = 0; i < device.worker_count(); ++i) {
    const Worker& worker = device.worker(i);
    const uint32_t task = worker.task.load(std::memory_order_relaxed);
    text += worker_text(worker, task == kNoTask ? "a task" : name_of(task));
    text += '\n';
  }
  return text;
}

void UnfinishedList::add(const std::string& name, std::span<const uint32_t> missing,
                         const NameOfTask& name_of) {
  if (++count_ > kMaxLines) return;
  if (missing.empty()) {
    text_ += fmt::format("{}: ready or running\n", name);
    return;
  }
  text_ += fmt::format("{}: waits for {}", name, name_of(missing[0]));
  for (size_t i = 1; i < missing.size() && i < kMaxNames; ++i) {
    text_ += fmt::format(", {}", name_of(missing[i]));
  }
  if (missing.size() > kMaxNames) text_ += fmt::format(" and {} more", missing.size() - kMaxNames);
  text_ += '\n';
}

void UnfinishedList::add_counted(const std::string& name, int32_t missing_count) {
  if (++count_ > kMaxLines) return;
  if (missing_count <= 0) {
    text_ += fmt::format("{}: ready or running\n", name);
  } else {
    text_ += fmt::format("{}: waits for {} tasks\n", name, missing_count);
  }
}

void UnfinishedList::finish() {
  if (count_ > kMaxLines)
    text_ += fmt::format("and {} more unfinished tasks\n", count_ - kMaxLines);
}

}  // namespace gapless
