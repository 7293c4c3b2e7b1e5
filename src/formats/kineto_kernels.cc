// SPDX-License-Identifier: Apache-2.0

#include "formats/kineto_kernels.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include <fmt/core.h>

#include "formats/ascend_kinds.h"
#include "formats/json_walk.h"

namespace gapless {
namespace {

// Operators whose shapes are remembered until a kernel asks for them: 64 MiB.
constexpr size_t kMostOperators = size_t{1} << 22;
constexpr size_t kMostShapeTexts = size_t{1} << 18;

enum class Category : uint8_t { kKernel, kCopy, kCall, kOperator, kRange, kOtherHost, kUnknown };

// The capital ones are of PyTorch before 1.12.
Category category_of(std::string_view text) {
  if (text == "kernel" || text == "Kernel") return Category::kKernel;
  if (text == "python_function") return Category::kOtherHost;
  if (text == "cpu_op" || text == "Operator") return Category::kOperator;
  if (text == "gpu_memcpy" || text == "gpu_memset" || text == "Memcpy" || text == "Memset") {
    return Category::kCopy;
  }
  if (text == "user_annotation") return Category::kRange;
  if (text.ends_with("_runtime") || text.ends_with("_driver") || text == "Runtime") {
    return Category::kCall;
  }
  if (text == "gpu_user_annotation" || text == "overhead" || text == "cpu_instant_event") {
    return Category::kOtherHost;
  }
  return Category::kUnknown;
}

std::optional<int32_t> small_number(std::optional<int64_t> number) {
  if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*number);
}

uint64_t id_of(const JsonValue& value) { return json_unsigned(value).value_or(0); }

bool is_name_part(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether the '<' or '>' here belongs to an operator's name, such as "operator<<", or to an arrow.
bool is_sign(std::string_view name, size_t at) {
  if (name[at] == '>' && at > 0 && name[at - 1] == '-') return true;
  if (at > 0 && name[at - 1] == name[at]) --at;
  return name.substr(0, at).ends_with("operator");
}

// The name with all that stands in <...> left out. Brackets inside may hold comparisons, such as
// "<((4)>(3))>": a '>' closes only what was opened within the same round bracket.
std::string without_template_arguments(std::string_view name) {
  std::string kept;
  std::string open;  // the brackets around this place, from the first '<' on
  size_t round_count = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool opens = c == '<' && !is_sign(name, i);
    const bool closes = c == '>' && !is_sign(name, i);
    if (open.empty()) {
      if (opens) {
        open += c;
      } else if (!closes) {
        kept += c;
      }
    } else if (opens || c == '(') {
      open += c;
      round_count += opens ? 0 : 1;
    } else if (c == ')' && round_count > 0) {
      open.erase(open.rfind('('));
      --round_count;
    } else if (closes && open.back() == '<') {
      open.pop_back();
    }
  }
  return kept;
}

std::string without(std::string_view text, std::string_view part) {
  std::string kept;
  size_t begin = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, begin)) {
    kept += text.substr(begin, at - begin);
    begin = at + part.size();
  }
  kept += text.substr(begin);
  return kept;
}

}  // namespace

std::string short_kernel_name(std::string_view full_name) {
  if (full_name.starts_with("Memcpy") || full_name.starts_with("Memset")) {
    return std::string(full_name.substr(0, full_name.find(" (")));
  }
  std::string name = without(without_template_arguments(full_name), "(anonymous namespace)::");
  // The parameters begin at the first bracket behind a name; "operator()" has one pair of its own.
  size_t end = name.find('(');
  constexpr std::string_view kCall = "operator()";
  if (end != std::string::npos && std::string_view(name).substr(0, end + 2).ends_with(kCall)) {
    end = name.find('(', end + 2);
  }
  if (end != std::string::npos && end > 0) name.erase(end);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  const size_t space = name.rfind(' ');
  const bool is_word = space != std::string::npos && space + 1 < name.size() &&
                       is_name_part(name[space + 1]) && full_name.find('(') != full_name.npos;
  if (is_word && !std::string_view(name).substr(0, space).ends_with("operator")) {
    name.erase(0, space + 1);
  }
  return name.empty() ? std::string(full_name) : name;
}

bool names_nccl_kernel(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("rccl") || name.starts_with("void nccl") ||
         name.starts_with("void rccl");
}

bool KinetoKernels::add(const ChromeEvent& event) {
  switch (category_of(event.category.text)) {
    case Category::kKernel:
      add_device_event(event, true);
      return true;
    case Category::kCopy:
      add_device_event(event, false);
      return true;
    case Category::kCall:
      add_call(event);
      return true;
    case Category::kOperator:
      add_operator(event);
      events_.add_step(event);
      return true;
    case Category::kRange:
      events_.add_step(event);
      events_.add_host(event, "range");
      return true;
    case Category::kOtherHost:
      return true;
    case Category::kUnknown:
      return false;
  }
  return false;
}

uint32_t KinetoKernels::type_of(uint32_t name) {
  if (name >= types_.size()) types_.resize(name + 1, kNoIndex);
  if (types_[name] == kNoIndex) {
    types_[name] = events_.intern(short_kernel_name(events_.table().names[name]));
  }
  return types_[name];
}

