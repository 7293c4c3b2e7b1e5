// SPDX-License-Identifier: Apache-2.0
//
// One pass: records are kept with the numbers that they have, and get their names, devices and
// launches at the end of their process, because the tables that these stand in may come last.

#include "formats/rocprof_json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/json_kernel_events.h"
#include "formats/json_walk.h"
#include "formats/kineto_kernels.h"

namespace gapless {
namespace {

constexpr std::string_view kToolKey = "rocprofiler-sdk-tool";

// {"handle": 7} or 7.
std::optional<uint64_t> handle_of(const JsonValue& value) {
  if (value.kind != JsonKind::kObject) return json_unsigned(value);
  std::optional<uint64_t> handle;
  for_each_field(value, [&handle](const JsonValue& key, const JsonValue& member) {
    if (key.text == "handle") handle = json_unsigned(member);
  });
  return handle;
}

struct Record {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  uint64_t correlation = 0;
  uint64_t kernel = 0;      // dispatches: the number of the symbol
  uint64_t agent = 0;       // of copies: where to
  uint64_t from_agent = 0;  // of copies
  uint64_t thread = 0;
  std::optional<uint64_t> stream;
  std::optional<uint64_t> queue;
  uint64_t kind = 0;
  uint64_t operation = 0;
  uint32_t task = kNoIndex;
};

struct Call {
  uint64_t correlation;
  int64_t begin_ns;
  uint32_t kind;
  uint32_t operation;
};

struct Agent {
  uint64_t handle = 0;
  int64_t type = 0;  // 1: the host's, 2: a GPU
  int64_t node = -1;
  int64_t ordinal = -1;  // among those of its type
};
constexpr int64_t kGpuAgent = 2;

// What one process of the file has told so far.
struct Process {
  int64_t number = 0;
  std::map<uint64_t, std::string> symbols;
  std::map<uint64_t, Agent> agents;
  std::vector<std::vector<std::string>> operations;  // by kind and operation
  std::vector<Record> dispatches;
  std::vector<Record> copies;
  std::vector<Call> calls;
  std::vector<Record> host_calls;
};

class RocprofReader {
 public:
  RocprofReader(InputStream& input, const CaptureReadOptions& options)
      : input_(input), walk_(input, options.progress), events_(table_, options) {}

  Result<CaptureTable> read();

 private:
  Result<bool> read_processes();
  Result<bool> read_process();
  Result<bool> read_process_member(std::string_view key);
  Result<bool> read_buffers();
  template <typename Take>
  Result<bool> each(Take take);  // take(value) for the elements of the list here
  std::optional<Record> record_of(const JsonValue& value);
  void add_call(const JsonValue& value);
  void add_symbol(const JsonValue& value);
  void add_agent(const JsonValue& value);
  void add_operations(const JsonValue& value);

  void finish_process();
  void add_row(const Record& record, bool is_dispatch);
  int32_t device_of(const Record& record);
  int32_t stream_of(const Record& record);
  std::string_view operation_name(uint64_t kind, uint64_t operation) const;
  uint32_t name_of_dispatch(uint64_t kernel);
  void set_launch(uint64_t correlation, KernelRow& row);
  void report();

  InputStream& input_;
  JsonWalk walk_;
  CaptureTable table_;
  JsonKernelEvents events_;
  Process process_;
  KernelEventLosses losses_ = {};
  std::unordered_map<uint64_t, int32_t> queues_;  // of handles too large for a stream's number
  uint64_t process_count_ = 0;
  uint64_t record_count_ = 0;
  uint64_t graph_count_ = 0;
  uint64_t lone_symbol_count_ = 0;
  uint64_t lone_agent_count_ = 0;
  bool has_tool_ = false;
};

template <typename Take>
Result<bool> RocprofReader::each(Take take) {
  if (GAPLESS_TRY(walk_.peek()) != '[') return walk_.skip();
  return walk_.elements([this, &take]() -> Result<bool> {
    JsonValue value;
    if (!GAPLESS_TRY(walk_.value(value))) return false;
    take(value);
    return true;
  });
}

void RocprofReader::add_symbol(const JsonValue& value) {
  std::optional<uint64_t> id;
  std::string plain;
  std::string formatted;
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    if (key.text == "kernel_id") id = json_unsigned(member);
    if (key.text == "kernel_name") plain = json_text(member);
    if (key.text == "formatted_kernel_name") formatted = json_text(member);
  });
  const std::string& name = formatted.empty() ? plain : formatted;
  if (id && !name.empty()) process_.symbols[*id] = name;
}

