// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_communication.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/decimal.h"
#include "formats/json_walk.h"

namespace gapless {
namespace {

struct CollectiveTimes {
  std::optional<int64_t> start_ns;
  std::optional<int64_t> wait_ns;
  std::optional<int64_t> transit_ns;
};

std::optional<int64_t> milliseconds_ns(const JsonValue& value) {
  constexpr int kDigits = 6;
  if (value.kind != JsonKind::kNumber && value.kind != JsonKind::kString) return std::nullopt;
  const std::optional<int64_t> ns = parse_decimal(value.text, kDigits);
  return ns && *ns >= 0 && *ns <= kMaxTimeNs ? ns : std::nullopt;
}

CollectiveTimes times_of(const JsonValue& entry) {
  CollectiveTimes times;
  for_each_field(entry, [&times](const JsonValue& key, const JsonValue& info) {
    if (key.text != "Communication Time Info") return;
    for_each_field(info, [&times](const JsonValue& name, const JsonValue& value) {
      if (name.text == "Start Timestamp(us)") times.start_ns = json_microseconds_ns(value);
      if (name.text == "Wait Time(ms)") times.wait_ns = milliseconds_ns(value);
      if (name.text == "Transit Time(ms)") times.transit_ns = milliseconds_ns(value);
    });
  });
  return times;
}

class Joiner {
 public:
  explicit Joiner(CaptureTable& table) : table_(table), is_joined_(table.size(), false) {
    for (size_t row = 0; row < table.size(); ++row) {
      if (table.kind[row] != KernelKind::kCollective) continue;
      rows_by_name_[table.name[row]].push_back(static_cast<uint32_t>(row));
      ++summary_count_;
    }
  }

  // `step`: as the table spells it; "": not known.
  void add(std::string_view key, std::string_view step, const JsonValue& entry) {
    if (key.starts_with("Total Op Info")) return;
    const CollectiveTimes times = times_of(entry);
    if (!times.wait_ns || !times.transit_ns) {
      ++join_.unread_count;
      return;
    }
    const uint32_t row = find_row(key.substr(0, key.find('@')), step, times.start_ns);
    if (row == kNoIndex) {
      ++join_.lone_entry_count;
      return;
    }
    ++join_.joined_count;
    is_joined_[row] = true;
    table_.wait_ns.resize(table_.size(), kAbsent);
    table_.transit_ns.resize(table_.size(), kAbsent);
    table_.wait_ns[row] = *times.wait_ns;
    table_.transit_ns[row] = *times.transit_ns;
  }

  CommunicationJoin result() const {
    CommunicationJoin join = join_;
    join.lone_row_count = summary_count_ - join.joined_count;
    return join;
  }

 private:
  uint32_t find_row(std::string_view name, std::string_view step,
                    std::optional<int64_t> start_ns) const {
    const auto rows = rows_by_name_.find(table_.names.find(name));
    if (rows == rows_by_name_.end()) return kNoIndex;
    const uint32_t step_id = table_.names.find(step);
    uint32_t best = kNoIndex;
    uint64_t best_distance = 0;
    for (const uint32_t row : rows->second) {
      if (is_joined_[row]) continue;
      const bool knows_step = !step.empty() && table_.step[row] != kNoIndex;
      if (knows_step && table_.step[row] != step_id) continue;
      const uint64_t distance = start_ns ? distance_ns(*start_ns, table_.start_ns[row]) : 0;
      if (best != kNoIndex && distance >= best_distance) continue;
      best = row;
      best_distance = distance;
    }
    return best;
  }

  static uint64_t distance_ns(int64_t a, int64_t b) {
    return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                 : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  }

  CaptureTable& table_;
  std::vector<bool> is_joined_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> rows_by_name_;
  uint64_t summary_count_ = 0;
  CommunicationJoin join_;
};

// The members of what comes next when it is an object; else it is passed over.
template <typename Visit>
Result<bool> walk_object(JsonWalk& walk, Visit visit) {
  const char first = GAPLESS_TRY(walk.peek());
  if (first != '{') return walk.skip();
  return walk.members(visit);
}

// "step50" is step "50"; "step" is any.
Result<bool> walk_step(JsonWalk& walk, std::string_view key, Joiner& joiner) {
  constexpr std::string_view kStep = "step";
  const std::string step(key.starts_with(kStep) ? key.substr(kStep.size()) : key);
  return walk_object(walk, [&](std::string_view group) -> Result<bool> {
    if (group != "collective" && group != "p2p") return walk.skip();
    return walk_object(walk, [&](std::string_view name) -> Result<bool> {
      JsonValue entry;
      if (!GAPLESS_TRY(walk.value(entry))) return false;
      joiner.add(name, step, entry);
      return true;
    });
  });
}

}  // namespace

bool looks_like_communication_json(std::string_view first_bytes) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const size_t begin = first_bytes.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || first_bytes[begin] != '{') return false;
  const auto has = [first_bytes](std::string_view text) {
    return first_bytes.find(text) != std::string_view::npos;
  };
  return (has("\"collective\"") || has("\"p2p\"")) && has("\"Communication Time Info\"");
}

Result<CommunicationJoin> join_communication_json(InputStream input, CaptureTable& table) {
  JsonWalk walk(input, {});
  if (GAPLESS_TRY(walk.begin()) != '{') {
    return fail(ErrorCode::kInvalidInput, "{}: no times of collectives: not a JSON object",
                input.name());
  }
  Joiner joiner(table);
  GAPLESS_TRY(walk.members([&](std::string_view key) { return walk_step(walk, key, joiner); }));
  const CommunicationJoin join = joiner.result();
  if (const std::string stop = walk.stop(); !stop.empty()) {
    table.findings.push_back({Severity::kWarning, "communication-cut-short",
                              fmt::format("{}: {}; entries before that count", input.name(), stop),
                              kNoIndex, 1});
  }
  const uint64_t missed_count = join.lone_entry_count + join.lone_row_count + join.unread_count;
  table.findings.push_back(
      {join.joined_count == 0 && missed_count > 0 ? Severity::kWarning : Severity::kInfo,
       "communication-joined",
       fmt::format("{}: wait and transit of {} collectives; {} entries have no row, {} rows no "
                   "entry, {} entries no times",
                   input.name(), join.joined_count, join.lone_entry_count, join.lone_row_count,
                   join.unread_count),
       kNoIndex, join.joined_count});
  return join;
}

}  // namespace gapless
