// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_records.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "formats/json_walk.h"

namespace gapless {
namespace {

// A row of numbers: [core, token, register id, start, end, receive to start].
struct NumberRow {
  static constexpr size_t kMost = 8;
  std::array<uint64_t, kMost> numbers = {};
  size_t count = 0;
  bool is_valid = true;
};

NumberRow read_row(const JsonValue& value) {
  NumberRow row;
  row.is_valid = value.kind == JsonKind::kArray && !value.is_too_deep;
  if (!row.is_valid) return row;
  for_each_element(value.text, [&row](const JsonValue& element) {
    if (row.count == NumberRow::kMost) return;
    const std::optional<uint64_t> number = json_unsigned(element);
    row.is_valid = row.is_valid && number.has_value();
    row.numbers[row.count++] = number.value_or(0);
  });
  return row;
}

bool is_core(uint64_t number) { return number < kNoIndex; }
bool is_time(int64_t ticks) { return ticks >= -kMaxTimeNs && ticks <= kMaxTimeNs; }
bool is_cycles(uint64_t cycles) { return cycles <= static_cast<uint64_t>(kMaxTimeNs); }

// In cycles 0 is a time that was not taken.
int64_t recorded(uint64_t cycles) { return cycles == 0 ? kAbsent : static_cast<int64_t>(cycles); }

SwimlaneCoreType core_type_of(std::string_view text) {
  if (text == "aic" || text == "AIC") return SwimlaneCoreType::kCube;
  if (text == "aiv" || text == "AIV") return SwimlaneCoreType::kVector;
  return SwimlaneCoreType::kUnknown;
}

int64_t time_of(const JsonValue& value, bool is_in_cycles) {
  if (is_in_cycles) {
    const std::optional<uint64_t> cycles = json_unsigned(value);
    return cycles && is_cycles(*cycles) ? recorded(*cycles) : kAbsent;
  }
  const std::optional<int64_t> time_ns = json_microseconds_ns(value);
  return time_ns && is_time(*time_ns) ? *time_ns : kAbsent;
}

// A task of the oldest generation, as far as it is there.
struct OldTask {
  SwimlaneTask task;
  std::optional<uint64_t> token;
  std::optional<uint64_t> core;
  std::optional<uint64_t> ring;
  SwimlaneCoreType core_type = SwimlaneCoreType::kUnknown;
  JsonValue fanout;
};

OldTask read_old_task(const JsonValue& value) {
  OldTask old;
  for_each_field(value, [&old](const JsonValue& key, const JsonValue& member) {
    const std::string_view name = key.text;
    if (name == "task_id") old.token = json_unsigned(member);
    if (name == "core_id") old.core = json_unsigned(member);
    if (name == "ring_id") old.ring = json_unsigned(member);
    if (name == "core_type") old.core_type = core_type_of(member.text);
    if (name == "func_id") old.task.function_id = json_integer(member).value_or(-1);
    if (name == "start_time_us") old.task.start = time_of(member, false);
    if (name == "end_time_us") old.task.end = time_of(member, false);
    if (name == "dispatch_time_us") old.task.dispatch = time_of(member, false);
    if (name == "finish_time_us") old.task.finish = time_of(member, false);
    if (name == "fanout") old.fanout = member;
  });
  return old;
}

class RecordsReader {
 public:
  RecordsReader(InputStream& input, const Progress& progress, TraceBuilder& builder)
      : name_(input.name()), walk_(input, progress), builder_(builder) {}

  Result<SwimlaneRecords> read();

 private:
  Result<bool> read_member(std::string_view key);
  Result<bool> read_value(std::string_view key);
  Result<bool> read_scheduler_tasks();
  Result<bool> read_phases(std::vector<SwimlanePhase>& phases);
  template <typename Add>
  Result<bool> read_list(Add add);
  Result<bool> skip(std::string_view key);

  void add_core_row(const JsonValue& value);
  void add_dispatch_row(const JsonValue& value);
  void add_old_task(const JsonValue& value);
  void add_fanout(uint64_t producer, const JsonValue& fanout);
  void add_phase(const JsonValue& value, uint32_t thread, std::vector<SwimlanePhase>& phases);
  void add_metadata(const JsonValue& value);
  void add_core_types(const JsonValue& value);
  void add_orchestrator_run(const JsonValue& value);
  bool count_bad(const NumberRow& row, size_t least_count);
  void count_drops(std::string_view key, const JsonValue& value);

