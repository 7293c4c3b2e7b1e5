// SPDX-License-Identifier: Apache-2.0

#include "sim/overhead_shares.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gapless {
namespace {

enum Kind : uint8_t { kCubeKind = 0, kVectorKind = 1 };

// A number that goes up or down at a time.
struct Change {
  int64_t time_ns;
  Kind kind;
  bool is_ready;  // of ready records; else of running cores
  int32_t by;
};

class OverheadSweep {
 public:
  OverheadSweep(const DeviceProfile& profile, const SimGraph& graph, const SimResult& result)
      : profile_(profile), graph_(graph), result_(result) {}

  OverheadShares measure() {
    list_changes();
    std::sort(changes_.begin(), changes_.end(),
              [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
    for (size_t i = 0; i < changes_.size(); ++i) {
      const Change& change = changes_[i];
      (change.is_ready ? ready_ : running_)[change.kind] += change.by;
      if (i + 1 < changes_.size()) count(changes_[i + 1].time_ns - change.time_ns);
    }
    const double window_ns = static_cast<double>(end_ns_ - begin_ns_);
    if (window_ns <= 0.0) return {};
    return {static_cast<double>(cube_ns_) / window_ns, static_cast<double>(vector_ns_) / window_ns,
            static_cast<double>(all_ns_) / window_ns, static_cast<double>(has_ns_) / window_ns};
  }

 private:
  void add(int64_t begin_ns, int64_t end_ns, Kind kind, bool is_ready) {
    if (begin_ns >= end_ns) return;
    changes_.push_back({begin_ns, kind, is_ready, 1});
    changes_.push_back({end_ns, kind, is_ready, -1});
  }

  // The last end of all producers; kAbsent without one.
  int64_t ready_ns(uint32_t task) const {
    int64_t time_ns = kAbsent;
    for (const uint32_t producer : graph_.producers(task)) {
      if (graph_.task(producer).is_dummy) time_ns = std::max(time_ns, ready_ns(producer));
      for (uint64_t row = result_.record_begins[producer];
           row < result_.record_begins[producer + 1]; ++row) {
        time_ns = std::max(time_ns, result_.records[row].end_ns);
      }
    }
    return time_ns;
  }

  void list_changes() {
    uint32_t last_task = kNoIndex;
    int64_t last_ready_ns = kAbsent;
    for (const SimRecord& record : result_.records) {
      if (record.task != last_task) last_ready_ns = ready_ns(record.task);
      last_task = record.task;
      const bool is_cube = record.core < static_cast<uint64_t>(profile_.cluster_count);
      const Kind kind = is_cube ? kCubeKind : kVectorKind;
      add(record.start_ns, record.end_ns, kind, false);
      if (last_ready_ns != kAbsent) add(last_ready_ns, record.dispatch_ns, kind, true);
      begin_ns_ = std::min(begin_ns_, record.dispatch_ns);
      end_ns_ = std::max(end_ns_, record.finish_ns);
    }
  }

  void count(int64_t length_ns) {
    const bool cube = ready_[kCubeKind] > 0 && running_[kCubeKind] < profile_.cluster_count;
    const bool vector =
        ready_[kVectorKind] > 0 && running_[kVectorKind] < profile_.vector_core_count();
    const bool is_cube_short = ready_[kCubeKind] > 0 && !cube;
    const bool is_vector_short = ready_[kVectorKind] > 0 && !vector;
    if (cube) cube_ns_ += length_ns;
    if (vector) vector_ns_ += length_ns;
    if (cube && vector) all_ns_ += length_ns;
    if ((cube || vector) && !is_cube_short && !is_vector_short) has_ns_ += length_ns;
  }

  const DeviceProfile& profile_;
  const SimGraph& graph_;
  const SimResult& result_;
  std::vector<Change> changes_;
  std::array<int64_t, 2> ready_ = {};
  std::array<int64_t, 2> running_ = {};
  int64_t begin_ns_ = INT64_MAX;
  int64_t end_ns_ = 0;
  int64_t cube_ns_ = 0;
  int64_t vector_ns_ = 0;
  int64_t all_ns_ = 0;
  int64_t has_ns_ = 0;
};

}  // namespace

OverheadShares measure_overhead(const DeviceProfile& profile, const SimGraph& graph,
                                const SimResult& result) {
  if (result.records.empty()) return {};
  return OverheadSweep(profile, graph, result).measure();
}

}  // namespace gapless
