// SPDX-License-Identifier: Apache-2.0

#include "formats/chrome_json_builder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "base/json_text.h"
#include "formats/chrome_json.h"

namespace gapless {
namespace {

constexpr size_t kCachedNames = 4096;

struct LossText {
  Severity severity;
  std::string_view code;
  std::string_view text;
};

constexpr LossText kLossTexts[kChromeLossCount] = {
    {Severity::kWarning, "not-an-event", "entries of the list of events are not objects; left out"},
    {Severity::kWarning, "no-phase", "events do not say their phase (\"ph\"); left out"},
    {Severity::kWarning, "no-time", "events have no time (\"ts\"); left out"},
    {Severity::kWarning, "bad-number",
     "events have a time or duration that is not a number or too large; left out"},
    {Severity::kWarning, "no-duration", "complete events have no \"dur\"; shown with no length"},
    {Severity::kWarning, "no-name", "events have no name; called \"(no name)\""},
    {Severity::kWarning, "no-id", "flow or async events have no id; left out"},
    {Severity::kWarning, "bad-series", "counter series are not numbers; left out"},
    {Severity::kWarning, "bad-args", "events have arguments that are not an object; left out"},
    {Severity::kWarning, "args-too-deep",
     "events have arguments that nest too deeply; kept without them"},
    {Severity::kWarning, "event-too-large", "events are larger than 64 MiB; left out"},
    {Severity::kWarning, "edge-without-task", "edges name a task that is not there; left out"},
    {Severity::kInfo, "other-metadata",
     "metadata events tell what a trace does not hold; left out"},
    {Severity::kInfo, "point-details",
     "instants, counters or flows have a category or arguments, which a trace holds for spans "
     "only"},
    {Severity::kInfo, "other-fields",
     "events have fields that a trace does not hold (such as \"tts\" or \"cname\"); kept without "
     "them"},
    {Severity::kInfo, "other-keys",
     "keys beside the events are too large to be kept as properties"},
};

// The number in `{"value":N` and where it ends; 0 when the text does not begin so.
size_t leading_value(std::string_view args, uint32_t& value) {
  constexpr std::string_view kPrefix = "{\"value\":";
  if (!args.starts_with(kPrefix)) return 0;
  const char* begin = args.data() + kPrefix.size();
  const char* end = args.data() + args.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  const bool is_canonical = error == std::errc() && (*begin != '0' || stop == begin + 1);
  if (!is_canonical || value == kNoValue || stop == end) return 0;
  if (*stop != ',' && *stop != '}') return 0;
  return static_cast<size_t>(stop - args.data());
}

bool is_empty_object(std::string_view text) {
  return text.find_first_not_of(" \t\r\n", 1) == text.size() - 1;
}

std::optional<uint64_t> unsigned_number(const JsonValue& value) {
  uint64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (error != std::errc() || stop != end || value.text.empty()) return std::nullopt;
  return number;
}

JsonValue member(const JsonValue& object, std::string_view wanted) {
  JsonValue found;
  if (object.kind != JsonKind::kObject) return found;
  for_each_member(object.text, [&](const JsonValue& key, const JsonValue& value) {
    if (key.text == wanted) found = value;
  });
  return found;
}

}  // namespace

ChromeTraceBuilder::ChromeTraceBuilder()
    : builder_("chrome-json"), tracks_(builder_), names_(kCachedNames) {}

// Names repeat: a look at the cache saves the copy and the lookup that interning costs.
uint32_t ChromeTraceBuilder::intern(const JsonValue& text) {
  CachedName& cached = names_[hash_text(text.text) % kCachedNames];
  if (cached.id != kNoIndex && cached.raw == text.text) return cached.id;
  cached.raw = text.text;
  cached.id = builder_.intern(text.has_escapes ? std::string_view(chrome_text(text)) : text.text);
  return cached.id;
}

uint32_t ChromeTraceBuilder::name_of(const ChromeEvent& event) {
  if (event.name.is_present()) return intern(event.name);
  count(ChromeLoss::kMissingName);
  return builder_.intern("(no name)");
}

uint32_t ChromeTraceBuilder::intern_args(std::string_view text, bool is_lenient) {
  if (!is_lenient) return builder_.intern(text);
  // A control character is white space outside of strings and not allowed inside.
  args_ = text;
  std::replace_if(
      args_.begin(), args_.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return builder_.intern(args_);
}

ChromeDetails ChromeTraceBuilder::details_of(const ChromeEvent& event) {
  ChromeDetails details;
  if (event.name.is_present()) details.name = intern(event.name);
  if (event.category.is_present()) details.category = intern(event.category);
  const JsonValue& args = event.args;
  if (!args.is_present()) return details;
  if (args.kind != JsonKind::kObject) {
    count(ChromeLoss::kBadArgs);
  } else if (args.is_too_deep) {
    count(ChromeLoss::kTooDeep);
  } else if (const size_t end = leading_value(args.text, details.value); end != 0) {
    if (args.text[end] == '}') return details;
    details.args = intern_args("{" + std::string(args.text.substr(end + 1)), args.is_lenient);
  } else {
    details.value = kNoValue;
    if (!is_empty_object(args.text)) details.args = intern_args(args.text, args.is_lenient);
  }
  return details;
}

bool ChromeTraceBuilder::time_of(const ChromeEvent& event, int64_t& time_ns) {
  if (!event.time.is_present()) {
    count(ChromeLoss::kNoTime);
    return false;
  }
  const std::optional<int64_t> parsed = chrome_time_ns(event.time);
  if (!parsed) {
    count(ChromeLoss::kBadNumber);
    return false;
  }
  time_ns = *parsed;
  return true;
}

void ChromeTraceBuilder::add_event(const ChromeEvent& event) {
  if (!event.is_object) return count(ChromeLoss::kNotAnEvent);
  if (event.field_count == 0) return;  // some writers end their list with {}
  ++event_count_;
  if (event.other_count > 0) count(ChromeLoss::kOtherFields);
  if (event.phase.text.empty()) return count(ChromeLoss::kNoPhase);
  const char phase = event.phase.text.size() == 1 ? event.phase.text[0] : '?';
  constexpr std::string_view kTimed = "XBEiIRCstfbneSTpF";
  if (phase == 'M') return add_metadata(event);
  if (kTimed.find(phase) != std::string_view::npos) return add_timed(event, phase);
  ++unknown_phases_[static_cast<unsigned char>(phase)];
}

void ChromeTraceBuilder::add_timed(const ChromeEvent& event, char phase) {
  int64_t time_ns = 0;
  if (!time_of(event, time_ns)) return;
  switch (phase) {
    case 'X':
      return add_complete(event, time_ns);
    case 'B': {
      ChromeDetails details = details_of(event);
      if (details.name == kNoIndex) details.name = name_of(event);
      return pairs_.add_begin(tracks_.lane(event.process, event.thread), time_ns, details);
    }
    case 'E':
      return pairs_.add_end(tracks_.lane(event.process, event.thread), time_ns, details_of(event));
    case 'i':
    case 'I':
    case 'R':
      return add_instant(event, tracks_.lane(event.process, event.thread), time_ns);
    case 'C':
      return add_counter(event, time_ns);
    case 's':
    case 't':
    case 'f':
      return add_flow(event, phase, time_ns);
    default:
      return add_async(event, phase, time_ns);
  }
}

void ChromeTraceBuilder::add_complete(const ChromeEvent& event, int64_t time_ns) {
  std::optional<int64_t> duration_ns = 0;
  if (event.duration.is_present()) {
    duration_ns = chrome_time_ns(event.duration);
  } else {
    count(ChromeLoss::kNoDuration);
  }
  if (!duration_ns) return count(ChromeLoss::kBadNumber);
  const int64_t end_ns = time_ns + *duration_ns;
  if (is_ours_ && event.category.text == kChromeTaskCategory &&
      event.args.text.starts_with("{\"task\":")) {
    return add_task(event, time_ns, end_ns);
  }
  const uint32_t lane = tracks_.lane(event.process, event.thread);
  ChromeDetails details = details_of(event);
  if (details.name == kNoIndex) details.name = name_of(event);
  const uint32_t span = builder_.add_span(lane, time_ns, end_ns, details.name, details.value);
  set_details(builder_, span, details);
  const std::string_view category = event.category.text;
  if (category == "kernel" || category.starts_with("gpu_mem")) tracks_.mark_stream(lane);
}

// A slice that was a task when we wrote it. Its other times are arguments.
void ChromeTraceBuilder::add_task(const ChromeEvent& event, int64_t begin_ns, int64_t end_ns) {
  TaskColumns& tasks = builder_.trace().tasks;
  tasks.id.push_back(0);
  tasks.lane.push_back(tracks_.lane(event.process, event.thread));
  tasks.kernel.push_back(event.name.text == kChromeUnknownKernel ? kNoIndex : name_of(event));
  for (std::vector<int64_t>& times : tasks.time_ns) times.push_back(kAbsent);
  tasks.time_ns[static_cast<size_t>(TaskTime::kStart)].back() = begin_ns;
  tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)].back() = end_ns;
  for_each_member(event.args.text, [&](const JsonValue& key, const JsonValue& value) {
    if (key.text == "task") tasks.id.back() = unsigned_number(value).value_or(0);
    for (int time = 0; time < kTaskTimeCount; ++time) {
      if (key.text != task_time_name(static_cast<TaskTime>(time))) continue;
      const std::optional<int64_t> time_ns = chrome_time_ns(value);
      if (!time_ns) return count(ChromeLoss::kBadNumber);
      tasks.time_ns[static_cast<size_t>(time)].back() = *time_ns;
    }
  });
}

