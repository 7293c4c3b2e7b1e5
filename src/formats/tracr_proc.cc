// SPDX-License-Identifier: Apache-2.0

#include "formats/tracr_proc.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace gapless {
namespace {

// Smaller steps back within a thread are noise of the clock; larger ones mean an unsorted file.
constexpr uint64_t kNoiseNs = 1'000'000;
// Threads that lie further apart than this, and than ten times what they last, are of two runs.
constexpr int64_t kFarApartNs = 10'000'000'000;
constexpr size_t kListedLabels = 24;

double seconds(int64_t time_ns) { return static_cast<double>(time_ns) * 1e-9; }

void report_labels(PreparedTracrProc& proc) {
  const TracrMetadata& metadata = proc.metadata;
  if (metadata.label_source == LabelSource::kKeyOrder) {
    proc.add_finding(
        Severity::kWarning, "labels-by-key-order",
        fmt::format("the {} labels were numbered in the order of their keys, as asked; the "
                    "file does not say which event has which, so they may be swapped",
                    metadata.labels.size()),
        metadata.labels.size());
  }
  if (metadata.label_source != LabelSource::kUnknown || metadata.markers.empty()) return;
  const std::span<const std::string> all = metadata.markers;
  const auto listed = all.first(std::min(all.size(), kListedLabels));
  const std::string more =
      all.size() > listed.size() ? fmt::format(" and {} more", all.size() - listed.size()) : "";
  proc.add_finding(
      Severity::kWarning, "labels-unknown",
      fmt::format("the file has {} labels but does not say which event has which, so events "
                  "are shown by number; the labels are \"{}\"{}; "
                  "--tracr-labels-by-key-order takes them in the order of their keys, as "
                  "the old tracr_process did, often wrongly",
                  all.size(), fmt::join(listed, "\", \""), more),
      all.size());
}

void read_metadata(PreparedTracrProc& proc, const TracrProc& source, const ReadOptions& options) {
  if (!source.metadata) {
    proc.add_finding(Severity::kWarning, "metadata-missing",
                     "there is no metadata.json; channels and events are shown by number");
    return;
  }
  Result<TracrMetadata> metadata =
      parse_tracr_metadata(*source.metadata, options.tracr_labels_by_key_order);
  if (!metadata) {
    proc.add_finding(Severity::kError, "metadata-damaged",
                     metadata.error().message + "; channels and events are shown by number");
    return;
  }
  proc.metadata = std::move(metadata).value();
  for (const Finding& finding : proc.metadata.findings) {
    proc.add_finding(finding.severity, finding.code, finding.text, finding.count);
  }
  report_labels(proc);
  if (!proc.metadata.not_written.empty()) {
    proc.add_finding(Severity::kInfo, "not-written",
                     "the TraCR format had no place for " + proc.metadata.not_written);
  }
}

// Slots that were never written: zeros behind a record with a time.
size_t without_empty_tail(std::span<const TracrRecord> records) {
  const auto is_empty = [](const TracrRecord& r) {
    return r.channel == 0 && r.event == 0 && r.extra == 0 && r.time_ns == 0;
  };
  size_t count = records.size();
  while (count > 0 && is_empty(records[count - 1])) --count;
  return count > 0 && records[count - 1].time_ns > 0 ? count : records.size();
}

void read_thread(PreparedTracrProc& proc, const TracrThread& source) {
  const size_t count = source.bytes.size() / sizeof(TracrRecord);
  const size_t rest_bytes = source.bytes.size() % sizeof(TracrRecord);
  if (rest_bytes > 0) {
    proc.add_finding(Severity::kWarning, "cut-short",
                     fmt::format("{}/traces.bts is cut short after record {}: {} of {} bytes",
                                 source.name, count, rest_bytes, sizeof(TracrRecord)),
                     rest_bytes);
  }
  if (count == 0) return;
  std::vector<TracrRecord> records(count);
  std::memcpy(records.data(), source.bytes.data(), count * sizeof(TracrRecord));

  const size_t used_count = without_empty_tail(records);
  if (used_count < count) {
    proc.add_finding(Severity::kWarning, "empty-records",
                     fmt::format("the last {} of {} records of {} are empty; left out",
                                 count - used_count, count, source.name),
                     count - used_count);
    records.resize(used_count);
  }
  const size_t wrong_count = std::erase_if(records, [](const TracrRecord& record) {
    return record.time_ns >= static_cast<uint64_t>(kMaxTimeNs);
  });
  if (wrong_count > 0) {
    proc.add_finding(
        Severity::kError, "time-out-of-range",
        fmt::format("{} of {} records of {} have a time after year 146 of their clock; left "
                    "out",
                    wrong_count, used_count, source.name),
        wrong_count);
  }
  if (!records.empty()) proc.threads.push_back({source.name, std::move(records)});
}

void repair_clock(PreparedTracrProc& proc) {
  const std::optional<ClockRepair> repair = repair_clock_wrap(
      proc.threads, {.start_ns = proc.metadata.start_ns, .end_ns = proc.metadata.end_ns});
  if (!repair) return;
  const double mhz = 18446744073709551616.0 / static_cast<double>(repair->period_ns) * 1e-6;
  const std::string quality = repair->is_nominal
                                  ? fmt::format("the usual {:.1f} MHz", mhz)
                                  : fmt::format("about {:.3f} MHz, good to about {:.6f} s a wrap",
                                                mhz, seconds(repair->uncertainty_ns));
  const std::string ambiguous =
      repair->ambiguous_thread_count == 0
          ? ""
          : fmt::format("; {} threads may belong one or more periods later",
                        repair->ambiguous_thread_count);
  proc.add_finding(Severity::kWarning, "clock-wrap",
                   fmt::format("the clock started again {} times in {} threads (ticks x 1e9 "
                               "overflow 64 bits in the old TraCR clock); repaired with a period "
                               "of {:.6f} s, an estimate because the file does not hold the "
                               "frequency: {}{}",
                               repair->wrap_count, repair->thread_count, seconds(repair->period_ns),
                               quality, ambiguous),
                   repair->wrap_count);
}

TimeRange range_of(const TracrThreadRecords& thread) {
  const auto [first, last] = std::minmax_element(
      thread.records.begin(), thread.records.end(),
      [](const TracrRecord& a, const TracrRecord& b) { return a.time_ns < b.time_ns; });
  return {static_cast<int64_t>(first->time_ns), static_cast<int64_t>(last->time_ns)};
}

// TraCR never cleans its directory, so a proc may hold threads of an earlier run. START comes
// before every record of a run and the end after: a thread outside is not of this run.
void leave_out_stale_threads(PreparedTracrProc& proc) {
  const int64_t start_ns = proc.metadata.start_ns;
  const int64_t end_ns = proc.metadata.end_ns;
  if (start_ns == 0) return;
  const auto is_stale = [&](const TracrThreadRecords& thread) {
    const TimeRange range = range_of(thread);
    return range.end_ns < start_ns || (end_ns >= start_ns && range.begin_ns > end_ns);
  };
  if (std::all_of(proc.threads.begin(), proc.threads.end(), is_stale)) {
    if (proc.threads.empty()) return;
    proc.add_finding(
        Severity::kWarning, "times-outside-run",
        fmt::format("no thread has a record in the time of the run, which metadata.json says "
                    "starts at {} ns; the clock wrapped in between or the file is of "
                    "another run; all {} threads are kept",
                    start_ns, proc.threads.size()),
        proc.threads.size());
    return;
  }
  for (const TracrThreadRecords& thread : proc.threads) {
    if (!is_stale(thread)) continue;
    const TimeRange range = range_of(thread);
    proc.add_finding(
        Severity::kWarning, "stale-thread",
        fmt::format("{} is of another run: its {} records lie between {} and {} ns, the run "
                    "starts at {} ns; left out",
                    thread.name, thread.records.size(), range.begin_ns, range.end_ns, start_ns),
        thread.records.size());
  }
  std::erase_if(proc.threads, is_stale);
}

// Without a start time there is no proof, only distance: the threads before a long silence are
// reported and kept.
void report_distant_threads(PreparedTracrProc& proc) {
  if (proc.metadata.start_ns != 0) return;
  std::vector<std::pair<TimeRange, const TracrThreadRecords*>> threads;
  int64_t longest_ns = 0;
  for (const TracrThreadRecords& thread : proc.threads) {
    threads.emplace_back(range_of(thread), &thread);
    longest_ns = std::max(longest_ns, threads.back().first.end_ns - threads.back().first.begin_ns);
  }
  std::sort(threads.begin(), threads.end(), [](const auto& a, const auto& b) {
    return a.first.begin_ns != b.first.begin_ns ? a.first.begin_ns < b.first.begin_ns
                                                : a.second->name < b.second->name;
  });
  const int64_t far_ns = std::max(kFarApartNs, longest_ns < std::numeric_limits<int64_t>::max() / 10
                                                   ? 10 * longest_ns
                                                   : std::numeric_limits<int64_t>::max());
  size_t stale_count = 0;
  int64_t end_ns = threads.empty() ? 0 : threads.front().first.end_ns;
  for (size_t i = 1; i < threads.size(); ++i) {
    if (threads[i].first.begin_ns - end_ns > far_ns) stale_count = i;
    end_ns = std::max(end_ns, threads[i].first.end_ns);
  }
  for (size_t i = 0; i < stale_count; ++i) {
    proc.add_finding(
        Severity::kWarning, "stale-thread",
        fmt::format("{} ends {:.3f} s before the threads after it begin and may be of an "
                    "earlier run; kept, because metadata.json has no start_time to prove it",
                    threads[i].second->name,
                    seconds(threads[stale_count].first.begin_ns - threads[i].first.end_ns)),
        threads[i].second->records.size());
  }
}

// Cuts a thread where its times jump back, and moves records that are a little too old to the time
// before them: the order in the file is the order in which the thread did things.
void cut_into_runs(PreparedTracrProc& proc, uint32_t thread_index) {
  TracrThreadRecords& thread = proc.threads[thread_index];
  uint64_t moved_count = 0;
  uint64_t jump_count = 0;
  uint64_t largest_ns = 0;
  size_t begin = 0;
  for (size_t i = 1; i < thread.records.size(); ++i) {
    const uint64_t latest_ns = thread.records[i - 1].time_ns;
    if (thread.records[i].time_ns >= latest_ns) continue;
    const uint64_t back_ns = latest_ns - thread.records[i].time_ns;
    if (back_ns <= kNoiseNs) {
      ++moved_count;
      thread.records[i].time_ns = latest_ns;
      continue;
    }
    ++jump_count;
    largest_ns = std::max(largest_ns, back_ns);
    proc.runs.push_back({thread_index, begin, i});
    begin = i;
  }
  proc.runs.push_back({thread_index, begin, thread.records.size()});
  if (moved_count > 0) {
    proc.add_finding(
        Severity::kWarning, "time-goes-back",
        fmt::format("{} records of {} are up to 1 ms older than the record before them; moved "
                    "to its time",
                    moved_count, thread.name),
        moved_count);
  }
  if (jump_count > 0) {
    proc.add_finding(
        Severity::kWarning, "unsorted",
        fmt::format("the records of {} jump back {} times, by up to {:.6f} s; read as {} "
                    "pieces and merged by time",
                    thread.name, jump_count, seconds(static_cast<int64_t>(largest_ns)),
                    jump_count + 1),
        jump_count);
  }
}

}  // namespace

