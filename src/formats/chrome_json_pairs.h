// SPDX-License-Identifier: Apache-2.0
//
// ChromePairs: begins and ends of a Chrome trace, kept until the file is read and then paired in
// order of time. Files are not sorted, not even within one thread. 40 bytes an event meanwhile.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace_builder.h"

namespace gapless {

// What a span carries besides its times; numbers of names.
struct ChromeDetails {
  uint32_t name = kNoIndex;
  uint32_t category = kNoIndex;
  uint32_t args = kNoIndex;
  uint32_t value = kNoValue;
};

void set_details(TraceBuilder& builder, uint32_t span, const ChromeDetails& details);

class ChromePairs {
 public:
  // "B" and "E": the latest begin of the lane is ended first.
  void add_begin(uint32_t lane, int64_t time_ns, const ChromeDetails& details) {
    events_.push_back({time_ns, 0, lane, Kind::kBegin, details});
  }
  void add_end(uint32_t lane, int64_t time_ns, const ChromeDetails& details) {
    events_.push_back({time_ns, 0, lane, Kind::kEnd, details});
  }
  // "b" and "e": only with the same id, and the same name where the end has one.
  void add_async_begin(uint32_t lane, int64_t time_ns, uint64_t id, const ChromeDetails& details) {
    async_events_.push_back({time_ns, id, lane, Kind::kBegin, details});
  }
  void add_async_end(uint32_t lane, int64_t time_ns, uint64_t id, const ChromeDetails& details) {
    async_events_.push_back({time_ns, id, lane, Kind::kEnd, details});
  }

  // Makes the spans, and counts what has no partner as findings.
  void finish(TraceBuilder& builder);

 private:
  enum class Kind : uint8_t { kBegin, kEnd };
  struct Event {
    int64_t time_ns;
    uint64_t id;
    uint32_t lane;
    Kind kind;
    ChromeDetails details;
  };

  void pair_nested(TraceBuilder& builder);
  void pair_async(TraceBuilder& builder);

  std::vector<Event> events_;
  std::vector<Event> async_events_;
};

}  // namespace gapless