void ChromeTraceBuilder::add_instant(const ChromeEvent& event, uint32_t lane, int64_t time_ns) {
  uint32_t value = kNoValue;
  const size_t end = leading_value(event.args.text, value);
  if (end == 0) value = kNoValue;
  const bool has_args = event.args.kind == JsonKind::kObject && !is_empty_object(event.args.text);
  const bool is_kept = !has_args || (end != 0 && event.args.text[end] == '}');
  if (!is_kept || event.category.is_present()) count(ChromeLoss::kPointDetails);
  builder_.instant(lane, time_ns, name_of(event), value);
}

void ChromeTraceBuilder::add_counter(const ChromeEvent& event, int64_t time_ns) {
  if (event.args.kind != JsonKind::kObject) return count(ChromeLoss::kBadSeries);
  if (event.category.is_present()) count(ChromeLoss::kPointDetails);
  const uint32_t lane = tracks_.lane(event.process, event.thread);
  uint32_t name = name_of(event);
  // Counters of one name with several ids are several counters; our own id repeats the thread.
  if (event.id.is_present() && event.id.text != event.thread.text) {
    name =
        builder_.intern(fmt::format("{}[{}]", builder_.trace().names[name], chrome_text(event.id)));
  }
  size_t series_count = 0;
  for_each_member(event.args.text, [&](const JsonValue&, const JsonValue&) { ++series_count; });
  if (series_count == 0) count(ChromeLoss::kBadSeries);
  for_each_member(event.args.text, [&](const JsonValue& key, const JsonValue& value) {
    const std::optional<double> number = chrome_number(value);
    if (!number) return count(ChromeLoss::kBadSeries);
    const bool is_plain = series_count == 1 && (key.text == "value" || key.text == event.name.text);
    const uint32_t series =
        is_plain
            ? name
            : builder_.intern(fmt::format("{}.{}", builder_.trace().names[name], chrome_text(key)));
    builder_.counter(lane, time_ns, series, *number);
  });
}

