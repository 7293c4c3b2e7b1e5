// SPDX-License-Identifier: Apache-2.0
//
// What the readers of Kineto's and Ascend's timelines share while they make one table: times out of
// events, texts, steps, the host's spans, and the counts of what is not a row.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/ascend_csv_reader.h"
#include "formats/capture_options.h"
#include "formats/chrome_json_event.h"
#include "trace/capture_table.h"

namespace gapless {

// Why an event of a device is no row, or not quite as it stands in the file.
enum class KernelEventLoss : uint8_t {
  kNoTime,
  kBadNumber,
  kNotPositive,
  kNegativeDuration,
  kOutOfRange,
  kNoDuration,  // kept
};
inline constexpr int kKernelEventLossCount = 6;
using KernelEventLosses = std::array<uint64_t, kKernelEventLossCount>;

struct EventTimes {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;  // >= 0; start and end are within kMaxTimeNs of zero
};
// Nothing, and counted, when the event cannot be a row.
std::optional<EventTimes> event_times(const ChromeEvent& event, KernelEventLosses& losses);

// "7", 7 or "stream 7": the number that a text ends with.
std::optional<int64_t> trailing_number(std::string_view text);

class JsonKernelEvents {
 public:
  JsonKernelEvents(CaptureTable& table, const CaptureReadOptions& options)
      : table_(table), options_(options), texts_(table.names) {}

  CaptureTable& table() { return table_; }
  const CaptureReadOptions& options() const { return options_; }
  uint32_t intern(const JsonValue& text);
  uint32_t intern(std::string_view text) { return texts_.intern(text); }

  // Events that span "ProfilerStep#12" are the step "12".
  void add_step(const ChromeEvent& event);
  void finish_steps();
  // kNoIndex: outside of all. After finish_steps().
  uint32_t step_at(int64_t time_ns) const;

  // `category` is "call" or "range". Only when the host is asked for.
  void add_host(const ChromeEvent& event, std::string_view category);
  void add_host_span(const HostSpan& span) { table_.host.push_back(span); }

  // Adds what a device lost to the sums, and to the rows that are not here.
  void add_losses(const KernelEventLosses& losses);
  void add_dropped(uint64_t count) { table_.dropped_count += count; }
  void add_finding(Severity severity, std::string_view code, uint64_t count, std::string text);
  void report_losses();

 private:
  struct Step {
    int64_t begin_ns;
    int64_t end_ns;
    uint32_t name;
  };

  CaptureTable& table_;
  const CaptureReadOptions& options_;
  RecentTexts texts_;
  std::vector<Step> steps_;
  KernelEventLosses losses_ = {};
};

// Puts rows in order and counts where the file was not, sorts the host's spans.
void finish_kernel_order(CaptureTable& table, bool drops_repeated);

}  // namespace gapless