  Result<void> choose_generation();
  void report();
  void count(Severity severity, std::string_view code, std::string_view text, uint64_t number = 1) {
    if (number > 0) builder_.count_finding(severity, code, text, kNoIndex, number);
  }

  std::string name_;
  JsonWalk walk_;
  TraceBuilder& builder_;
  SwimlaneRecords records_;
  std::vector<SwimlaneTask> old_tasks_;
  std::string level_key_;                // empty: there is none
  bool has_old_tasks_ = false;           // the list, empty or not
  std::optional<std::string> clock_hz_;  // as it stands in the file
  std::string skipped_keys_;
  uint64_t skipped_count_ = 0;
};

Result<bool> RecordsReader::skip(std::string_view key) {
  constexpr uint64_t kMostNamed = 8;
  if (++skipped_count_ <= kMostNamed) {
    skipped_keys_ += fmt::format("{}{:.40}", skipped_count_ == 1 ? "" : ", ", key);
  }
  return walk_.skip();
}

// A list that is null or {} is an empty one; anything else that is no list is counted.
template <typename Add>
Result<bool> RecordsReader::read_list(Add add) {
  if (GAPLESS_TRY(walk_.peek()) == '[') {
    return walk_.elements([&]() -> Result<bool> {
      JsonValue value;
      if (!GAPLESS_TRY(walk_.value(value))) return false;
      if (value.is_present()) add(value);
      return true;
    });
  }
  JsonValue value;
  if (!GAPLESS_TRY(walk_.value(value))) return false;
  const bool is_empty = value.text == "null" || value.text == "{}";
  if (!is_empty) count(Severity::kWarning, "not-a-list", "lists of the file are something else");
  return true;
}

// One list a thread.
Result<bool> RecordsReader::read_phases(std::vector<SwimlanePhase>& phases) {
  if (GAPLESS_TRY(walk_.peek()) != '[') return read_list([](const JsonValue&) {});
  uint32_t thread = 0;
  return walk_.elements([&]() -> Result<bool> {
    const uint32_t number = thread++;
    return read_list([&](const JsonValue& value) { add_phase(value, number, phases); });
  });
}

// The newest files wrap the dispatch rows: {"schema_version": 1, "producer": ..., "records":
// [...]}.
Result<bool> RecordsReader::read_scheduler_tasks() {
  const auto add_row = [this](const JsonValue& value) { add_dispatch_row(value); };
  if (GAPLESS_TRY(walk_.peek()) != '{') return read_list(add_row);
  return walk_.members([&](std::string_view key) -> Result<bool> {
    if (key == "records") return read_list(add_row);
    return walk_.skip();
  });
}

Result<bool> RecordsReader::read_member(std::string_view key) {
  if (key == "aicore_tasks") {
    return read_list([this](const JsonValue& value) { add_core_row(value); });
  }
  if (key == "aicpu_tasks") {
    return read_list([this](const JsonValue& value) { add_dispatch_row(value); });
  }
  if (key == "scheduler_tasks") return read_scheduler_tasks();
  if (key == "aicpu_scheduler_phases") return read_phases(records_.scheduler_phases);
  if (key == "aicpu_orchestrator_phases") return read_phases(records_.orchestrator_phases);
  if (key == "tasks") {
    has_old_tasks_ = true;
    return read_list([this](const JsonValue& value) { add_old_task(value); });
  }
  return read_value(key);
}

Result<bool> RecordsReader::read_value(std::string_view key) {
  const bool is_level = key == "chip_swimlane_level" || key == "l2_swimlane_level";
  const bool is_known = is_level || key == "metadata" || key == "version" ||
                        key == "core_to_thread" || key == "aicpu_orchestrator" ||
                        key.find("dropped") != std::string_view::npos;
  if (!is_known) return skip(key);
  const std::string name(key);
  JsonValue value;
  if (!GAPLESS_TRY(walk_.value(value))) return false;
  if (is_level) {
    level_key_ = name;
    records_.level = json_integer(value).value_or(0);
  } else if (name == "metadata") {
    add_metadata(value);
  } else if (name == "aicpu_orchestrator") {
    add_orchestrator_run(value);
  } else {
    count_drops(name, value);
  }
  return true;
}

bool RecordsReader::count_bad(const NumberRow& row, size_t least_count) {
  if (row.is_valid && row.count >= least_count) return false;
  if (row.is_valid) {
    count(Severity::kWarning, "too-few-numbers", "rows have too few numbers and were left out");
  } else {
    count(Severity::kWarning, "not-numbers",
          "rows hold something that is not a whole number of 64 bits and were left out");
  }
  return true;
}

void RecordsReader::add_core_row(const JsonValue& value) {
  constexpr size_t kLeast = 5;  // before receive_to_start was added
  NumberRow row = read_row(value);
  const std::array<uint64_t, NumberRow::kMost>& numbers = row.numbers;
  row.is_valid =
      row.is_valid && is_core(numbers[0]) && is_cycles(numbers[3]) && is_cycles(numbers[4]);
  if (count_bad(row, kLeast)) return;
  SwimlaneTask task;
  task.core = static_cast<uint32_t>(numbers[0]);
  task.token = numbers[1];
  task.register_id = numbers[2];
  task.start = recorded(numbers[3]);
  task.end = recorded(numbers[4]);
  if (task.start == kAbsent) {
    count(Severity::kWarning, "empty-records", "rows have no start and were left out");
    return;
  }
  if (row.count > kLeast && numbers[5] < numbers[3]) {
    task.receive = static_cast<int64_t>(numbers[3] - numbers[5]);
  } else if (row.count > kLeast) {
    count(Severity::kWarning, "receive-too-early",
          "rows were received before the clock began; their receive is left out");
  }
  records_.tasks.push_back(task);
}

void RecordsReader::add_dispatch_row(const JsonValue& value) {
  constexpr size_t kLeast = 4;
  NumberRow row = read_row(value);
  const std::array<uint64_t, NumberRow::kMost>& numbers = row.numbers;
  row.is_valid =
      row.is_valid && is_core(numbers[0]) && is_cycles(numbers[2]) && is_cycles(numbers[3]);
  if (count_bad(row, kLeast)) return;
  records_.dispatches.push_back({.register_id = numbers[1],
                                 .dispatch = recorded(numbers[2]),
                                 .finish = recorded(numbers[3]),
                                 .core = static_cast<uint32_t>(numbers[0])});
}

void RecordsReader::add_fanout(uint64_t producer, const JsonValue& fanout) {
  if (fanout.kind != JsonKind::kArray) return;
  for_each_element(fanout.text, [&](const JsonValue& element) {
    if (const std::optional<uint64_t> consumer = json_unsigned(element)) {
      records_.edges.push_back({.producer = producer, .consumer = *consumer});
    } else {
      count(Severity::kWarning, "bad-edges", "edges do not name two tasks and were left out");
    }
  });
}

// The oldest generation: microseconds from the first time, so that 0 is one of them; where nothing
// was recorded, dispatch and finish are both 0 or negative.
void RecordsReader::add_old_task(const JsonValue& value) {
  const OldTask old = read_old_task(value);
  SwimlaneTask task = old.task;
  if (!old.token || !old.core || !is_core(*old.core) || task.start == kAbsent) {
    count(Severity::kWarning, "incomplete-tasks",
          "tasks lack a usable task_id, core_id or start_time_us and were left out");
    return;
  }
  task.token = *old.token;
  task.core = static_cast<uint32_t>(*old.core);
  if (old.ring && *old.ring != task.token >> 32) {
    count(Severity::kWarning, "other-ring",
          "tasks name a ring that is not in their task_id: tasks of several rings may be taken for "
          "one");
  }
  const bool has_dispatch = task.dispatch >= 0 && task.finish > 0;
  if (!has_dispatch) task.dispatch = task.finish = kAbsent;
  const auto known = records_.core_types.try_emplace(task.core, old.core_type).first;
  if (known->second != old.core_type) {
    count(Severity::kWarning, "core-type-changes",
          "tasks name another type for their core than the first task on it");
  }
  add_fanout(task.token, old.fanout);
  old_tasks_.push_back(task);
}

void RecordsReader::add_phase(const JsonValue& value, uint32_t thread,
                              std::vector<SwimlanePhase>& phases) {
  SwimlanePhase phase;
  phase.thread = thread;
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    const std::string_view name = key.text;
    const bool is_in_cycles = name.ends_with("_cycles");
    if (name == "start_cycles" || name == "start_time_us") {
      phase.begin = time_of(member, is_in_cycles);
      phase.is_in_cycles = is_in_cycles;
    } else if (name == "end_cycles" || name == "end_time_us") {
      phase.end = time_of(member, is_in_cycles);
    } else if ((name == "kind" || name == "phase") && member.kind == JsonKind::kString) {
      phase.name = builder_.intern(json_text(member));
    } else if (name == "task_id") {
      const std::optional<uint64_t> token = json_unsigned(member);
      phase.has_token = token.has_value();
      phase.token = token.value_or(0);
    } else if (name == "tasks_processed" || name == "submit_idx") {
      const std::optional<uint64_t> number = json_unsigned(member);
      if (number && *number < kNoValue) phase.value = static_cast<uint32_t>(*number);
    }
  });
  if (phase.begin == kAbsent || phase.end == kAbsent) {
    count(Severity::kWarning, "incomplete-phases",
          "phases of schedulers or orchestrators lack their times and were left out");
    return;
  }
  phases.push_back(phase);
}

