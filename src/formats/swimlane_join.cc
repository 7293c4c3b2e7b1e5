// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_join.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace gapless {
namespace {

template <typename Row>
std::vector<uint32_t> order_by_key(const std::vector<Row>& rows) {
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto is_before = [&rows](uint32_t a, uint32_t b) {
    if (rows[a].core != rows[b].core) return rows[a].core < rows[b].core;
    return rows[a].register_id < rows[b].register_id;
  };
  if (!std::is_sorted(order.begin(), order.end(), is_before)) {
    std::stable_sort(order.begin(), order.end(), is_before);
  }
  return order;
}

template <typename Row>
std::pair<uint32_t, uint64_t> key_of(const Row& row) {
  return {row.core, row.register_id};
}

template <typename Row>
uint64_t repeated_count(const std::vector<Row>& rows, const std::vector<uint32_t>& order) {
  uint64_t repeated = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (key_of(rows[order[i]]) == key_of(rows[order[i - 1]])) ++repeated;
  }
  return repeated;
}

}  // namespace

void join_dispatches(SwimlaneRecords& records, TraceBuilder& builder) {
  const std::vector<uint32_t> runs = order_by_key(records.tasks);
  const std::vector<uint32_t> dispatches = order_by_key(records.dispatches);
  uint64_t joined_count = 0;
  size_t next = 0;
  for (const uint32_t run : runs) {
    SwimlaneTask& task = records.tasks[run];
    while (next < dispatches.size() &&
           key_of(records.dispatches[dispatches[next]]) < key_of(task)) {
      ++next;
    }
    if (next == dispatches.size()) break;
    const SwimlaneDispatch& dispatch = records.dispatches[dispatches[next]];
    if (key_of(dispatch) != key_of(task)) continue;
    task.dispatch = dispatch.dispatch;
    task.finish = dispatch.finish;
    ++joined_count;
    ++next;
  }
  const auto count = [&builder](std::string_view code, std::string_view text, uint64_t number) {
    if (number > 0) builder.count_finding(Severity::kWarning, code, text, kNoIndex, number);
  };
  count("aicpu-without-aicore",
        "dispatches have no run (the core's records were lost) and were left out",
        records.dispatches.size() - joined_count);
  const bool must_have_dispatches = records.level != 1 || !records.dispatches.empty();
  count("aicore-without-aicpu", "runs have no dispatch and finish",
        must_have_dispatches ? records.tasks.size() - joined_count : 0);
  count("repeated-keys",
        "rows have the core and register id of an earlier one; they were joined in their order",
        repeated_count(records.tasks, runs) + repeated_count(records.dispatches, dispatches));
}

}  // namespace gapless
