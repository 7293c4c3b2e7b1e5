// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_db_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "formats/ascend_kinds.h"

namespace gapless {
namespace {

constexpr int64_t kFirstGoodNs = 1;  // times are of the wall clock; zero is no time
constexpr int64_t kInvalid = 4294967295;

bool is_connection(std::optional<int64_t> connection) {
  return connection && *connection != -1 && *connection != kInvalid;
}

int64_t process_of(int64_t global_thread) { return global_thread >> 32; }
int64_t thread_of(int64_t global_thread) { return global_thread & 0xffffffff; }

}  // namespace

Result<void> AscendDbReader::read() {
  rows_.read_texts("STRING_IDS");
  read_steps();
  read_calls();
  read_task_infos();
  read_copies();
  read_collectives();
  read_collective_tasks();
  read_tasks();
  read_devices();
  add_collectives();
  if (options_.keep_host) {
    read_ranges();
    read_operators();
  }
  read_properties();
  report_unused();
  return rows_.finish();
}

void AscendDbReader::read_steps() {
  rows_.scan("STEP_TIME", {{"startNs"}, {"endNs"}, {"id"}}, [this](const Query& row) {
    const std::optional<int64_t> begin = row.integer(0);
    const std::optional<int64_t> end = row.integer(1);
    if (!begin || !end || row.is_null(2)) return;
    steps_.push_back({*begin, *end, table_.names.intern(row.text(2))});
  });
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.begin_ns < b.begin_ns; });
}

// The call of a kernel is that of the level "node"; those of other levels go around it.
void AscendDbReader::read_calls() {
  std::optional<int64_t> node_level = 10000;
  rows_.scan("ENUM_API_TYPE", {{"id"}, {"name"}}, [&node_level](const Query& row) {
    if (row.text(1) == "node") node_level = row.integer(0);
  });
  const std::vector<ColumnNames> columns = {{"startNs"},   {"endNs"},        {"type"},
                                            {"globalTid"}, {"connectionId"}, {"name"}};
  rows_.scan("CANN_API", columns, [this, node_level](const Query& row) {
    const std::optional<int64_t> begin = row.integer(0);
    const std::optional<int64_t> connection = row.integer(4);
    if (begin && *begin > 0 && *begin <= kMaxTimeNs && is_connection(connection)) {
      const uint32_t call = static_cast<uint32_t>(call_begins_ns_.size());
      call_begins_ns_.push_back(*begin);
      (row.integer(2) == node_level ? node_calls_ : other_calls_).add(*connection, call);
    }
    if (!options_.keep_host) return;
    const int64_t thread = row.integer(3).value_or(0);
    rows_.add_host(row, process_of(thread), thread_of(thread), rows_.texts().intern_cell(row, 5),
                   "call");
  });
  node_calls_.finish();
  other_calls_.finish();
}

int64_t AscendDbReader::launch_of(int64_t connection) const {
  uint32_t call = node_calls_.find(connection);
  if (call == kNoIndex) call = other_calls_.find(connection);
  return call == kNoIndex ? kAbsent : call_begins_ns_[call];
}

// Texts of shapes have quotes in them. Nothing but quotes is the shape of a scalar, and not a shape
// that nobody recorded.
uint32_t AscendDbReader::shapes_id(const Query& row, int column) {
  const std::optional<int64_t> id = row.integer(column);
  if (!id) return shapes_id_of(row.text(column));
  const auto [entry, is_first] = shapes_of_.try_emplace(*id, kNoIndex);
  if (is_first) entry->second = shapes_id_of(rows_.texts().text(*id));
  return entry->second;
}

uint32_t AscendDbReader::shapes_id_of(std::string_view text) {
  constexpr std::string_view kAround = "\" \t";
  std::string_view shapes = text;
  shapes.remove_prefix(std::min(shapes.find_first_not_of(kAround), shapes.size()));
  shapes = shapes.substr(0, shapes.find_last_not_of(kAround) + 1);
  const bool has_quotes = text.find('"') != std::string_view::npos;
  if (is_missing_cell(shapes) && !(shapes.empty() && has_quotes)) return kNoIndex;
  return table_.names.intern(plain_shapes(shapes, buffer_));
}

