// SPDX-License-Identifier: Apache-2.0
//
// ChromeTraceBuilder: what the events of a Chrome trace mean, one after the other, until finish()
// makes the trace. What is not kept is counted, and the counts become findings.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/chrome_json_event.h"
#include "formats/chrome_json_pairs.h"
#include "formats/chrome_json_tracks.h"
#include "trace/trace_builder.h"

namespace gapless {

// Why something of a file is not, or not quite, in the trace.
enum class ChromeLoss : uint8_t {
  kNotAnEvent,
  kNoPhase,
  kNoTime,
  kBadNumber,
  kNoDuration,
  kMissingName,
  kNoId,
  kBadSeries,
  kBadArgs,
  kTooDeep,
  kTooLarge,
  kBadEdge,
  kOtherMetadata,
  kPointDetails,
  kOtherFields,
  kOtherKey,
};
inline constexpr size_t kChromeLossCount = 16;

class ChromeTraceBuilder {
 public:
  ChromeTraceBuilder();

  void add_event(const ChromeEvent& event);
  // A key beside the events. Our own tell where a trace that we wrote began.
  void add_property(std::string_view key, const JsonValue& value);
  // Members of "otherData" are properties by their own keys.
  void add_other_data(std::string_view object);
  void count(ChromeLoss loss) { ++losses_[static_cast<size_t>(loss)]; }
  void add_finding(Finding finding) { builder_.add_finding(std::move(finding)); }

  // True once the file has said that write_chrome_json made it.
  bool is_ours() const { return is_ours_; }
  uint64_t event_count() const { return event_count_; }
  uint64_t loss_count(ChromeLoss loss) const { return losses_[static_cast<size_t>(loss)]; }
  Trace finish();

 private:
  // A text of the file and its number, in a table where the next one with the same hash replaces
  // it.
  struct CachedName {
    std::string raw;
    uint32_t id = kNoIndex;
  };
  struct NumberedEdge {
    uint64_t producer;  // in the order in which the tasks are in the file
    uint64_t consumer;
    uint64_t kind;
  };
  struct NextBinding {
    uint32_t flow;
    uint32_t lane;
    int64_t time_ns;
  };

  uint32_t intern(const JsonValue& text);
  uint32_t name_of(const ChromeEvent& event);
  uint32_t intern_args(std::string_view text, bool is_lenient);
  ChromeDetails details_of(const ChromeEvent& event);
  bool time_of(const ChromeEvent& event, int64_t& time_ns);

  void add_timed(const ChromeEvent& event, char phase);
  void add_complete(const ChromeEvent& event, int64_t time_ns);
  void add_task(const ChromeEvent& event, int64_t begin_ns, int64_t end_ns);
  void add_instant(const ChromeEvent& event, uint32_t lane, int64_t time_ns);
  void add_counter(const ChromeEvent& event, int64_t time_ns);
  void add_flow(const ChromeEvent& event, char phase, int64_t time_ns);
  void add_edge(const ChromeEvent& event);
  void add_async(const ChromeEvent& event, char phase, int64_t time_ns);
  void add_metadata(const ChromeEvent& event);
  void add_device_details(const ChromeEvent& event, const JsonValue& details);
  void add_lane_details(const ChromeEvent& event, const JsonValue& details);

  void finish_edges();
  void bind_to_next_spans();
  void finish_losses();
  void shift_times(Trace& trace);

  TraceBuilder builder_;
  ChromeTracks tracks_;
  ChromePairs pairs_;
  std::vector<CachedName> names_;
  std::vector<NumberedEdge> edges_;
  std::vector<NextBinding> next_bindings_;
  std::array<uint64_t, kChromeLossCount> losses_ = {};
  std::array<uint64_t, 256> unknown_phases_ = {};
  std::string args_;  // scratch
  uint64_t event_count_ = 0;
  uint32_t flow_category_ = kNoIndex;  // whose ids are kept as they are
  bool has_flow_category_ = false;
  bool is_ours_ = false;  // written by write_chrome_json
  int64_t origin_ns_ = 0;
};

}  // namespace gapless