void ChromeTraceBuilder::add_flow(const ChromeEvent& event, char phase, int64_t time_ns) {
  if (is_ours_ && event.category.text == kChromeEdgeCategory) {
    if (phase == 's') add_edge(event);
    return;
  }
  if (!event.id.is_present()) return count(ChromeLoss::kNoId);
  // Ids are apart by category. Those of the first category stay as they are.
  const uint32_t category = event.category.is_present() ? intern(event.category) : kNoIndex;
  if (!has_flow_category_) flow_category_ = category;
  has_flow_category_ = true;
  uint64_t id = chrome_id(event.id);
  if (category != flow_category_) {
    id = (id ^ hash_text(event.category.text)) * 0x9e3779b97f4a7c15;
    id ^= id >> 32;
  }
  if (is_ours_) {
    const std::optional<int64_t> later_ns = chrome_integer(member(event.args, "later_ns"));
    if (later_ns && __builtin_add_overflow(time_ns, *later_ns, &time_ns)) {
      return count(ChromeLoss::kBadNumber);
    }
  } else if (event.args.is_present()) {
    count(ChromeLoss::kPointDetails);
  }
  const uint32_t lane = tracks_.lane(event.process, event.thread);
  const FlowPhase flow_phase = phase == 's'   ? FlowPhase::kOut
                               : phase == 't' ? FlowPhase::kStep
                                              : FlowPhase::kIn;
  if (phase == 'f' && event.binding.text != "e") {
    next_bindings_.push_back({static_cast<uint32_t>(builder_.trace().flows.size()), lane, time_ns});
  }
  builder_.flow(lane, time_ns, id, flow_phase);
}

void ChromeTraceBuilder::add_edge(const ChromeEvent& event) {
  const std::optional<uint64_t> producer = unsigned_number(member(event.args, "producer"));
  const std::optional<uint64_t> consumer = unsigned_number(member(event.args, "consumer"));
  const std::optional<uint64_t> kind = unsigned_number(member(event.args, "kind"));
  if (!producer || !consumer || !kind) return count(ChromeLoss::kBadEdge);
  edges_.push_back({*producer, *consumer, *kind});
}