void KinetoKernels::add_device_event(const ChromeEvent& event, bool is_kernel) {
  const std::optional<EventTimes> times = event_times(event, losses_);
  if (!times) return;
  KernelRow row;
  row.start_ns = times->start_ns;
  row.duration_ns = times->duration_ns;
  std::optional<int32_t> device = small_number(chrome_integer(event.process));
  std::optional<int32_t> stream = small_number(trailing_number(event.thread.text));
  uint64_t correlation = 0;
  uint64_t external_id = 0;
  for_each_field(event.args, [&](const JsonValue& key, const JsonValue& value) {
    if (key.text == "device") {
      if (value.kind == JsonKind::kNumber) device = small_number(chrome_integer(value));
    } else if (key.text == "stream") {
      if (value.kind == JsonKind::kNumber) stream = small_number(chrome_integer(value));
    } else if (key.text == "correlation") {
      correlation = id_of(value);
    } else if (key.text == "External id" || key.text == "external id") {
      external_id = id_of(value);
    }
  });
  row.device = device.value_or(events_.options().default_device);
  row.stream = stream.value_or(CaptureTable::kNoStream);
  row.name = events_.intern(event.name);
  row.type = type_of(row.name);
  if (correlation > 0 && correlation < kNoIndex) row.task = static_cast<uint32_t>(correlation);
  if (!is_kernel) {
    row.kind = KernelKind::kCopy;
  } else if (names_nccl_kernel(event.name.text)) {
    row.kind = KernelKind::kCollective;
  }
  events_.table().append(row);
  correlations_.push_back(correlation);
  external_ids_.push_back(external_id);
}

void KinetoKernels::add_call(const ChromeEvent& event) {
  events_.add_host(event, "call");
  uint64_t correlation = 0;
  for_each_field(event.args, [&correlation](const JsonValue& key, const JsonValue& value) {
    if (key.text == "correlation") correlation = id_of(value);
  });
  const std::optional<int64_t> begin_ns = chrome_time_ns(event.time);
  if (correlation == 0 || !begin_ns) return;
  const bool is_graph = event.name.text.find("GraphLaunch") != std::string_view::npos;
  launches_.push_back({correlation, *begin_ns, is_graph});
}

void KinetoKernels::add_operator(const ChromeEvent& event) {
  uint64_t external_id = 0;
  std::string_view shapes;
  for_each_field(event.args, [&](const JsonValue& key, const JsonValue& value) {
    if (key.text == "External id" || key.text == "external id") external_id = id_of(value);
    if (key.text == "Input Dims" && value.kind == JsonKind::kArray) shapes = value.text;
  });
  if (external_id == 0 || shapes.find_first_of("0123456789") == std::string_view::npos) return;
  if (operators_.size() == kMostOperators || shape_texts_.size() >= kMostShapeTexts) {
    ++operators_passed_over_;
    return;
  }
  operators_.push_back({external_id, shape_texts_.intern(plain_shapes(shapes, buffer_))});
}

void KinetoKernels::join_launches() {
  std::sort(launches_.begin(), launches_.end(), [](const Launch& a, const Launch& b) {
    return std::tie(a.correlation, a.begin_ns) < std::tie(b.correlation, b.begin_ns);
  });
  CaptureTable& table = events_.table();
  uint64_t graph_count = 0;
  uint64_t lone_count = 0;
  if (!launches_.empty() && !correlations_.empty()) table.launch_ns.resize(table.size(), kAbsent);
  for (size_t row = 0; row < correlations_.size(); ++row) {
    const uint64_t correlation = correlations_[row];
    const auto launch = std::lower_bound(
        launches_.begin(), launches_.end(), correlation,
        [](const Launch& candidate, uint64_t id) { return candidate.correlation < id; });
    const bool is_found =
        correlation != 0 && launch != launches_.end() && launch->correlation == correlation;
    if (is_found) table.launch_ns[row] = launch->begin_ns;
    graph_count += is_found && launch->is_graph ? 1 : 0;
    lone_count += is_found ? 0 : 1;
    table.step[row] = events_.step_at(is_found ? launch->begin_ns : table.start_ns[row]);
  }
  if (graph_count > 0) {
    events_.add_finding(
        Severity::kInfo, "graph-launches", graph_count,
        fmt::format("{} kernels were launched by graphs: each has the begin of the one call that "
                    "launched all of its graph",
                    graph_count));
  }
  if (lone_count > 0) {
    events_.add_finding(Severity::kInfo, "no-launch", lone_count,
                        fmt::format("{} kernels have no call with their correlation: it is not "
                                    "known when they were launched",
                                    lone_count));
  }
}

void KinetoKernels::join_shapes() {
  // Of operators with one id the last in the file: ids are given once.
  std::stable_sort(operators_.begin(), operators_.end(),
                   [](const OperatorShapes& a, const OperatorShapes& b) {
                     return a.external_id < b.external_id;
                   });
  CaptureTable& table = events_.table();
  for (size_t row = 0; row < external_ids_.size(); ++row) {
    const uint64_t id = external_ids_[row];
    const auto after = std::upper_bound(
        operators_.begin(), operators_.end(), id,
        [](uint64_t wanted, const OperatorShapes& shapes) { return wanted < shapes.external_id; });
    if (id == 0 || after == operators_.begin() || std::prev(after)->external_id != id) continue;
    table.input_shapes[row] = events_.intern(shape_texts_[std::prev(after)->shapes]);
  }
  if (operators_passed_over_ == 0) return;
  events_.add_finding(
      Severity::kWarning, "shapes-not-kept", operators_passed_over_,
      fmt::format("the shapes of {} operators were not kept: there are more than memory was set "
                  "aside for; their kernels have none",
                  operators_passed_over_));
}

void KinetoKernels::finish() {
  events_.add_losses(losses_);
  if (correlations_.empty()) return;
  join_launches();
  join_shapes();
}

}  // namespace gapless
