// SPDX-License-Identifier: Apache-2.0
//
// TracrMetadata: what a metadata.json of TraCR says, whichever dialect it is in, and what it leaves
// open. The old dialect lists labels by colour number, sorted as text, and events by order of
// registration: which label an event has is then known only in the cases of LabelSource.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

enum class TracrDialect { kNone, kOld, kDevice, kNew };
std::string_view tracr_dialect_name(TracrDialect dialect);

// Why `labels` may be believed.
enum class LabelSource {
  kUnknown,     // it may not: `labels` is empty, `markers` lists what there is
  kLabelArray,  // markerLabels, indexed by event
  kPaddedKeys,  // keys with leading zeros count the markers
  kAutoColors,  // keys 23, 24, ...: TraCR gives these out in order of registration
  kOnlyMarker,  // one marker: no order to get wrong
  kKeyOrder,    // the user asked for it
};

// Keys that write_tracr adds, so that its directories come back as they were.
struct TracrLaneNotes {
  LaneKind kind = LaneKind::kThread;
  SpanMeaning meaning = SpanMeaning::kExecution;
  int64_t number = 0;
  uint64_t dropped_count = 0;
};

struct TracrMetadata {
  TracrDialect dialect = TracrDialect::kNone;
  std::optional<int64_t> pid;
  int64_t start_ns = 0;  // 0: unknown
  int64_t end_ns = 0;    // 0: unknown
  LabelSource label_source = LabelSource::kUnknown;
  std::vector<std::string> labels;   // by event
  std::vector<std::string> markers;  // the labels of markerTypes in the order of their keys
  uint32_t channel_count = 0;        // 0: not declared
  std::vector<std::string> channel_names;
  std::map<uint32_t, std::string> extra_labels;  // of extraIdLabels

  // Only in directories that Gapless wrote.
  bool one_clock = false;  // the procs share a clock: no alignment needed
  std::string device_name;
  std::vector<TracrLaneNotes> lanes;  // by channel, or empty
  std::string not_written;            // what the format had no place for

  std::vector<Finding> findings;
};

// Fails when the text is not a JSON object; parts of the wrong type are left out with a finding.
Result<TracrMetadata> parse_tracr_metadata(std::string_view text, bool labels_by_key_order);

// In the newest dialect. markerTypes has keys whose order as text is the order of the events.
std::string format_tracr_metadata(const TracrMetadata& metadata);

// {"extra_label":"..."}: how the label of an extra id is kept with a span, and back.
std::string extra_label_args(const std::string& label);
std::optional<std::string> extra_label_of(std::string_view args);

}  // namespace gapless