void RocprofReader::add_agent(const JsonValue& value) {
  Agent agent;
  for_each_field(value, [&agent](const JsonValue& key, const JsonValue& member) {
    if (key.text == "id") agent.handle = handle_of(member).value_or(0);
    if (key.text == "type") agent.type = json_integer(member).value_or(0);
    if (key.text == "node_id") agent.node = json_integer(member).value_or(-1);
    if (key.text == "logical_node_type_id") agent.ordinal = json_integer(member).value_or(-1);
  });
  if (agent.handle != 0) process_.agents[agent.handle] = agent;
}

void RocprofReader::add_operations(const JsonValue& strings) {
  for_each_field(strings, [this](const JsonValue& key, const JsonValue& kinds) {
    if (key.text != "buffer_records" || kinds.kind != JsonKind::kArray || kinds.is_too_deep) return;
    process_.operations.clear();
    for_each_element(kinds.text, [this](const JsonValue& kind) {
      std::vector<std::string>& names = process_.operations.emplace_back();
      for_each_field(kind, [&names](const JsonValue& what, const JsonValue& list) {
        if (what.text != "operations" || list.kind != JsonKind::kArray) return;
        for_each_element(list.text,
                         [&names](const JsonValue& name) { names.push_back(json_text(name)); });
      });
    });
  });
}

// Nothing, and counted, when the record has no times that can be used.
std::optional<Record> RocprofReader::record_of(const JsonValue& value) {
  Record record;
  std::optional<int64_t> start_ns;
  std::optional<int64_t> end_ns;
  const auto set = [&](const JsonValue& key, const JsonValue& member) {
    const std::string_view name = key.text;
    if (name == "start_timestamp") start_ns = json_integer(member);
    if (name == "end_timestamp") end_ns = json_integer(member);
    if (name == "thread_id") record.thread = json_unsigned(member).value_or(0);
    if (name == "stream_id") record.stream = handle_of(member);
    if (name == "kind") record.kind = json_unsigned(member).value_or(0);
    if (name == "operation") record.operation = json_unsigned(member).value_or(0);
    if (name == "dst_agent_id") record.agent = handle_of(member).value_or(0);
    if (name == "src_agent_id") record.from_agent = handle_of(member).value_or(0);
  };
  for_each_field(value, [&](const JsonValue& key, const JsonValue& member) {
    set(key, member);
    for_each_field(member, [&](const JsonValue& inner, const JsonValue& field) {
      const std::string_view name = inner.text;
      if (key.text == "correlation_id" && name == "internal") {
        record.correlation = json_unsigned(field).value_or(0);
      }
      if (key.text != "dispatch_info") return;
      if (name == "agent_id") record.agent = handle_of(field).value_or(0);
      if (name == "queue_id") record.queue = handle_of(field);
      if (name == "kernel_id") record.kernel = json_unsigned(field).value_or(0);
      const std::optional<uint64_t> number = json_unsigned(field);
      if (name == "dispatch_id" && number && *number < kNoIndex) {
        record.task = static_cast<uint32_t>(*number);
      }
    });
  });
  ++record_count_;
  const auto lose = [this](KernelEventLoss loss) { ++losses_[static_cast<size_t>(loss)]; };
  if (!start_ns || !end_ns) {
    lose(KernelEventLoss::kNoTime);
  } else if (*start_ns <= 0) {
    lose(KernelEventLoss::kNotPositive);
  } else if (*end_ns < *start_ns) {
    lose(KernelEventLoss::kNegativeDuration);
  } else if (*end_ns > kMaxTimeNs) {
    lose(KernelEventLoss::kOutOfRange);
  } else {
    record.start_ns = *start_ns;
    record.duration_ns = *end_ns - *start_ns;
    return record;
  }
  return std::nullopt;
}

void RocprofReader::add_call(const JsonValue& value) {
  const KernelEventLosses before = losses_;  // which count the device's records alone
  const std::optional<Record> record = record_of(value);
  losses_ = before;
  --record_count_;
  if (!record) return;
  if (events_.options().keep_host) process_.host_calls.push_back(*record);
  if (record->correlation == 0) return;
  const uint64_t most = std::numeric_limits<uint32_t>::max();
  process_.calls.push_back({record->correlation, record->start_ns,
                            static_cast<uint32_t>(std::min(record->kind, most)),
                            static_cast<uint32_t>(std::min(record->operation, most))});
}

Result<bool> RocprofReader::read_buffers() {
  if (GAPLESS_TRY(walk_.peek()) != '{') return walk_.skip();
  return walk_.members([this](std::string_view name) -> Result<bool> {
    if (name == "hip_api" || name == "hip_runtime_api") {
      return each([this](const JsonValue& value) { add_call(value); });
    }
    std::vector<Record>* records = name == "kernel_dispatch" ? &process_.dispatches
                                   : name == "memory_copy"   ? &process_.copies
                                                             : nullptr;
    if (records == nullptr) return walk_.skip();
    return each([this, records](const JsonValue& value) {
      if (const std::optional<Record> record = record_of(value)) records->push_back(*record);
    });
  });
}