void AscendDbReader::read_task_infos() {
  const auto read = [this](std::string_view table, bool is_wrapper) {
    const std::vector<ColumnNames> columns = {{"globalTaskId"}, {"name"},        {"opType"},
                                              {"taskType"},     {"inputShapes"}, {"outputShapes"}};
    rows_.scan(table, columns, [this, is_wrapper](const Query& row) {
      const std::optional<int64_t> task = row.integer(0);
      if (!task || infos_.size() >= kNoIndex) return;
      TaskInfo info;
      info.name = rows_.texts().intern_cell(row, 1);
      info.type = rows_.texts().intern_cell(row, 2);
      info.core = rows_.texts().intern_cell(row, 3);
      info.input_shapes = shapes_id(row, 4);
      info.output_shapes = shapes_id(row, 5);
      info.is_wrapper = is_wrapper;
      info_of_.add(*task, static_cast<uint32_t>(infos_.size()));
      infos_.push_back(info);
    });
  };
  read("COMPUTE_TASK_INFO", false);
  read("COMMUNICATION_SCHEDULE_TASK_INFO", true);
  const uint64_t repeated_count = info_of_.finish();
  if (repeated_count == 0) return;
  rows_.add_finding(
      Severity::kWarning, "repeated-tasks", repeated_count,
      fmt::format("{} tasks are described more than once; the first counts", repeated_count));
}

void AscendDbReader::read_copies() {
  TextIds operations(table_.names);
  rows_.scan("ENUM_MEMCPY_OPERATION", {{"id"}, {"name"}}, [&operations](const Query& row) {
    if (const std::optional<int64_t> id = row.integer(0)) operations.add(*id, row.text(1));
  });
  operations.finish();
  const std::vector<ColumnNames> columns = {{"globalTaskId"}, {"memcpyOperation"}};
  rows_.scan("MEMCPY_INFO", columns, [this, &operations](const Query& row) {
    const std::optional<int64_t> task = row.integer(0);
    if (!task) return;
    const std::optional<int64_t> operation = row.integer(1);
    copy_of_.add(*task, static_cast<uint32_t>(copy_names_.size()));
    copy_names_.push_back(operation ? operations.intern(*operation) : kNoIndex);
  });
  copy_of_.finish();
}

void AscendDbReader::read_collectives() {
  const std::vector<ColumnNames> columns = {{"startNs"}, {"endNs"},        {"opName"},  {"opType"},
                                            {"opId"},    {"connectionId"}, {"deviceId"}};
  rows_.scan("COMMUNICATION_OP", columns, [this](const Query& row) {
    Collective collective;
    KernelRow& kernel = collective.row;
    kernel.kind = KernelKind::kCollective;
    if (!rows_.set_times(row, 0, kFirstGoodNs, kernel)) return;
    rows_.set_name(row, 2, kernel);
    kernel.type = rows_.texts().intern_cell(row, 3);
    if (kernel.type == kNoIndex) kernel.type = rows_.derived_type_of(kernel.name);
    kernel.core = table_.names.intern("COMMUNICATION");
    const uint32_t device = rows_.number(row, 6);
    kernel.device = device == kNoIndex ? CaptureTable::kNoDevice : static_cast<int32_t>(device);
    const uint32_t number = static_cast<uint32_t>(collectives_.size());
    if (const std::optional<int64_t> connection = row.integer(5); is_connection(connection)) {
      collective.connection = *connection;
      collective_by_connection_.add(*connection, number);
    }
    if (const std::optional<int64_t> id = row.integer(4)) collective_by_operation_.add(*id, number);
    set_step(kernel);
    kernel.launch_ns = launch_of(collective.connection);
    collectives_.push_back(collective);
  });
  collective_by_connection_.finish();
  collective_by_operation_.finish();
}

void AscendDbReader::read_collective_tasks() {
  const std::vector<ColumnNames> columns = {{"globalTaskId"}, {"opId"}};
  rows_.scan("COMMUNICATION_TASK_INFO", columns, [this](const Query& row) {
    const std::optional<int64_t> task = row.integer(0);
    if (!task) return;
    const std::optional<int64_t> operation = row.integer(1);
    const uint32_t found = operation ? collective_by_operation_.find(*operation) : kNoIndex;
    const uint32_t none = static_cast<uint32_t>(collectives_.size());
    collective_of_.add(*task, found == kNoIndex ? none : found);
  });
  collective_of_.finish();
}