void PreparedTracrProc::add_finding(Severity severity, std::string_view code, std::string_view text,
                                    uint64_t count) {
  findings.push_back(
      {severity, std::string(code), fmt::format("{}: {}", name, text), kNoIndex, count});
}

std::optional<int64_t> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

PreparedTracrProc prepare_tracr_proc(const TracrProc& source, const ReadOptions& options) {
  PreparedTracrProc proc;
  proc.name = source.name;
  read_metadata(proc, source, options);
  proc.number = number_after(source.name, "proc.").value_or(proc.metadata.pid.value_or(0));
  for (const TracrThread& thread : source.threads) read_thread(proc, thread);
  repair_clock(proc);
  leave_out_stale_threads(proc);
  report_distant_threads(proc);
  for (uint32_t i = 0; i < proc.threads.size(); ++i) {
    const int64_t begin_ns = range_of(proc.threads[i]).begin_ns;
    proc.first_ns = i == 0 ? begin_ns : std::min(proc.first_ns, begin_ns);
    proc.record_count += proc.threads[i].records.size();
    cut_into_runs(proc, i);
  }
  if (proc.record_count == 0) {
    proc.add_finding(Severity::kWarning, "no-records",
                     fmt::format("no whole record in its {} threads", source.threads.size()));
  }
  return proc;
}

}  // namespace gapless
