// SPDX-License-Identifier: Apache-2.0

#include "formats/chrome_json_tracks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "formats/chrome_json_event.h"

namespace gapless {
namespace {

// The number of each row after sorting: result[old] is new.
std::vector<uint32_t> new_rows(const std::vector<uint32_t>& order) {
  std::vector<uint32_t> rows(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) rows[order[i]] = i;
  return rows;
}

template <typename T>
void reorder(std::vector<T>& rows, const std::vector<uint32_t>& order) {
  std::vector<T> sorted;
  sorted.reserve(rows.size());
  for (const uint32_t row : order) sorted.push_back(std::move(rows[row]));
  rows = std::move(sorted);
}

void renumber(std::vector<uint32_t>& column, const std::vector<uint32_t>& numbers) {
  for (uint32_t& entry : column) {
    if (entry != kNoIndex) entry = numbers[entry];
  }
}

}  // namespace

size_t ChromeTracks::Hash::operator()(const Key& key) const {
  const uint64_t mixed = (static_cast<uint64_t>(key.number) * 4 + static_cast<uint64_t>(key.kind)) *
                         0x9e3779b97f4a7c15;
  return static_cast<size_t>(mixed ^ mixed >> 32);
}

size_t ChromeTracks::Hash::operator()(const LaneKey& key) const {
  return (*this)(key.thread) + key.device * 0x85ebca6bu;
}

ChromeTracks::Key ChromeTracks::key_of(const JsonValue& value) {
  if (!value.is_present()) return {};
  const std::optional<int64_t> number = chrome_integer(value);
  if (number) return {Key::Kind::kNumber, *number};
  const auto [entry, inserted] =
      texts_.try_emplace(chrome_text(value), -1 - static_cast<int64_t>(texts_.size()));
  return {Key::Kind::kText, entry->second};
}

uint32_t ChromeTracks::device(const JsonValue& process) {
  const Key key = key_of(process);
  if (key == latest_process_ && latest_device_ != kNoIndex) return latest_device_;
  const uint32_t next = static_cast<uint32_t>(builder_.trace().devices.size());
  const auto [entry, inserted] = device_ids_.try_emplace(key, next);
  if (inserted) {
    const bool is_known = process.is_present();
    builder_.add_device(
        {is_known ? fmt::format("process {}", chrome_text(process)) : "process", key.number});
    devices_.resize(next + 1);
  }
  latest_process_ = key;
  latest_device_ = entry->second;
  return entry->second;
}

uint32_t ChromeTracks::add_lane(uint32_t device, Lane lane) {
  lane.device = device;
  const uint32_t index = builder_.add_lane(std::move(lane));
  lanes_.resize(index + 1);
  return index;
}

uint32_t ChromeTracks::find_lane(uint32_t device, const JsonValue& thread) {
  const LaneKey key{device, key_of(thread)};
  const size_t hash = Hash{}(key);
  CachedLane& cached = cache_[hash % cache_.size()];
  if (cached.lane != kNoIndex && cached.key == key) return cached.lane;
  auto entry = lane_ids_.find(key);
  if (entry == lane_ids_.end()) {
    Lane lane;
    lane.number = key.thread.number;
    if (thread.is_present()) {
      lane.name = fmt::format("thread {}", chrome_text(thread));
    } else {
      lane.name = "process";
      lane.kind = LaneKind::kOther;
    }
    entry = lane_ids_.emplace(key, add_lane(device, std::move(lane))).first;
    if (!thread.is_present()) lanes_[entry->second].kind_is_known = true;
  }
  cached = {key, entry->second};
  return entry->second;
}

uint32_t ChromeTracks::lane(const JsonValue& process, const JsonValue& thread) {
  return find_lane(device(process), thread);
}

uint32_t ChromeTracks::async_lane(const JsonValue& process, const JsonValue& category,
                                  const JsonValue& scope) {
  const uint32_t device_id = device(process);
  std::string name = "async";
  if (category.is_present()) name += " " + chrome_text(category);
  if (scope.is_present()) name += " " + chrome_text(scope);
  const auto [entry, inserted] = async_ids_.try_emplace(fmt::format("{} {}", device_id, name), 0u);
  if (inserted) {
    Lane lane;
    lane.name = std::move(name);
    lane.kind = LaneKind::kOther;
    lane.number = static_cast<int64_t>(async_ids_.size()) - 1;
    entry->second = add_lane(device_id, std::move(lane));
    lanes_[entry->second].kind_is_known = true;
  }
  return entry->second;
}

void ChromeTracks::join(const JsonValue& process, const JsonValue& thread,
                        const JsonValue& main_thread) {
  const uint32_t device_id = device(process);
  lane_ids_.try_emplace({device_id, key_of(thread)}, find_lane(device_id, main_thread));
}

void ChromeTracks::mark_stream(uint32_t lane) { lanes_[lane].is_stream = true; }

void ChromeTracks::set_kind(uint32_t lane, LaneKind kind) {
  lanes_[lane].kind_is_known = true;
  builder_.trace().lanes[lane].kind = kind;
}

void ChromeTracks::settle_kinds() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = builder_.trace().lanes[i];
    if (lanes_[i].kind_is_known) continue;
    if (lanes_[i].is_stream || lane.name.starts_with("stream")) lane.kind = LaneKind::kStream;
  }
}

void ChromeTracks::put_in_order(Trace& trace) const {
  std::vector<uint32_t> device_order(trace.devices.size());
  std::iota(device_order.begin(), device_order.end(), 0u);
  std::stable_sort(device_order.begin(), device_order.end(), [this](uint32_t a, uint32_t b) {
    return devices_[a].sort_index < devices_[b].sort_index;
  });
  const std::vector<uint32_t> device_rows = new_rows(device_order);
  for (Lane& lane : trace.lanes) lane.device = device_rows[lane.device];
  reorder(trace.devices, device_order);

  // Lanes stay where they came unless their indices say otherwise.
  const bool has_order = std::any_of(lanes_.begin(), lanes_.end(),
                                     [](const Row& row) { return row.sort_index != 0; }) ||
                         !std::is_sorted(device_order.begin(), device_order.end());
  if (!has_order) return;
  std::vector<uint32_t> lane_order(trace.lanes.size());
  std::iota(lane_order.begin(), lane_order.end(), 0u);
  std::stable_sort(lane_order.begin(), lane_order.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t device_a = trace.lanes[a].device;
    const uint32_t device_b = trace.lanes[b].device;
    if (device_a != device_b) return device_a < device_b;
    return lanes_[a].sort_index < lanes_[b].sort_index;
  });
  const std::vector<uint32_t> lane_rows = new_rows(lane_order);
  reorder(trace.lanes, lane_order);
  renumber(trace.spans.lane, lane_rows);
  renumber(trace.tasks.lane, lane_rows);
  renumber(trace.counters.lane, lane_rows);
  renumber(trace.instants.lane, lane_rows);
  renumber(trace.flows.lane, lane_rows);
  for (Finding& finding : trace.findings) {
    if (finding.lane != kNoIndex) finding.lane = lane_rows[finding.lane];
  }
}

}  // namespace gapless
