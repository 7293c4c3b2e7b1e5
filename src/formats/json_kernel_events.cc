// SPDX-License-Identifier: Apache-2.0

#include "formats/json_kernel_events.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

constexpr std::string_view kStepPrefix = "ProfilerStep#";

struct LossText {
  std::string_view code;
  std::string_view text;
};

constexpr std::array<LossText, kKernelEventLossCount> kLossTexts = {{
    {"no-start", "events of devices have no start (\"ts\"); dropped"},
    {"not-a-number", "events of devices have a start or duration that is no number; dropped"},
    {"start-not-positive", "events of devices start at zero or before; dropped"},
    {"duration-negative", "events of devices have a negative duration; dropped"},
    {"time-out-of-range", "events of devices have a start or end beyond 2^62 ns; dropped"},
    {"no-duration", "events of devices have no duration (\"dur\"); taken as 0"},
}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<EventTimes> event_times(const ChromeEvent& event, KernelEventLosses& losses) {
  const auto lose = [&losses](KernelEventLoss loss) { ++losses[static_cast<size_t>(loss)]; };
  if (!event.time.is_present()) {
    lose(KernelEventLoss::kNoTime);
    return std::nullopt;
  }
  const std::optional<int64_t> start_ns = chrome_time_ns(event.time);
  const std::optional<int64_t> duration_ns =
      event.duration.is_present() ? chrome_time_ns(event.duration) : std::optional<int64_t>(0);
  if (!start_ns || !duration_ns) {
    lose(KernelEventLoss::kBadNumber);
    return std::nullopt;
  }
  if (*duration_ns < 0) {
    lose(KernelEventLoss::kNegativeDuration);
    return std::nullopt;
  }
  int64_t end_ns = 0;
  if (__builtin_add_overflow(*start_ns, *duration_ns, &end_ns) || end_ns > kMaxTimeNs ||
      *start_ns < -kMaxTimeNs) {
    lose(KernelEventLoss::kOutOfRange);
    return std::nullopt;
  }
  if (!event.duration.is_present()) lose(KernelEventLoss::kNoDuration);
  return EventTimes{*start_ns, *duration_ns};
}

std::optional<int64_t> trailing_number(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + begin, end, number);
  if (error != std::errc() || stop != end || begin == text.size()) return std::nullopt;
  return number;
}

uint32_t JsonKernelEvents::intern(const JsonValue& text) {
  if (!text.has_escapes) return texts_.intern(text.text);
  return texts_.intern(chrome_text(text));
}

void JsonKernelEvents::add_step(const ChromeEvent& event) {
  if (!event.name.text.starts_with(kStepPrefix)) return;
  KernelEventLosses unused = {};
  const std::optional<EventTimes> times = event_times(event, unused);
  if (!times) return;
  const std::string_view number = event.name.text.substr(kStepPrefix.size());
  steps_.push_back({times->start_ns, times->start_ns + times->duration_ns, intern(number)});
}

void JsonKernelEvents::finish_steps() {
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
    return std::tie(a.begin_ns, a.end_ns, a.name) < std::tie(b.begin_ns, b.end_ns, b.name);
  });
}

uint32_t JsonKernelEvents::step_at(int64_t time_ns) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), time_ns,
                       [](int64_t time, const Step& step) { return time < step.begin_ns; });
  if (after == steps_.begin()) return kNoIndex;
  const Step& step = *std::prev(after);
  return time_ns < step.end_ns ? step.name : kNoIndex;
}

void JsonKernelEvents::add_host(const ChromeEvent& event, std::string_view category) {
  if (!options_.keep_host) return;
  KernelEventLosses unused = {};
  const std::optional<EventTimes> times = event_times(event, unused);
  if (!times) return;
  add_host_span({.begin_ns = times->start_ns,
                 .end_ns = times->start_ns + times->duration_ns,
                 .process = chrome_integer(event.process).value_or(0),
                 .thread = chrome_integer(event.thread).value_or(0),
                 .name = intern(event.name),
                 .category = intern(category)});
}

void JsonKernelEvents::add_losses(const KernelEventLosses& losses) {
  for (size_t i = 0; i < losses.size(); ++i) {
    losses_[i] += losses[i];
    if (i != static_cast<size_t>(KernelEventLoss::kNoDuration)) add_dropped(losses[i]);
  }
}

void JsonKernelEvents::add_finding(Severity severity, std::string_view code, uint64_t count,
                                   std::string text) {
  table_.findings.push_back({severity, std::string(code), std::move(text), kNoIndex, count});
}

void JsonKernelEvents::report_losses() {
  for (size_t i = 0; i < losses_.size(); ++i) {
    if (losses_[i] == 0) continue;
    add_finding(Severity::kWarning, kLossTexts[i].code, losses_[i],
                fmt::format("{} {}", losses_[i], kLossTexts[i].text));
  }
}

namespace {

bool is_same_event(const CaptureTable& table, uint32_t a, uint32_t b) {
  return table.device[a] == table.device[b] && table.start_ns[a] == table.start_ns[b] &&
         table.duration_ns[a] == table.duration_ns[b] && table.stream[a] == table.stream[b] &&
         table.task[a] == table.task[b] && table.name[a] == table.name[b];
}

// Rows that are there twice come from files that were put together. Equal ones start together, but
// others that start there too may lie between.
uint64_t drop_repeated_events(const CaptureTable& table, std::vector<uint32_t>& rows) {
  std::vector<uint32_t> kept;
  kept.reserve(rows.size());
  for (const uint32_t row : rows) {
    bool is_repeated = false;
    for (size_t i = kept.size(); i > 0 && !is_repeated; --i) {
      const uint32_t other = kept[i - 1];
      if (table.device[other] != table.device[row]) break;
      if (table.start_ns[other] != table.start_ns[row]) break;
      is_repeated = is_same_event(table, other, row);
    }
    if (!is_repeated) kept.push_back(row);
  }
  const uint64_t count = rows.size() - kept.size();
  rows = std::move(kept);
  return count;
}

}  // namespace

void finish_kernel_order(CaptureTable& table, bool drops_repeated) {
  std::map<int32_t, int64_t> latest_ns;
  for (size_t row = 0; row < table.size(); ++row) {
    const auto [latest, is_first] = latest_ns.emplace(table.device[row], table.start_ns[row]);
    if (!is_first && table.start_ns[row] < latest->second) ++table.order_break_count;
    latest->second = table.start_ns[row];
  }
  std::vector<uint32_t> order = rows_in_order(table);
  const uint64_t repeated_count = drops_repeated ? drop_repeated_events(table, order) : 0;
  if (repeated_count > 0 || !std::is_sorted(order.begin(), order.end())) keep_rows(table, order);
  if (repeated_count > 0) {
    table.dropped_count += repeated_count;
    table.findings.push_back(
        {Severity::kWarning, "duplicate-rows",
         fmt::format("{} kernels are there twice: same device, stream, launch, start, duration and "
                     "name; one of each is kept",
                     repeated_count),
         kNoIndex, repeated_count});
  }
  leave_out_late_launches(table);
  std::stable_sort(table.host.begin(), table.host.end(),
                   [](const HostSpan& a, const HostSpan& b) { return a.begin_ns < b.begin_ns; });
}

}  // namespace gapless
