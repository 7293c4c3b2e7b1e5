// SPDX-License-Identifier: Apache-2.0
//
// ChromeTracks: which device and lane the "pid" and "tid" of a Chrome event mean.
//
// Both may be numbers or texts, and may be absent. Names, labels and the order in which they are
// shown come from metadata events, before or after the events that they are about; finish() puts
// devices and lanes into that order.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_scanner.h"
#include "trace/trace_builder.h"

namespace gapless {

class ChromeTracks {
 public:
  explicit ChromeTracks(TraceBuilder& builder) : builder_(builder) {}

  uint32_t device(const JsonValue& process);
  // Without a thread: the lane of the process itself.
  uint32_t lane(const JsonValue& process, const JsonValue& thread);
  // Where the async events of a process go that have this category and scope.
  uint32_t async_lane(const JsonValue& process, const JsonValue& category, const JsonValue& scope);
  // From now on the thread is the lane of another one: a row that the writer had split off.
  void join(const JsonValue& process, const JsonValue& thread, const JsonValue& main_thread);

  void set_device_order(uint32_t device, int64_t sort_index) {
    order(devices_, device, sort_index);
  }
  void set_lane_order(uint32_t lane, int64_t sort_index) { order(lanes_, lane, sort_index); }
  // The lane shows work of a GPU.
  void mark_stream(uint32_t lane);
  // The lane's kind is known and not to be guessed.
  void set_kind(uint32_t lane, LaneKind kind);

  // Guesses the kinds that are not known. Before TraceBuilder::finish().
  void settle_kinds();
  // Puts devices and lanes into the order of their sort indices. After TraceBuilder::finish().
  void put_in_order(Trace& trace) const;

 private:
  // What "pid" or "tid" said, as a number that texts and their absence have too.
  struct Key {
    enum class Kind : uint8_t { kNone, kNumber, kText };
    Kind kind = Kind::kNone;
    int64_t number = 0;
    bool operator==(const Key&) const = default;
  };
  struct LaneKey {
    uint32_t device = kNoIndex;
    Key thread;
    bool operator==(const LaneKey&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
    size_t operator()(const LaneKey& key) const;
  };
  struct Row {
    int64_t sort_index = 0;
    bool is_stream = false;
    bool kind_is_known = false;
  };

  Key key_of(const JsonValue& value);
  uint32_t add_lane(uint32_t device, Lane lane);
  uint32_t find_lane(uint32_t device, const JsonValue& thread);
  static void order(std::vector<Row>& rows, uint32_t row, int64_t sort_index) {
    if (row >= rows.size()) rows.resize(row + 1);
    rows[row].sort_index = sort_index;
  }

  TraceBuilder& builder_;
  std::unordered_map<std::string, int64_t> texts_;
  std::unordered_map<Key, uint32_t, Hash> device_ids_;
  std::unordered_map<LaneKey, uint32_t, Hash> lane_ids_;
  std::unordered_map<std::string, uint32_t> async_ids_;
  std::vector<Row> devices_;
  std::vector<Row> lanes_;

  // Neighbouring events mostly share their process, and few threads take turns.
  Key latest_process_;
  uint32_t latest_device_ = kNoIndex;
  struct CachedLane {
    LaneKey key;
    uint32_t lane = kNoIndex;
  };
  std::array<CachedLane, 256> cache_;
};

}  // namespace gapless