// The oldest generation sums up its orchestrator: one phase, from its start to its end.
void RecordsReader::add_orchestrator_run(const JsonValue& value) {
  const size_t before = records_.orchestrator_phases.size();
  add_phase(value, 0, records_.orchestrator_phases);
  if (records_.orchestrator_phases.size() == before) return;
  SwimlanePhase& run = records_.orchestrator_phases.back();
  run.name = builder_.intern("orchestrate");
  run.value = kNoValue;
  run.has_token = false;
}

void RecordsReader::add_core_types(const JsonValue& value) {
  uint32_t core = 0;
  if (value.kind != JsonKind::kArray) return;
  for_each_element(value.text, [&](const JsonValue& element) {
    records_.core_types[core++] = core_type_of(element.text);
  });
}

void RecordsReader::add_metadata(const JsonValue& value) {
  std::optional<uint64_t> core_count;
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    const std::string_view name = key.text;
    if (name == "clock_freq_hz") {
      clock_hz_ = std::string(member.text.substr(0, 40));
      records_.ticks_per_second = json_unsigned(member).value_or(0);
    } else if (name == "core_types") {
      add_core_types(member);
    } else if (name == "num_cores") {
      core_count = json_unsigned(member);
    } else {
      count_drops(json_text(key), member);
    }
  });
  if (core_count && *core_count != records_.core_types.size()) {
    builder_.add_finding({Severity::kWarning, "core-count",
                          fmt::format("metadata has num_cores {} and {} core_types; cores are "
                                      "those of core_types",
                                      *core_count, records_.core_types.size()),
                          kNoIndex, 1});
  }
}