Result<bool> RocprofReader::read_process_member(std::string_view key) {
  if (key == "kernel_symbols") return each([this](const JsonValue& value) { add_symbol(value); });
  if (key == "agents") return each([this](const JsonValue& value) { add_agent(value); });
  if (key == "buffer_records") return read_buffers();
  if (key != "strings" && key != "metadata") return walk_.skip();
  const bool is_metadata = key == "metadata";
  JsonValue value;
  if (!GAPLESS_TRY(walk_.value(value))) return false;
  if (!is_metadata) {
    add_operations(value);
    return true;
  }
  for_each_field(value, [this](const JsonValue& name, const JsonValue& field) {
    if (name.text == "pid") process_.number = json_integer(field).value_or(0);
    const bool is_scalar = field.kind == JsonKind::kNumber || field.kind == JsonKind::kString;
    if (!is_scalar) return;
    table_.properties.push_back(
        {fmt::format("rocprof.{}.{}", process_count_, json_text(name)), json_text(field)});
  });
  return true;
}

Result<bool> RocprofReader::read_process() {
  if (GAPLESS_TRY(walk_.peek()) != '{') return walk_.skip();
  const bool is_whole =
      GAPLESS_TRY(walk_.members([this](std::string_view key) { return read_process_member(key); }));
  finish_process();
  ++process_count_;
  return is_whole;
}

// A list of processes; one alone may stand without the list.
Result<bool> RocprofReader::read_processes() {
  has_tool_ = true;
  if (GAPLESS_TRY(walk_.peek()) != '[') return read_process();
  return walk_.elements([this]() { return read_process(); });
}

std::string_view RocprofReader::operation_name(uint64_t kind, uint64_t operation) const {
  const std::vector<std::vector<std::string>>& names = process_.operations;
  if (kind >= names.size() || operation >= names[kind].size()) return {};
  return names[kind][operation];
}

uint32_t RocprofReader::name_of_dispatch(uint64_t kernel) {
  const auto found = process_.symbols.find(kernel);
  if (found != process_.symbols.end()) return events_.intern(found->second);
  ++lone_symbol_count_;
  return events_.intern(fmt::format("kernel {}", kernel));
}

int32_t RocprofReader::device_of(const Record& record) {
  auto agent = process_.agents.find(record.agent);
  const auto is_gpu = [this](std::map<uint64_t, Agent>::iterator at) {
    return at != process_.agents.end() && at->second.type != 1;
  };
  if (!is_gpu(agent)) agent = process_.agents.find(record.from_agent);
  const auto fits = [](int64_t number) {
    return number >= 0 && number <= std::numeric_limits<int32_t>::max();
  };
  if (is_gpu(agent) && fits(agent->second.ordinal)) {
    return static_cast<int32_t>(agent->second.ordinal);
  }
  if (is_gpu(agent) && agent->second.type == kGpuAgent) {
    // Nodes in order, as the runtime numbers its devices.
    int32_t before = 0;
    for (const auto& [handle, other] : process_.agents) {
      before += other.type == kGpuAgent && other.node < agent->second.node ? 1 : 0;
    }
    return before;
  }
  ++lone_agent_count_;
  return events_.options().default_device;
}

int32_t RocprofReader::stream_of(const Record& record) {
  const std::optional<uint64_t> handle = record.stream ? record.stream : record.queue;
  if (!handle) return CaptureTable::kNoStream;
  if (*handle <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    return static_cast<int32_t>(*handle);
  }
  // An address: numbered in the order in which they come.
  return queues_.emplace(*handle, static_cast<int32_t>(queues_.size())).first->second;
}

void RocprofReader::set_launch(uint64_t correlation, KernelRow& row) {
  const std::vector<Call>& calls = process_.calls;
  const auto call =
      std::lower_bound(calls.begin(), calls.end(), correlation,
                       [](const Call& at, uint64_t wanted) { return at.correlation < wanted; });
  if (correlation == 0 || call == calls.end() || call->correlation != correlation) return;
  row.launch_ns = call->begin_ns;
  const std::string_view name = operation_name(call->kind, call->operation);
  if (name.find("GraphLaunch") != std::string_view::npos) ++graph_count_;
}

