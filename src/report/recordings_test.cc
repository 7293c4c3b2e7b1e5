// SPDX-License-Identifier: Apache-2.0

#include "report/recordings.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

Trace process(const char* pid, const char* events, const char* ns_per_event, int64_t begin_ns) {
  TraceBuilder builder("gapless");
  const uint32_t device = builder.add_device({.name = std::string("process ") + pid});
  const uint32_t lane = builder.add_lane({.name = "main", .device = device});
  builder.add_span(lane, begin_ns, begin_ns + 10, builder.intern("work"));
  builder.trace().properties = {{"pid", pid},
                                {"recorder.events", events},
                                {"recorder.writers", "2"},
                                {"recorder.ns_per_event", ns_per_event}};
  return builder.finish();
}

std::string value_of(const Trace& trace, const std::string& key) {
  for (const Property& property : trace.properties) {
    if (property.key == key) return property.value;
  }
  return "(none)";
}

TEST(Recordings, AddUpWhatTheRecordersCost) {
  std::vector<Trace> traces;
  traces.push_back(process("11", "100", "10", 500));
  traces.push_back(process("12", "300", "20", 100));
  const Trace merged = merge_recordings(std::move(traces));
  EXPECT_EQ(merged.lanes.size(), 2u);
  EXPECT_EQ(merged.spans.begin_ns, (std::vector<int64_t>{100, 500}));
  EXPECT_EQ(value_of(merged, "pid"), "11 12");
  EXPECT_EQ(value_of(merged, "processes"), "2");
  EXPECT_EQ(value_of(merged, "recorder.events"), "400");
  EXPECT_EQ(value_of(merged, "recorder.writers"), "4");
  EXPECT_EQ(value_of(merged, "recorder.ns_per_event"), "17.500");
}

TEST(Recordings, WithoutRecorderPropertiesGetNone) {
  std::vector<Trace> traces(2);
  const Trace merged = merge_recordings(std::move(traces));
  EXPECT_EQ(value_of(merged, "recorder.events"), "(none)");
  EXPECT_EQ(value_of(merged, "pid"), "(none)");
}

}  // namespace
}  // namespace gapless