// Writers that count what they had to drop say so in different places, by this word.
void RecordsReader::count_drops(std::string_view key, const JsonValue& value) {
  if (key.find("dropped") != std::string_view::npos) {
    const std::optional<uint64_t> number = json_unsigned(value);
    if (!number || *number == 0) return;
    builder_.add_finding(
        {Severity::kWarning, "dropped-records",
         fmt::format("{:.60} is {}: so many records were dropped while recording", key, *number),
         kNoIndex, *number});
    return;
  }
  for_each_field(value, [&](const JsonValue& inner, const JsonValue& member) {
    if (inner.text.find("dropped") == std::string_view::npos) return;
    count_drops(fmt::format("{:.40}.{}", key, inner.text), member);
  });
}

// Which of the two kinds of rows the file is about.
Result<void> RecordsReader::choose_generation() {
  records_.is_in_cycles =
      !level_key_.empty() || !records_.tasks.empty() || !records_.dispatches.empty();
  const std::string stop = walk_.stop();
  if (!records_.is_in_cycles && !has_old_tasks_) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no swimlane file: it has neither chip_swimlane_level, nor l2_swimlane_level, "
                "nor tasks{}{}",
                name_, stop.empty() ? "" : "; it is ", stop);
  }
  if (!records_.is_in_cycles) {
    records_.tasks = std::move(old_tasks_);
    records_.ticks_per_second = 1'000'000'000;
    return {};
  }
  count(Severity::kWarning, "mixed-generations",
        "tasks of the oldest generation stand beside rows of cycles and were left out",
        old_tasks_.size());
  records_.edges.clear();
  if (!clock_hz_) {
    return fail(ErrorCode::kInvalidInput,
                "{}: metadata.clock_freq_hz is missing, so that cycles are no times{}{}", name_,
                stop.empty() ? "" : "; the file is ", stop);
  }
  constexpr uint64_t kMostHz = 1'000'000'000'000;
  if (records_.ticks_per_second == 0 || records_.ticks_per_second > kMostHz) {
    return fail(ErrorCode::kInvalidInput,
                "{}: metadata.clock_freq_hz is {}; it must be from 1 to {}", name_, *clock_hz_,
                kMostHz);
  }
  return {};
}