void ChromeTraceBuilder::add_async(const ChromeEvent& event, char phase, int64_t time_ns) {
  JsonValue id = event.id;
  if (event.id2.kind == JsonKind::kObject) {
    for_each_member(event.id2.text,
                    [&id](const JsonValue&, const JsonValue& value) { id = value; });
  }
  const uint32_t lane = tracks_.async_lane(event.process, event.category, event.scope);
  if (phase == 'n' || phase == 'T' || phase == 'p') return add_instant(event, lane, time_ns);
  if (!id.is_present()) return count(ChromeLoss::kNoId);
  ChromeDetails details = details_of(event);
  if (phase == 'e' || phase == 'F') {
    return pairs_.add_async_end(lane, time_ns, chrome_id(id), details);
  }
  if (details.name == kNoIndex) details.name = name_of(event);
  pairs_.add_async_begin(lane, time_ns, chrome_id(id), details);
}

void ChromeTraceBuilder::add_metadata(const ChromeEvent& event) {
  const std::string_view what = event.name.text;
  const JsonValue name = member(event.args, "name");
  if (what == "process_name" && name.is_present()) {
    builder_.trace().devices[tracks_.device(event.process)].name = chrome_text(name);
    return add_device_details(event, member(event.args, "gapless"));
  }
  if (what == "thread_name" && name.is_present()) {
    const JsonValue details = member(event.args, "gapless");
    const JsonValue main_thread = member(details, "main");
    if (main_thread.is_present()) return tracks_.join(event.process, event.thread, main_thread);
    builder_.trace().lanes[tracks_.lane(event.process, event.thread)].name = chrome_text(name);
    return add_lane_details(event, details);
  }
  const std::optional<int64_t> index = chrome_integer(member(event.args, "sort_index"));
  if (what == "process_sort_index" && index) {
    return tracks_.set_device_order(tracks_.device(event.process), *index);
  }
  if (what == "thread_sort_index" && index) {
    return tracks_.set_lane_order(tracks_.lane(event.process, event.thread), *index);
  }
  const JsonValue labels = member(event.args, "labels");
  if (what == "process_labels" && labels.is_present()) {
    tracks_.device(event.process);
    return add_property(fmt::format("process_labels.{}", chrome_text(event.process)), labels);
  }
  count(ChromeLoss::kOtherMetadata);
}

void ChromeTraceBuilder::add_device_details(const ChromeEvent& event, const JsonValue& details) {
  const std::optional<int64_t> number = chrome_integer(member(details, "number"));
  if (number) builder_.trace().devices[tracks_.device(event.process)].number = *number;
}

void ChromeTraceBuilder::add_lane_details(const ChromeEvent& event, const JsonValue& details) {
  if (details.kind != JsonKind::kObject) return;
  const uint32_t index = tracks_.lane(event.process, event.thread);
  Lane& lane = builder_.trace().lanes[index];
  for_each_member(details.text, [&](const JsonValue& key, const JsonValue& value) {
    const std::optional<int64_t> number = chrome_integer(value);
    if (!number) return;
    if (key.text == "number") lane.number = *number;
    if (key.text == "dropped") lane.dropped_count = static_cast<uint64_t>(*number);
    if (key.text == "kind" && *number >= 0 && *number < kLaneKindCount) {
      tracks_.set_kind(index, static_cast<LaneKind>(*number));
    }
    if (key.text == "meaning" && *number == static_cast<int>(SpanMeaning::kDispatchToFinish)) {
      lane.meaning = SpanMeaning::kDispatchToFinish;
    }
  });
}

void ChromeTraceBuilder::add_property(std::string_view key, const JsonValue& value) {
  if (!value.is_present()) return;
  TraceClock& clock = builder_.trace().clock;
  const std::optional<int64_t> number = chrome_integer(value);
  if (number && key == kChromeOriginKey) {
    is_ours_ = true;
    origin_ns_ = *number;
    return;
  }
  if (number && key == kChromeWallKey) {
    clock.wall_minus_time_ns = *number;
    return;
  }
  // Kineto counts its times from here.
  if (number && !is_ours_ && key == "baseTimeNanoseconds") clock.wall_minus_time_ns = *number;
  constexpr size_t kLargestProperty = 64 * 1024;
  if (value.text.size() > kLargestProperty) return count(ChromeLoss::kOtherKey);
  std::vector<Property>& properties = builder_.trace().properties;
  const auto same = [key](const Property& property) { return property.key == key; };
  const auto found = std::find_if(properties.begin(), properties.end(), same);
  if (found != properties.end()) {
    found->value = chrome_text(value);
  } else {
    properties.push_back({std::string(key), chrome_text(value)});
  }
}