void RocprofReader::add_row(const Record& record, bool is_dispatch) {
  KernelRow row;
  row.start_ns = record.start_ns;
  row.duration_ns = record.duration_ns;
  row.device = device_of(record);
  row.stream = stream_of(record);
  row.task = record.task;
  if (is_dispatch) {
    row.name = name_of_dispatch(record.kernel);
    const std::string_view name = table_.names[row.name];
    row.type = events_.intern(short_kernel_name(name));
    if (names_nccl_kernel(table_.names[row.name])) row.kind = KernelKind::kCollective;
  } else {
    const std::string_view name = operation_name(record.kind, record.operation);
    row.name = events_.intern(name.empty() ? std::string_view("MEMORY_COPY") : name);
    row.type = row.name;
    row.kind = KernelKind::kCopy;
  }
  set_launch(record.correlation, row);
  table_.append(row);
}

void RocprofReader::finish_process() {
  std::sort(process_.calls.begin(), process_.calls.end(), [](const Call& a, const Call& b) {
    return std::tie(a.correlation, a.begin_ns) < std::tie(b.correlation, b.begin_ns);
  });
  for (const Record& record : process_.dispatches) add_row(record, true);
  for (const Record& record : process_.copies) add_row(record, false);
  for (const Record& call : process_.host_calls) {
    const std::string_view name = operation_name(call.kind, call.operation);
    events_.add_host_span(
        {.begin_ns = call.start_ns,
         .end_ns = call.start_ns + call.duration_ns,
         .process = process_.number,
         .thread = static_cast<int64_t>(call.thread),
         .name = events_.intern(name.empty() ? std::string_view("HIP call") : name),
         .category = events_.intern("call")});
  }
  process_ = {};
}

void RocprofReader::report() {
  const std::string stop = walk_.stop();
  if (!stop.empty()) {
    const bool is_cut = walk_.status() == JsonStatus::kNeedMore;
    events_.add_finding(
        Severity::kWarning, is_cut ? "cut-short" : "damaged", 1,
        fmt::format("the file is {}; the {} records of devices before that were read", stop,
                    record_count_));
  }
  if (walk_.too_large_count() > 0) {
    events_.add_finding(
        Severity::kWarning, "event-too-large", walk_.too_large_count(),
        fmt::format("{} records are larger than 64 MiB; left out", walk_.too_large_count()));
  }
  if (lone_symbol_count_ > 0) {
    events_.add_finding(Severity::kWarning, "no-symbol", lone_symbol_count_,
                        fmt::format("{} dispatches name a kernel that is not in the table of "
                                    "symbols; they have its number as their name",
                                    lone_symbol_count_));
  }
  if (lone_agent_count_ > 0) {
    events_.add_finding(Severity::kWarning, "unknown-agent", lone_agent_count_,
                        fmt::format("{} rows name an agent that the file does not list as a GPU: "
                                    "their device is not known",
                                    lone_agent_count_));
  }
  if (graph_count_ > 0) {
    events_.add_finding(
        Severity::kInfo, "graph-launches", graph_count_,
        fmt::format("{} kernels were launched by graphs: each has the begin of the one call that "
                    "launched all of its graph",
                    graph_count_));
  }
  events_.add_losses(losses_);
  events_.report_losses();
}

Result<CaptureTable> RocprofReader::read() {
  const char first = GAPLESS_TRY(walk_.begin());
  if (first == '\0' && !GAPLESS_TRY(walk_.trailing_offset())) {
    return fail(ErrorCode::kInvalidInput, "{}: is empty", input_.name());
  }
  if (first != '{') {
    return fail(ErrorCode::kInvalidInput,
                "{}: not what rocprofv3 writes: begins with byte 0x{:02x}", input_.name(),
                static_cast<unsigned char>(first));
  }
  const bool is_whole = GAPLESS_TRY(walk_.members(
      [this](std::string_view key) { return key == kToolKey ? read_processes() : walk_.skip(); }));
  if (!has_tool_) {
    const std::string stop = walk_.stop();
    return fail(ErrorCode::kInvalidInput, "{}: {} \"{}\", which rocprofv3 writes", input_.name(),
                is_whole || stop.empty() ? std::string("has no") : stop + ", before the", kToolKey);
  }
  table_.format = "rocprof-json";
  table_.device_word = "GPU";
  report();
  finish_kernel_order(table_, false);
  KernelSource source;
  source.path = input_.name();
  source.row_count = table_.size() + table_.dropped_count;
  table_.sources.push_back(std::move(source));
  return std::move(table_);
}

}  // namespace

bool looks_like_rocprof(std::string_view first_bytes) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  constexpr std::string_view kSpace = " \t\r\n";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const size_t brace = first_bytes.find_first_not_of(kSpace);
  if (brace == std::string_view::npos || first_bytes[brace] != '{') return false;
  return first_bytes.find("\"rocprofiler-sdk-tool\"", brace) != std::string_view::npos;
}

Result<CaptureTable> read_rocprof_json(InputStream input, const CaptureReadOptions& options) {
  RocprofReader reader(input, options);
  return reader.read();
}

}  // namespace gapless
