// SPDX-License-Identifier: Apache-2.0
//
// AscendDbReader: the tables of one database of the Ascend profiler, joined into rows. Part of
// ascend_db.h.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/capture_options.h"
#include "formats/database.h"
#include "formats/database_rows.h"
#include "trace/capture_table.h"

namespace gapless {

class AscendDbReader {
 public:
  AscendDbReader(const Database& database, CaptureTable& table, const CaptureReadOptions& options)
      : rows_(database, table, options), table_(table), options_(options) {}

  Result<void> read();

 private:
  // What COMPUTE_TASK_INFO and its relatives say of a task.
  struct TaskInfo {
    uint32_t name = kNoIndex;
    uint32_t type = kNoIndex;
    uint32_t core = kNoIndex;
    uint32_t input_shapes = kNoIndex;
    uint32_t output_shapes = kNoIndex;
    bool is_wrapper = false;  // of a collective on the AI CPU
    bool is_used = false;
  };
  struct Collective {
    KernelRow row;
    int64_t connection = kAbsent;
  };
  struct Step {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    uint32_t name = kNoIndex;
  };

  void read_steps();
  void read_calls();
  void read_task_infos();
  void read_copies();
  void read_collectives();
  void read_collective_tasks();
  void read_tasks();
  void read_devices();
  void read_ranges();
  void read_operators();
  void read_properties();

  void add_task(const Query& row);
  bool describe_task(const Query& row, int64_t task, KernelRow& kernel);
  bool describe_copy(const Query& row, int64_t task, KernelRow& kernel);
  void set_place(const Query& row, KernelRow& kernel);
  void take_device(const Query& row, int64_t task, int32_t device);
  void add_collectives();
  void set_step(KernelRow& kernel);
  int64_t launch_of(int64_t connection) const;
  uint32_t shapes_id(const Query& row, int column);
  uint32_t shapes_id_of(std::string_view text);
  void report_unused();

  DatabaseRows rows_;
  CaptureTable& table_;
  const CaptureReadOptions& options_;
  std::string buffer_;
  std::unordered_map<int64_t, uint32_t> shapes_of_;  // by number of the text

  std::vector<Step> steps_;  // by begin
  std::vector<int64_t> call_begins_ns_;
  IdIndex node_calls_;   // by connection: calls that launch a kernel
  IdIndex other_calls_;  // by connection: all others
  std::vector<TaskInfo> infos_;
  IdIndex info_of_;  // by task
  std::vector<uint32_t> copy_names_;
  IdIndex copy_of_;  // by task
  std::vector<Collective> collectives_;
  IdIndex collective_by_connection_;
  IdIndex collective_by_operation_;
  IdIndex collective_of_;         // by task: collectives_.size() when it is of none that is known
  std::set<int32_t> devices_;     // that tasks are on
  std::set<int32_t> known_npus_;  // that the file lists
};

}  // namespace gapless
