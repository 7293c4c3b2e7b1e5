// SPDX-License-Identifier: Apache-2.0

#include "formats/nsys_db.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/database_rows.h"

namespace gapless {
namespace {

constexpr std::string_view kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr std::string_view kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr std::string_view kFills = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr std::string_view kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr std::string_view kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr std::array<std::string_view, 4> kActivities = {kKernels, kCopies, kFills, kGraphs};

constexpr int64_t kFirstGoodNs = 0;  // times count from the begin of the session
constexpr int64_t kPushPop = 59;     // types of ranges
constexpr int64_t kStartEnd = 60;
constexpr int kThreadBits = 24;  // of a global thread: the thread; above it the process

// Of the columns that every activity has. What follows them is its own.
enum ActivityColumn : int {
  kStart,
  kEnd,
  kDevice,
  kStream,
  kCorrelation,
  kProcess,
  kGraphNode,
  kOwn
};

std::vector<ColumnNames> activity_columns(const std::vector<ColumnNames>& own) {
  std::vector<ColumnNames> columns = {{"start"},      {"end"},           {"deviceId"},
                                      {"streamId"},   {"correlationId"}, {"globalPid"},
                                      {"graphNodeId"}};
  columns.insert(columns.end(), own.begin(), own.end());
  return columns;
}

int64_t process_number(int64_t global_id) { return global_id >> kThreadBits & 0xffffff; }
int64_t thread_number(int64_t global_id) { return global_id & 0xffffff; }

// As the profiler numbers the directions of copies.
std::string_view copy_name(std::optional<int64_t> kind) {
  constexpr std::array<std::string_view, 11> kNames = {
      "Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA", "Memcpy AtoH", "Memcpy AtoA",
      "Memcpy AtoD", "Memcpy DtoA", "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
  if (!kind || *kind < 0 || *kind >= static_cast<int64_t>(kNames.size())) return kNames[0];
  return kNames[static_cast<size_t>(*kind)];
}

bool names_collective(std::string_view name) {
  constexpr std::string_view kVoid = "void ";
  if (name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  return name.starts_with("nccl") || name.find("cross_device_reduce") != std::string_view::npos;
}

class NsysDbReader {
 public:
  NsysDbReader(const Database& database, CaptureTable& table, const CaptureReadOptions& options)
      : rows_(database, table, options), table_(table), options_(options) {}

  Result<void> read();

 private:
  void read_calls();
  void read_gpus();
  void read_kernels();
  void read_copies();
  void read_graphs();
  void read_ranges();
  void read_properties();
  bool set_activity(const Query& row, KernelRow& kernel);
  void append(const Query& row, const KernelRow& kernel);
  std::optional<int64_t> call_key(const Query& row, int process_column, int correlation_column);
  void part_streams();

  DatabaseRows rows_;
  CaptureTable& table_;
  const CaptureReadOptions& options_;
  bool has_processes_ = false;              // rows say the process that they are of
  std::map<int64_t, uint32_t> process_of_;  // number by global id without the thread
  std::vector<int64_t> call_begins_ns_;
  IdIndex call_of_;                                        // by process and correlation
  std::map<std::pair<int64_t, int64_t>, int32_t> gpu_of_;  // by process id and its own number
  std::vector<uint32_t> row_process_;                      // of each row, as they came
};

// Rows are parted by process before they are put in order.
Result<void> NsysDbReader::read() {
  rows_.read_texts("StringIds");
  has_processes_ = rows_.database().has_column(kCalls, "globalTid");
  has_processes_ &= std::all_of(kActivities.begin(), kActivities.end(), [this](std::string_view t) {
    return !rows_.database().has_table(t) || rows_.database().has_column(t, "globalPid");
  });
  read_calls();
  read_gpus();
  read_kernels();
  read_copies();
  read_graphs();
  if (options_.keep_host) read_ranges();
  read_properties();
  part_streams();
  return rows_.finish();
}

// Correlations count for each process.
std::optional<int64_t> NsysDbReader::call_key(const Query& row, int process_column,
                                              int correlation_column) {
  const std::optional<int64_t> correlation = row.integer(correlation_column);
  if (!correlation || *correlation < 0 || *correlation >= kNoIndex) return std::nullopt;
  uint32_t process = 0;
  if (has_processes_) {
    const std::optional<int64_t> global_id = row.integer(process_column);
    if (!global_id) return std::nullopt;
    const uint32_t fresh = static_cast<uint32_t>(process_of_.size() & 0x7fffffff);
    process = process_of_.try_emplace(*global_id >> kThreadBits, fresh).first->second;
  }
  return static_cast<int64_t>(process) << 32 | *correlation;
}

void NsysDbReader::read_calls() {
  const std::vector<ColumnNames> columns = {
      {"start"}, {"end"}, {"globalTid"}, {"correlationId"}, {"nameId"}};
  rows_.scan(kCalls, columns, [this](const Query& row) {
    const std::optional<int64_t> begin = row.integer(0);
    const std::optional<int64_t> key = call_key(row, 2, 3);
    if (begin && key && *begin >= kFirstGoodNs && *begin <= kMaxTimeNs) {
      call_of_.add(*key, static_cast<uint32_t>(call_begins_ns_.size()));
      call_begins_ns_.push_back(*begin);
    }
    if (!options_.keep_host) return;
    const int64_t thread = row.integer(2).value_or(0);
    rows_.add_host(row, process_number(thread), thread_number(thread),
                   rows_.texts().intern_cell(row, 4), "call");
  });
  call_of_.finish();
}

// A process may see some of the machine's GPUs alone, and numbers them from 0.
void NsysDbReader::read_gpus() {
  const std::vector<ColumnNames> columns = {{"pid"}, {"cudaId"}, {"gpuId"}};
  rows_.scan("TARGET_INFO_CUDA_DEVICE", columns, [this](const Query& row) {
    const std::optional<int64_t> process = row.integer(0);
    const std::optional<int64_t> number = row.integer(1);
    const std::optional<int64_t> gpu = row.integer(2);
    if (!process || !number || !gpu) return;
    if (*gpu < 0 || *gpu > std::numeric_limits<int32_t>::max()) return;
    gpu_of_.try_emplace({*process, *number}, static_cast<int32_t>(*gpu));
  });
}

bool NsysDbReader::set_activity(const Query& row, KernelRow& kernel) {
  if (!rows_.set_times(row, kStart, kFirstGoodNs, kernel)) return false;
  const uint32_t device = rows_.number(row, kDevice);
  const uint32_t stream = rows_.number(row, kStream);
  kernel.device = device == kNoIndex ? options_.default_device : static_cast<int32_t>(device);
  kernel.stream = stream == kNoIndex ? CaptureTable::kNoStream : static_cast<int32_t>(stream);
  if (device != kNoIndex && !gpu_of_.empty()) {
    const int64_t process = process_number(row.integer(kProcess).value_or(0));
    const auto gpu = gpu_of_.find({process, device});
    if (gpu != gpu_of_.end()) kernel.device = gpu->second;
  }
  const std::optional<int64_t> key = call_key(row, kProcess, kCorrelation);
  if (!key) return true;
  kernel.task = static_cast<uint32_t>(*key & 0xffffffff);
  const uint32_t call = call_of_.find(*key);
  if (call != kNoIndex) kernel.launch_ns = call_begins_ns_[call];
  return true;
}

// Nodes of a graph may be the same in all that a row has.
void NsysDbReader::append(const Query& row, const KernelRow& kernel) {
  const std::optional<int64_t> node = row.integer(kGraphNode);
  const std::optional<int64_t> process = row.integer(kProcess);
  const auto found = process ? process_of_.find(*process >> kThreadBits) : process_of_.end();
  row_process_.push_back(found == process_of_.end() ? 0 : found->second);
  rows_.append(kernel, node ? static_cast<uint32_t>(*node & 0xffffffff) : kNoIndex);
}

void NsysDbReader::read_kernels() {
  const std::vector<ColumnNames> own = {{"demangledName", "mangledName", "shortName"},
                                        {"shortName", "demangledName"}};
  rows_.scan(kKernels, activity_columns(own), [this](const Query& row) {
    KernelRow kernel;
    if (!set_activity(row, kernel)) return;
    rows_.set_name(row, kOwn, kernel);
    kernel.type = rows_.texts().intern_cell(row, kOwn + 1);
    if (kernel.type == kNoIndex) kernel.type = rows_.derived_type_of(kernel.name);
    const bool is_collective =
        names_collective(table_.names[kernel.name]) ||
        (kernel.type != kNoIndex && names_collective(table_.names[kernel.type]));
    kernel.kind = is_collective ? KernelKind::kCollective : KernelKind::kCompute;
    append(row, kernel);
  });
}

void NsysDbReader::read_copies() {
  rows_.scan(kCopies, activity_columns({{"copyKind"}}), [this](const Query& row) {
    KernelRow kernel;
    if (!set_activity(row, kernel)) return;
    kernel.kind = KernelKind::kCopy;
    kernel.name = table_.names.intern(copy_name(row.integer(kOwn)));
    kernel.type = kernel.name;
    append(row, kernel);
  });
  rows_.scan(kFills, activity_columns({}), [this](const Query& row) {
    KernelRow kernel;
    if (!set_activity(row, kernel)) return;
    kernel.kind = KernelKind::kCopy;
    kernel.name = table_.names.intern("Memset");
    kernel.type = kernel.name;
    append(row, kernel);
  });
}

void NsysDbReader::read_graphs() {
  uint64_t count = 0;
  rows_.scan(kGraphs, activity_columns({{"graphId"}}), [this, &count](const Query& row) {
    KernelRow kernel;
    if (!set_activity(row, kernel)) return;
    const std::optional<int64_t> graph = row.integer(kOwn);
    kernel.type = table_.names.intern("CUDA graph");
    kernel.name = graph ? table_.names.intern(fmt::format("CUDA graph {}", *graph)) : kernel.type;
    append(row, kernel);
    ++count;
  });
  if (count == 0) return;
  rows_.add_finding(Severity::kWarning, "graphs-as-one", count,
                    fmt::format("{} launches of graphs were recorded as a whole, without their "
                                "kernels: each is one row; record with --cuda-graph-trace=node "
                                "for more",
                                count));
}

void NsysDbReader::read_ranges() {
  const std::vector<ColumnNames> columns = {{"start"}, {"end"},    {"globalTid"},
                                            {"text"},  {"textId"}, {"eventType"}};
  rows_.scan("NVTX_EVENTS", columns, [this](const Query& row) {
    const int64_t type = row.integer(5).value_or(0);
    if (type != kPushPop && type != kStartEnd) return;
    const std::string_view text = row.text(3);
    const uint32_t name =
        text.empty() ? rows_.texts().intern_cell(row, 4) : table_.names.intern(text);
    const int64_t thread = row.integer(2).value_or(0);
    rows_.add_host(row, process_number(thread), thread_number(thread), name, "range");
  });
}

// Of the environment two entries alone: it holds what users would not want in a report.
void NsysDbReader::read_properties() {
  rows_.scan("TARGET_INFO_GPU", {{"id"}, {"name"}}, [this](const Query& row) {
    if (const std::optional<int64_t> id = row.integer(0)) {
      rows_.add_property(fmt::format("nsys.gpu.{}", *id), row.text(1));
    }
  });
  rows_.scan("META_DATA_EXPORT", {{"name"}, {"value"}}, [this](const Query& row) {
    if (row.text(0) == "EXPORT_SCHEMA_VERSION") rows_.add_property("nsys.schema", row.text(1));
  });
  rows_.scan("TARGET_INFO_SYSTEM_ENV", {{"name"}, {"value"}}, [this](const Query& row) {
    if (row.text(0) == "CudaDriverVersion") rows_.add_property("nsys.cuda-driver", row.text(1));
    if (row.text(0) == "Hostname") rows_.add_property("nsys.host", row.text(1));
  });
}

// Every process numbers its streams for itself; on one device they get numbers of their own.
void NsysDbReader::part_streams() {
  std::map<int32_t, std::set<uint32_t>> processes_of;  // by device
  int32_t largest = 0;
  for (size_t row = 0; row < table_.size(); ++row) {
    processes_of[table_.device[row]].insert(row_process_[row]);
    largest = std::max(largest, table_.stream[row]);
  }
  int64_t distance = 1000;
  while (distance <= largest) distance *= 10;
  uint64_t changed_count = 0;
  for (size_t row = 0; row < table_.size(); ++row) {
    const std::set<uint32_t>& processes = processes_of[table_.device[row]];
    const int64_t place = std::distance(processes.begin(), processes.find(row_process_[row]));
    const int64_t stream = table_.stream[row] + place * distance;
    if (place == 0 || table_.stream[row] == CaptureTable::kNoStream) continue;
    if (stream > std::numeric_limits<int32_t>::max()) continue;
    table_.stream[row] = static_cast<int32_t>(stream);
    ++changed_count;
  }
  if (changed_count == 0) return;
  rows_.add_finding(Severity::kInfo, "several-processes", changed_count,
                    fmt::format("{} rows are of further processes on the same device: {} is added "
                                "to the numbers of their streams, for each process before them",
                                changed_count, distance));
}

}  // namespace

bool is_nsys_database(const Database& database) {
  return std::any_of(kActivities.begin(), kActivities.end(), [&database](std::string_view table) {
    return database.has_column(table, "start") && database.has_column(table, "end");
  });
}

Result<CaptureTable> read_nsys_db(const Database& database, const CaptureReadOptions& options) {
  if (!is_nsys_database(database)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no export of Nsight Systems with work of a GPU: it has none of the tables "
                "{}, {}, {}, {} (start, end){}",
                database.path(), kKernels, kCopies, kFills, kGraphs,
                database.troubles().empty() ? "" : "; " + database.troubles().front());
  }
  CaptureTable table;
  table.format = "nsys-db";
  table.device_word = "GPU";
  NsysDbReader reader(database, table, options);
  GAPLESS_TRY(reader.read());
  return table;
}

Result<CaptureTable> read_nsys_db(const std::string& path, const CaptureReadOptions& options) {
  const Database database = GAPLESS_TRY(Database::open(path));
  return read_nsys_db(database, options);
}

}  // namespace gapless