void AscendDbReader::read_tasks() {
  const std::vector<ColumnNames> columns = {{"startNs"},  {"endNs"},        {"globalTaskId"},
                                            {"deviceId"}, {"streamId"},     {"taskId"},
                                            {"taskType"}, {"connectionId"}, {"contextId"}};
  rows_.scan("TASK", columns, [this](const Query& row) { add_task(row); });
}

void AscendDbReader::add_task(const Query& row) {
  KernelRow kernel;
  const int64_t task = row.integer(2).value_or(kAbsent);
  if (!describe_task(row, task, kernel) && !describe_copy(row, task, kernel)) {
    const std::optional<int64_t> type = row.integer(6);
    const std::string_view text = type ? rows_.texts().text(*type) : row.text(6);
    rows_.count_other(text.empty() ? "of no type" : text);
    const uint32_t device = rows_.number(row, 3);
    if (device != kNoIndex) take_device(row, task, static_cast<int32_t>(device));
    return;
  }
  if (!rows_.set_times(row, 0, kFirstGoodNs, kernel)) return;
  set_place(row, kernel);
  if (kernel.device != CaptureTable::kNoDevice) take_device(row, task, kernel.device);
  if (kernel.kind == KernelKind::kCompute) {
    kernel.kind =
        ascend_kernel_kind({.name = table_.names[kernel.name],
                            .type = kernel.type == kNoIndex ? "" : table_.names[kernel.type],
                            .core = kernel.core == kNoIndex ? "" : table_.names[kernel.core],
                            .has_stream = kernel.stream != CaptureTable::kNoStream});
  }
  if (kernel.type == kNoIndex) kernel.type = rows_.derived_type_of(kernel.name);
  set_step(kernel);
  const std::optional<int64_t> connection = row.integer(7);
  if (is_connection(connection)) kernel.launch_ns = launch_of(*connection);
  rows_.append(kernel, rows_.number(row, 8));
}

bool AscendDbReader::describe_task(const Query& row, int64_t task, KernelRow& kernel) {
  const uint32_t number = info_of_.find(task);
  if (number == kNoIndex) return false;
  TaskInfo& info = infos_[number];
  info.is_used = true;
  kernel.name = info.name;
  if (kernel.name == kNoIndex) rows_.set_no_name(kernel);
  kernel.type = info.type;
  kernel.core = info.core;
  if (kernel.core == kNoIndex) kernel.core = rows_.texts().intern_cell(row, 6);
  kernel.input_shapes = info.input_shapes;
  kernel.output_shapes = info.output_shapes;
  kernel.kind = info.is_wrapper ? KernelKind::kAiCpuCollective : KernelKind::kCompute;
  return true;
}

// Collectives copy too, which their own row tells of.
bool AscendDbReader::describe_copy(const Query& row, int64_t task, KernelRow& kernel) {
  constexpr std::string_view kCopy = "MEMCPY";
  if (collective_of_.find(task) != kNoIndex) return false;
  const uint32_t type = rows_.texts().intern_cell(row, 6);
  const uint32_t number = copy_of_.find(task);
  const bool is_copy = type != kNoIndex && table_.names[type].starts_with(kCopy);
  if (number == kNoIndex && !is_copy) return false;
  kernel.kind = KernelKind::kCopy;
  kernel.type = type == kNoIndex ? table_.names.intern(kCopy) : type;
  kernel.name = kernel.type;
  if (number != kNoIndex && copy_names_[number] != kNoIndex) {
    kernel.name = table_.names.intern(
        fmt::format("{} ({})", table_.names[kernel.type], table_.names[copy_names_[number]]));
  }
  return true;
}

void AscendDbReader::set_place(const Query& row, KernelRow& kernel) {
  const uint32_t device = rows_.number(row, 3);
  const uint32_t stream = rows_.number(row, 4);
  kernel.device = device == kNoIndex ? options_.default_device : static_cast<int32_t>(device);
  kernel.stream = stream == kNoIndex ? CaptureTable::kNoStream : static_cast<int32_t>(stream);
  kernel.task = rows_.number(row, 5);
}