void ChromeTraceBuilder::add_other_data(std::string_view object) {
  for_each_member(object, [this](const JsonValue& key, const JsonValue& value) {
    add_property(chrome_text(key), value);
  });
}

void ChromeTraceBuilder::finish_edges() {
  EdgeColumns& edges = builder_.trace().edges;
  const size_t task_count = builder_.trace().tasks.size();
  for (const NumberedEdge& edge : edges_) {
    if (edge.producer >= task_count || edge.consumer >= task_count || edge.kind > 255) {
      count(ChromeLoss::kBadEdge);
      continue;
    }
    edges.producer.push_back(static_cast<uint32_t>(edge.producer));
    edges.consumer.push_back(static_cast<uint32_t>(edge.consumer));
    edges.kind.push_back(static_cast<uint8_t>(edge.kind));
  }
}

// An arrow that does not say "bp":"e" ends at the next span of its lane, not at the one around it.
void ChromeTraceBuilder::bind_to_next_spans() {
  if (next_bindings_.empty()) return;
  const SpanColumns& spans = builder_.trace().spans;
  std::unordered_map<uint32_t, std::vector<uint32_t>> rows_of;  // lane -> its spans by begin
  for (const NextBinding& binding : next_bindings_) rows_of[binding.lane];
  for (uint32_t span = 0; span < spans.size(); ++span) {
    const auto rows = rows_of.find(spans.lane[span]);
    if (rows != rows_of.end()) rows->second.push_back(span);
  }
  for (auto& [lane, rows] : rows_of) {
    std::stable_sort(rows.begin(), rows.end(), [&spans](uint32_t a, uint32_t b) {
      return spans.begin_ns[a] < spans.begin_ns[b];
    });
  }
  for (const NextBinding& binding : next_bindings_) {
    const std::vector<uint32_t>& rows = rows_of[binding.lane];
    const auto next = std::partition_point(rows.begin(), rows.end(), [&](uint32_t span) {
      return spans.begin_ns[span] < binding.time_ns;
    });
    if (next != rows.end()) builder_.trace().flows.span[binding.flow] = *next;
  }
}

void ChromeTraceBuilder::finish_losses() {
  for (size_t loss = 0; loss < kChromeLossCount; ++loss) {
    if (losses_[loss] == 0) continue;
    const LossText& text = kLossTexts[loss];
    builder_.count_finding(text.severity, text.code, text.text, kNoIndex, losses_[loss]);
  }
  for (size_t phase = 0; phase < unknown_phases_.size(); ++phase) {
    const uint64_t phase_count = unknown_phases_[phase];
    if (phase_count == 0) continue;
    std::string name;
    append_json_escaped(name, std::string(1, static_cast<char>(phase)));
    std::string text = fmt::format(
        "{} events of phase \"{}\", which a trace has no place for; left out", phase_count, name);
    builder_.add_finding(
        {Severity::kWarning, "unknown-phase", std::move(text), kNoIndex, phase_count});
  }
}

// The times in a file of ours start at 0; the origin brings them back.
void ChromeTraceBuilder::shift_times(Trace& trace) {
  if (origin_ns_ == 0) return;
  const TimeRange range = time_range(trace);
  int64_t unused = 0;
  if (__builtin_add_overflow(range.begin_ns, origin_ns_, &unused) ||
      __builtin_add_overflow(range.end_ns, origin_ns_, &unused)) {
    trace.findings.push_back(
        {Severity::kWarning, "bad-origin",
         fmt::format("the origin {} ns is too large; times start at 0", origin_ns_), kNoIndex, 1});
    return;
  }
  const auto shift = [this](std::vector<int64_t>& times) {
    for (int64_t& time : times) {
      if (time != kAbsent) time += origin_ns_;
    }
  };
  shift(trace.spans.begin_ns);
  shift(trace.spans.end_ns);
  for (std::vector<int64_t>& times : trace.tasks.time_ns) shift(times);
  shift(trace.counters.time_ns);
  shift(trace.instants.time_ns);
  shift(trace.flows.time_ns);
}

Trace ChromeTraceBuilder::finish() {
  pairs_.finish(builder_);
  tracks_.settle_kinds();
  finish_edges();
  bind_to_next_spans();
  finish_losses();
  Trace trace = builder_.finish();
  if (!is_ours_) tracks_.put_in_order(trace);
  shift_times(trace);
  return trace;
}

}  // namespace gapless