void RecordsReader::report() {
  if (const std::string stop = walk_.stop(); !stop.empty()) {
    const bool is_cut = walk_.status() == JsonStatus::kNeedMore;
    builder_.add_finding(
        {Severity::kWarning, is_cut ? "cut-short" : "damaged",
         fmt::format("the file is {}; {} runs, {} dispatches and {} phases before that are here",
                     stop, records_.tasks.size(), records_.dispatches.size(),
                     records_.scheduler_phases.size() + records_.orchestrator_phases.size()),
         kNoIndex, 1});
  }
  count(Severity::kWarning, "too-large", "values are too large to read and were left out",
        walk_.too_large_count());
  if (skipped_count_ > 0) {
    builder_.add_finding(
        {Severity::kInfo, "keys-not-read",
         fmt::format("{} parts of the file have no place in a trace: {}{}", skipped_count_,
                     skipped_keys_, skipped_count_ > 8 ? ", ..." : ""),
         kNoIndex, skipped_count_});
  }
  const auto is_of_other_clock = [this](const SwimlanePhase& phase) {
    return phase.is_in_cycles != records_.is_in_cycles;
  };
  const uint64_t other_count = std::erase_if(records_.scheduler_phases, is_of_other_clock) +
                               std::erase_if(records_.orchestrator_phases, is_of_other_clock);
  count(Severity::kWarning, "other-clock",
        "phases are in another unit than the tasks and were left out", other_count);
  const bool is_known_level = records_.level >= 1 && records_.level <= 4;
  if (records_.is_in_cycles && !is_known_level) {
    builder_.add_finding(
        {Severity::kWarning, "unknown-level",
         fmt::format("{} is {}; levels 1 to 4 are known, and what is there was read",
                     level_key_.empty() ? "the level" : level_key_, records_.level),
         kNoIndex, 1});
    records_.level = 0;
  }
}

Result<SwimlaneRecords> RecordsReader::read() {
  const char first = GAPLESS_TRY(walk_.begin());
  if (first != '{') {
    return fail(ErrorCode::kInvalidInput, "{}: no swimlane file: it does not begin with an object",
                name_);
  }
  const bool is_whole = GAPLESS_TRY(
      walk_.members([this](std::string_view key) -> Result<bool> { return read_member(key); }));
  GAPLESS_TRY(choose_generation());
  report();
  if (is_whole) {
    if (const std::optional<uint64_t> offset = GAPLESS_TRY(walk_.trailing_offset())) {
      builder_.add_finding(
          {Severity::kWarning, "trailing-bytes",
           fmt::format("there is more after the end of the JSON at byte {}; not read", *offset),
           kNoIndex, 1});
    }
  }
  const std::string_view generation =
      !records_.is_in_cycles ? "tasks in microseconds" : std::string_view(level_key_);
  builder_.trace().properties.push_back({"swimlane.generation", std::string(generation)});
  if (records_.level > 0) {
    builder_.trace().properties.push_back({"swimlane.level", std::to_string(records_.level)});
  }
  if (records_.is_in_cycles) {
    builder_.trace().properties.push_back(
        {"swimlane.clock_freq_hz", std::to_string(records_.ticks_per_second)});
  }
  return std::move(records_);
}

}  // namespace

Result<SwimlaneRecords> read_swimlane_records(InputStream& input, const Progress& progress,
                                              TraceBuilder& builder) {
  return RecordsReader(input, progress, builder).read();
}

}  // namespace gapless
