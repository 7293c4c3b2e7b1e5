// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_deps.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "formats/json_walk.h"

namespace gapless {
namespace {

void report_stop(const JsonWalk& walk, const std::string& name, TraceBuilder& builder) {
  const std::string stop = walk.stop();
  if (stop.empty()) return;
  const bool is_cut = walk.status() == JsonStatus::kNeedMore;
  builder.add_finding({Severity::kWarning, is_cut ? "cut-short" : "damaged",
                       fmt::format("{} is {}; what lies before that was used", name, stop),
                       kNoIndex, 1});
}

void report_no_object(const std::string& name, TraceBuilder& builder) {
  builder.add_finding({Severity::kWarning, "damaged",
                       fmt::format("{} does not begin with a JSON object and was not used", name),
                       kNoIndex, 1});
}

class DepsReader {
 public:
  DepsReader(InputStream& input, TraceBuilder& builder)
      : name_(input.name()), walk_(input, Progress{}), builder_(builder) {}

  Result<SwimlaneGraph> read();

 private:
  template <typename Add>
  Result<bool> read_list(Add add);
  void add_task(const JsonValue& value);
  void add_edge(const JsonValue& value);
  void sort_tasks();
  void count(Severity severity, std::string_view code, std::string_view text, uint64_t number = 1) {
    if (number > 0) builder_.count_finding(severity, code, text, kNoIndex, number);
  }

  std::string name_;
  JsonWalk walk_;
  TraceBuilder& builder_;
  SwimlaneGraph graph_;
};

template <typename Add>
Result<bool> DepsReader::read_list(Add add) {
  if (GAPLESS_TRY(walk_.peek()) != '[') return walk_.skip();
  return walk_.elements([&]() -> Result<bool> {
    JsonValue value;
    if (!GAPLESS_TRY(walk_.value(value))) return false;
    if (value.is_present()) add(value);
    return true;
  });
}

void DepsReader::add_task(const JsonValue& value) {
  SwimlaneGraphTask task;
  std::optional<uint64_t> token;
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    if (key.text == "task_id") token = json_unsigned(member);
    if (key.text == "block_num") task.block_count = json_unsigned(member).value_or(1);
    if (key.text != "kernel_ids" || member.kind != JsonKind::kArray) return;
    size_t slot = 0;
    for_each_element(member.text, [&](const JsonValue& element) {
      if (slot < task.kernels.size()) task.kernels[slot++] = json_integer(element).value_or(-1);
    });
  });
  if (!token) {
    count(Severity::kWarning, "bad-graph-tasks",
          "tasks of deps.json have no usable task_id and were left out");
    return;
  }
  task.token = *token;
  graph_.tasks.push_back(task);
}

// An edge whose flags do not hold "wait" only keeps memory alive.
void DepsReader::add_edge(const JsonValue& value) {
  std::optional<uint64_t> producer;
  std::optional<uint64_t> consumer;
  EdgeKind kind = EdgeKind::kData;
  bool is_waited_for = true;
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    if (key.text == "pred") producer = json_unsigned(member);
    if (key.text == "succ") consumer = json_unsigned(member);
    if (key.text == "source" && member.text == "explicit") kind = EdgeKind::kOrder;
    if (key.text != "flags" || member.kind != JsonKind::kArray) return;
    is_waited_for = false;
    for_each_element(member.text, [&](const JsonValue& element) {
      is_waited_for = is_waited_for || element.text == "wait";
    });
  });
  if (!producer || !consumer) {
    count(Severity::kWarning, "bad-edges", "edges do not name two tasks and were left out");
  } else if (!is_waited_for) {
    count(Severity::kInfo, "edges-without-wait",
          "edges of deps.json only keep memory alive and were left out");
  } else {
    graph_.edges.push_back({.producer = *producer, .consumer = *consumer, .kind = kind});
  }
}

void DepsReader::sort_tasks() {
  std::vector<SwimlaneGraphTask>& tasks = graph_.tasks;
  const auto is_before = [](const SwimlaneGraphTask& a, const SwimlaneGraphTask& b) {
    return a.token < b.token;
  };
  if (!std::is_sorted(tasks.begin(), tasks.end(), is_before)) {
    std::stable_sort(tasks.begin(), tasks.end(), is_before);
  }
  const auto last = std::unique(
      tasks.begin(), tasks.end(),
      [](const SwimlaneGraphTask& a, const SwimlaneGraphTask& b) { return a.token == b.token; });
  count(Severity::kWarning, "repeated-graph-tasks",
        "tasks come again in deps.json; the first of each was used",
        static_cast<uint64_t>(tasks.end() - last));
  tasks.erase(last, tasks.end());
}

Result<SwimlaneGraph> DepsReader::read() {
  if (GAPLESS_TRY(walk_.begin()) != '{') {
    report_no_object(name_, builder_);
    return std::move(graph_);
  }
  GAPLESS_TRY(walk_.members([this](std::string_view key) -> Result<bool> {
    if (key == "tasks") return read_list([this](const JsonValue& value) { add_task(value); });
    if (key == "edges") return read_list([this](const JsonValue& value) { add_edge(value); });
    return walk_.skip();  // tensors: what the edges are about
  }));
  report_stop(walk_, name_, builder_);
  count(Severity::kWarning, "too-large", "values are too large to read and were left out",
        walk_.too_large_count());
  sort_tasks();
  return std::move(graph_);
}

void add_name(std::string_view id_text, const JsonValue& value, SwimlaneNames& names) {
  int64_t id = 0;
  const char* end = id_text.data() + id_text.size();
  const auto [stop, error] = std::from_chars(id_text.data(), end, id);
  if (error != std::errc() || stop != end || value.kind != JsonKind::kString) return;
  names.kernels.try_emplace(id, json_text(value));
}

}  // namespace

const SwimlaneGraphTask* SwimlaneGraph::find(uint64_t token) const {
  const auto is_before = [](const SwimlaneGraphTask& task, uint64_t wanted) {
    return task.token < wanted;
  };
  const auto found = std::lower_bound(tasks.begin(), tasks.end(), token, is_before);
  return found != tasks.end() && found->token == token ? &*found : nullptr;
}

Result<SwimlaneGraph> read_swimlane_deps(InputStream& input, TraceBuilder& builder) {
  return DepsReader(input, builder).read();
}

// {"level": 2, "orchestrator_name": ..., "callable_id_to_name": {"0": "rmsnorm"}}; upstream's tools
// accept the inner object alone as well.
Result<SwimlaneNames> read_swimlane_names(InputStream& input, TraceBuilder& builder) {
  JsonWalk walk(input, Progress{});
  SwimlaneNames names;
  if (GAPLESS_TRY(walk.begin()) != '{') {
    report_no_object(input.name(), builder);
    return names;
  }
  const auto read_member = [&](std::string_view key) -> Result<bool> {
    const std::string name(key);
    JsonValue value;
    if (!GAPLESS_TRY(walk.value(value))) return false;
    if (name == "callable_id_to_name") {
      for_each_field(value, [&](const JsonValue& id, const JsonValue& text) {
        add_name(id.text, text, names);
      });
    } else if (name == "level") {
      names.level = json_integer(value).value_or(0);
    } else if (name == "orchestrator_name" && value.kind == JsonKind::kString) {
      names.orchestrator = json_text(value);
    } else {
      add_name(name, value, names);
    }
    return true;
  };
  GAPLESS_TRY(walk.members(read_member));
  report_stop(walk, input.name(), builder);
  return names;
}

}  // namespace gapless