// Some versions do not say the device of a collective; its tasks do.
void AscendDbReader::take_device(const Query& row, int64_t task, int32_t device) {
  devices_.insert(device);
  const std::optional<int64_t> connection = row.integer(7);
  uint32_t number =
      is_connection(connection) ? collective_by_connection_.find(*connection) : kNoIndex;
  if (number == kNoIndex) number = collective_of_.find(task);
  if (number >= collectives_.size()) return;
  int32_t& known = collectives_[number].row.device;
  if (known == CaptureTable::kNoDevice) known = device;
}

void AscendDbReader::read_devices() {
  const auto take = [this](const Query& row) {
    const std::optional<int64_t> device = row.integer(0);
    if (!device || *device < 0 || *device > 0x7fffffff) return;
    known_npus_.insert(static_cast<int32_t>(*device));
  };
  rows_.scan("RANK_DEVICE_MAP", {{"deviceId"}}, take);
  if (known_npus_.empty()) rows_.scan("NPU_INFO", {{"id"}}, take);
}

void AscendDbReader::add_collectives() {
  int32_t usual = options_.default_device;
  if (devices_.size() == 1) {
    usual = *devices_.begin();
  } else if (devices_.empty() && known_npus_.size() == 1) {
    usual = *known_npus_.begin();
  }
  for (Collective& collective : collectives_) {
    KernelRow& kernel = collective.row;
    if (kernel.device == CaptureTable::kNoDevice) kernel.device = usual;
    rows_.append(kernel);
  }
}

void AscendDbReader::set_step(KernelRow& kernel) {
  if (steps_.empty()) return;
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), kernel.start_ns,
                       [](int64_t start_ns, const Step& step) { return start_ns < step.begin_ns; });
  if (after != steps_.begin() && kernel.start_ns <= (after - 1)->end_ns) {
    kernel.step = (after - 1)->name;
  } else {
    rows_.note(RowEvent::kNoStep);
  }
}

void AscendDbReader::read_ranges() {
  const std::vector<ColumnNames> columns = {{"startNs"}, {"endNs"}, {"globalTid"}, {"message"}};
  rows_.scan("MSTX_EVENTS", columns, [this](const Query& row) {
    const int64_t thread = row.integer(2).value_or(0);
    rows_.add_host(row, process_of(thread), thread_of(thread), rows_.texts().intern_cell(row, 3),
                   "range");
  });
}

// Its times are text.
void AscendDbReader::read_operators() {
  const std::vector<ColumnNames> columns = {{"startNs"}, {"endNs"}, {"globalTid"}, {"name"}};
  rows_.scan("PYTORCH_API", columns, [this](const Query& row) {
    const int64_t thread = row.integer(2).value_or(0);
    rows_.add_host(row, process_of(thread), thread_of(thread), rows_.texts().intern_cell(row, 3),
                   "operator");
  });
}

void AscendDbReader::read_properties() {
  rows_.scan("NPU_INFO", {{"id"}, {"name"}}, [this](const Query& row) {
    if (const std::optional<int64_t> id = row.integer(0)) {
      rows_.add_property(fmt::format("ascend.npu.{}", *id), row.text(1));
    }
  });
  rows_.scan("HOST_INFO", {{"hostName"}},
             [this](const Query& row) { rows_.add_property("ascend.host", row.text(0)); });
  rows_.scan("META_DATA", {{"name"}, {"value"}}, [this](const Query& row) {
    if (row.text(0) == "SCHEMA_VERSION") rows_.add_property("ascend.schema", row.text(1));
  });
}

void AscendDbReader::report_unused() {
  const auto is_unused = [](const TaskInfo& info) { return !info.is_used; };
  const uint64_t count =
      static_cast<uint64_t>(std::count_if(infos_.begin(), infos_.end(), is_unused));
  if (count == 0) return;
  table_.sources.front().row_count += count;
  table_.dropped_count += count;
  rows_.add_finding(Severity::kWarning, "kernels-without-times", count,
                    fmt::format("{} kernels are described, but table TASK has no times of them; "
                                "dropped",
                                count));
}

}  // namespace gapless
