// SPDX-License-Identifier: Apache-2.0

#include "analysis/recorded_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "trace/join_names.h"

namespace gapless {
namespace {

constexpr uint64_t kTaskIdMask = (uint64_t{1} << 40) - 1;  // above it: the number of a record

// What a row is to the step.
enum class RowKind : uint8_t { kOther, kRun, kJoin, kGate, kDummy };

struct Block {
  uint64_t first_id = 0;
  int64_t last_start_ns = 0;
  int64_t last_end_ns = 0;
  uint32_t cube_parts = 0;
  uint32_t vector_parts = 0;
  double scale = 0.0;           // of the part that is scaled most: the others wait for it
  SimCost cube;                 // of the cube core, and of the vector core that has most
  SimCost vector;               // : bytes and operations, where they are asked for
  std::vector<uint32_t> tasks;  // of the step

  double modelled_amount() const {
    return static_cast<double>(cube.bytes) + static_cast<double>(vector.bytes) +
           static_cast<double>(cube.flops) + static_cast<double>(vector.flops);
  }

  // The cores of a mixed block end together: its work began when the last of them did.
  int64_t run_ns() const {
    const int64_t recorded_ns = std::max(last_end_ns - last_start_ns, int64_t{0});
    return scale == 1.0 ? recorded_ns : std::llround(static_cast<double>(recorded_ns) * scale);
  }
};

// The rows of one task.
struct Group {
  uint64_t id = std::numeric_limits<uint64_t>::max();
  int64_t submit_ns = kAbsent;
  int64_t start_ns = std::numeric_limits<int64_t>::max();  // the first
  uint32_t row = kNoIndex;                                 // one of them
  std::vector<uint32_t> tasks;                             // of the step; none: a dummy
};

// The smallest number of a set stands for it.
class DisjointSets {
 public:
  explicit DisjointSets(size_t size) : parents_(size) {
    std::iota(parents_.begin(), parents_.end(), 0u);
  }
  uint32_t root_of(uint32_t number) {
    while (parents_[number] != number) {
      parents_[number] = parents_[parents_[number]];
      number = parents_[number];
    }
    return number;
  }
  void unite(uint32_t a, uint32_t b) {
    const uint32_t root_a = root_of(a);
    const uint32_t root_b = root_of(b);
    parents_[std::max(root_a, root_b)] = std::min(root_a, root_b);
  }

 private:
  std::vector<uint32_t> parents_;
};

class RecordedGraphMaker {
 public:
  RecordedGraphMaker(const Trace& trace, const StepTasks& tasks,
                     const RecordedGraphOptions& options)
      : trace_(trace),
        tasks_(tasks),
        options_(options),
        cores_(recorded_cores(tasks)),
        clusters_(recorded_clusters(tasks)),
        rows_(trace.tasks.size()) {}

  Result<RecordedGraph> make() {
    classify_rows();
    keep_near_rows();
    unite_rows();
    collect_groups();
    collect_edges();
    order_groups();
    if (options_.is_modelled) GAPLESS_TRY(check_costs());
    add_tasks();
    for (const auto& [producer, consumer] : edges_) {
      builder_.add_edge(place_[producer], place_[consumer]);
    }
    made_.graph = GAPLESS_TRY(builder_.finish());
    return std::move(made_);
  }

 private:
  std::string_view name_of(uint32_t kernel) const {
    return kernel == kNoIndex ? std::string_view("(no name)") : trace_.names[kernel];
  }

  void classify_rows() {
    kinds_.assign(trace_.tasks.size(), RowKind::kOther);
    const std::vector<int64_t>& starts = trace_.tasks.at(TaskTime::kStart);
    for (uint32_t row = 0; row < kinds_.size(); ++row) {
      if (starts[row] != kAbsent) continue;
      const std::string_view name = name_of(trace_.tasks.kernel[row]);
      kinds_[row] = name.ends_with(kJoinSuffix)   ? RowKind::kJoin
                    : name.ends_with(kGateSuffix) ? RowKind::kGate
                                                  : RowKind::kDummy;
    }
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      kinds_[tasks_.row(task)] = RowKind::kRun;
    }
  }

  // A row that did not run belongs to the step when it, or another such row that it is connected
  // with, waits for something of the step; also when it waits for nothing that ran at another time.
  void keep_near_rows() {
    DisjointSets connected(kinds_.size());
    const auto did_not_run = [this](uint32_t row) {
      return kinds_[row] != RowKind::kRun && kinds_[row] != RowKind::kOther;
    };
    const EdgeColumns& edges = trace_.edges;
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      const bool is_between =
          did_not_run(edges.producer[edge]) && did_not_run(edges.consumer[edge]);
      if (is_between) connected.unite(edges.producer[edge], edges.consumer[edge]);
    }
    std::vector<bool> is_after(kinds_.size(), false);    // of a set: waits for the step
    std::vector<bool> is_before(kinds_.size(), false);   // the step waits for it
    std::vector<bool> is_foreign(kinds_.size(), false);  // waits for what is not of the step
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      const uint32_t producer = edges.producer[edge];
      const uint32_t consumer = edges.consumer[edge];
      if (kinds_[producer] == RowKind::kRun) is_after[connected.root_of(consumer)] = true;
      if (kinds_[producer] == RowKind::kOther) is_foreign[connected.root_of(consumer)] = true;
      if (kinds_[consumer] == RowKind::kRun) is_before[connected.root_of(producer)] = true;
    }
    for (uint32_t row = 0; row < kinds_.size(); ++row) {
      if (!did_not_run(row)) continue;
      const uint32_t root = connected.root_of(row);
      const bool is_near = is_after[root] || (is_before[root] && !is_foreign[root]);
      if (!is_near) kinds_[row] = RowKind::kOther;
    }
  }

  // By joins and gates, and on Ascend cores by ids: a task that nobody waits for has no join.
  void unite_rows() {
    const EdgeColumns& edges = trace_.edges;
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      const uint32_t producer = edges.producer[edge];
      const uint32_t consumer = edges.consumer[edge];
      const bool is_block_of_join =
          kinds_[consumer] == RowKind::kJoin && kinds_[producer] == RowKind::kRun;
      const bool is_block_after_gate =
          kinds_[producer] == RowKind::kGate && kinds_[consumer] == RowKind::kRun;
      if (is_block_of_join || is_block_after_gate) rows_.unite(producer, consumer);
    }
    std::unordered_map<uint64_t, uint32_t> first_tasks;
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      const uint64_t id = trace_.tasks.id[tasks_.row(task)];
      if (id <= kTaskIdMask || tasks_.task_class(task) == CoreClass::kAny) continue;
      const uint32_t first = first_tasks.try_emplace(id & kTaskIdMask, task).first->second;
      const bool is_same_kind = tasks_.task_class(first) == tasks_.task_class(task);
      if (is_same_kind && tasks_.kernel(first) != tasks_.kernel(task)) continue;
      rows_.unite(tasks_.row(first), tasks_.row(task));
    }
  }

  // Groups stand in the order of their first row.
  void collect_groups() {
    group_of_.assign(kinds_.size(), kNoIndex);
    const std::vector<int64_t>& submits = trace_.tasks.at(TaskTime::kSubmit);
    for (uint32_t row = 0; row < kinds_.size(); ++row) {
      if (kinds_[row] == RowKind::kOther) continue;
      const uint32_t root = rows_.root_of(row);
      if (group_of_[root] == kNoIndex) {
        group_of_[root] = static_cast<uint32_t>(groups_.size());
        groups_.emplace_back();
      }
      group_of_[row] = group_of_[root];
      Group& group = groups_[group_of_[row]];
      group.id = std::min(group.id, trace_.tasks.id[row] & kTaskIdMask);
      if (group.row == kNoIndex) group.row = row;
      if (submits[row] == kAbsent) continue;
      const bool is_first = group.submit_ns == kAbsent || submits[row] < group.submit_ns;
      if (is_first) group.submit_ns = submits[row];
    }
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      Group& group = groups_[group_of_[tasks_.row(task)]];
      group.tasks.push_back(task);
      group.start_ns = std::min(group.start_ns, tasks_.start_ns(task));
    }
  }

  void collect_edges() {
    for (size_t edge = 0; edge < trace_.edges.size(); ++edge) {
      const uint32_t producer = group_of_[trace_.edges.producer[edge]];
      const uint32_t consumer = group_of_[trace_.edges.consumer[edge]];
      if (producer == kNoIndex || consumer == kNoIndex || producer == consumer) continue;
      edges_.emplace_back(producer, consumer);
    }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  }

  // By submit; by id where that is an order in which tasks could have been submitted; by start.
  void order_groups() {
    order_.resize(groups_.size());
    std::iota(order_.begin(), order_.end(), 0u);
    place_.resize(groups_.size());
    made_.is_order_recorded = std::all_of(groups_.begin(), groups_.end(), [](const Group& group) {
      return group.submit_ns != kAbsent;
    });
    if (made_.is_order_recorded) {
      return sort_order([this](uint32_t group) {
        return std::tuple(groups_[group].submit_ns, groups_[group].id, group);
      });
    }
    sort_order([this](uint32_t group) { return std::tuple(groups_[group].id, group); });
    const bool is_possible = std::all_of(edges_.begin(), edges_.end(), [this](const auto& edge) {
      return place_[edge.first] < place_[edge.second];
    });
    if (is_possible) return;
    for (const auto& [producer, consumer] : edges_) {  // a dummy stands before what waits for it
      Group& group = groups_[producer];
      if (group.tasks.empty())
        group.start_ns = std::min(group.start_ns, groups_[consumer].start_ns);
    }
    sort_order([this](uint32_t group) {
      return std::tuple(groups_[group].start_ns, groups_[group].tasks.size(), group);
    });
  }

  template <typename Key>
  void sort_order(Key key) {
    std::sort(order_.begin(), order_.end(),
              [&key](uint32_t a, uint32_t b) { return key(a) < key(b); });
    for (uint32_t place = 0; place < order_.size(); ++place) place_[order_[place]] = place;
  }

  // A trace may have one of the two columns, or none.
  static int64_t amount_of(const std::vector<int64_t>& column, uint32_t row) {
    return column.empty() ? kAbsent : column[row];
  }

  Result<void> check_costs() const {
    const TaskColumns& rows = trace_.tasks;
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      const uint32_t row = tasks_.row(task);
      if (amount_of(rows.bytes, row) != kAbsent || amount_of(rows.flops, row) != kAbsent) continue;
      return fail(ErrorCode::kInvalidInput,
                  "task row {} ({}) has neither bytes nor operations: its time cannot be modelled",
                  row, name_of(tasks_.kernel(task)));
    }
    return {};
  }

  bool is_vector(uint32_t task) const { return tasks_.task_class(task) == CoreClass::kVector; }

  void add_part(Block& block, uint32_t task) const {
    const bool is_first = block.tasks.empty();
    const int64_t start_ns = tasks_.start_ns(task);
    const uint64_t id = trace_.tasks.id[tasks_.row(task)];
    block.first_id = is_first ? id : std::min(block.first_id, id);
    block.last_start_ns = is_first ? start_ns : std::max(block.last_start_ns, start_ns);
    block.last_end_ns =
        is_first ? tasks_.end_ns(task) : std::max(block.last_end_ns, tasks_.end_ns(task));
    ++(is_vector(task) ? block.vector_parts : block.cube_parts);
    const uint32_t kernel = tasks_.kernel(task);
    const bool is_scaled = kernel != kNoIndex && kernel < options_.kernel_scale.size();
    const double scale = is_scaled ? options_.kernel_scale[kernel] : 1.0;
    block.scale = std::max(block.scale, scale);
    if (options_.is_modelled) add_cost(block, task, scale);
    block.tasks.push_back(task);
  }

  void add_cost(Block& block, uint32_t task, double scale) const {
    SimCost& cost = is_vector(task) ? block.vector : block.cube;
    const auto scaled = [scale](int64_t amount) -> int64_t {
      if (amount == kAbsent) return 0;
      return scale == 1.0 ? amount : int64_t{std::llround(static_cast<double>(amount) * scale)};
    };
    const uint32_t row = tasks_.row(task);
    cost.bytes = std::max(cost.bytes, scaled(amount_of(trace_.tasks.bytes, row)));
    cost.flops = std::max(cost.flops, scaled(amount_of(trace_.tasks.flops, row)));
  }

  // The k-th record of a task on each core of a cluster is the cluster's k-th block of it.
  std::vector<Block> mixed_blocks(const Group& group) const {
    std::map<std::pair<uint32_t, uint32_t>, Block> by_cluster;
    std::map<uint32_t, uint32_t> seen;  // by core
    for (const uint32_t task : group.tasks) {
      const uint32_t core = tasks_.core(task);
      add_part(by_cluster[{clusters_[core], seen[core]++}], task);
    }
    std::vector<Block> blocks;
    for (auto& [place, block] : by_cluster) blocks.push_back(std::move(block));
    return blocks;
  }

  // In the order of their ids, which is that of the blocks where ids have numbers of records.
  std::vector<Block> blocks_of(const Group& group, bool is_mixed) const {
    std::vector<Block> blocks;
    if (is_mixed) {
      blocks = mixed_blocks(group);
    } else {
      blocks.resize(group.tasks.size());
      for (size_t i = 0; i < blocks.size(); ++i) add_part(blocks[i], group.tasks[i]);
    }
    std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
      return a.first_id != b.first_id ? a.first_id < b.first_id : a.last_start_ns < b.last_start_ns;
    });
    return blocks;
  }

  void add_tasks() {
    made_.task_of.assign(tasks_.task_count(), kNoIndex);
    made_.block_of.assign(tasks_.task_count(), 0);
    for (const uint32_t index : order_) {
      const Group& group = groups_[index];
      made_.submit_ns.push_back(group.submit_ns);
      if (group.tasks.empty()) {
        ++made_.dummy_count;
        const uint32_t kernel = builder_.add_kernel(name_of(trace_.tasks.kernel[group.row]));
        builder_.add_task({.kernel = kernel, .is_dummy = true});
      } else {
        add_task(group);
      }
    }
  }

  void add_task(const Group& group) {
    const auto vector_count = std::count_if(group.tasks.begin(), group.tasks.end(),
                                            [this](uint32_t task) { return is_vector(task); });
    const bool is_mixed =
        vector_count > 0 && vector_count < static_cast<int64_t>(group.tasks.size());
    const std::vector<Block> blocks = blocks_of(group, is_mixed);
    SimTask task;
    task.shape = is_mixed ? SimShape::kMix : vector_count > 0 ? SimShape::kVector : SimShape::kCube;
    task.kernel = builder_.add_kernel(name_of(kernel_of(group)));
    task.block_count = static_cast<uint32_t>(blocks.size());
    int64_t longest_ns = 0;
    for (const Block& block : blocks) longest_ns = std::max(longest_ns, block.run_ns());
    task.cube.run_ns = longest_ns;
    task.cube.sigma_ns = options_.sigma_ns;
    task.vector = task.cube;
    if (options_.is_modelled) set_modelled(blocks, task);
    const uint32_t number = builder_.add_task(
        task, {}, options_.is_modelled ? modelled_scales(blocks) : scales_of(blocks, longest_ns));
    bool is_whole = true;
    for (uint32_t i = 0; i < blocks.size(); ++i) {
      is_whole =
          is_whole && blocks[i].cube_parts == 1 && blocks[i].vector_parts == cores_.vector_cores();
      for (const uint32_t one : blocks[i].tasks) {
        made_.task_of[one] = number;
        made_.block_of[one] = i;
      }
    }
    if (is_mixed) ++made_.mixed_count;
    if (is_mixed && !is_whole) ++made_.unpaired_count;
  }

  uint32_t kernel_of(const Group& group) const {
    for (const uint32_t task : group.tasks) {
      if (!is_vector(task)) return tasks_.kernel(task);
    }
    return tasks_.kernel(group.tasks.front());
  }

  static void set_modelled(const std::vector<Block>& blocks, SimTask& task) {
    task.cube = {};
    task.vector = {};
    for (const Block& block : blocks) {
      task.cube.bytes = std::max(task.cube.bytes, block.cube.bytes);
      task.cube.flops = std::max(task.cube.flops, block.cube.flops);
      task.vector.bytes = std::max(task.vector.bytes, block.vector.bytes);
      task.vector.flops = std::max(task.vector.flops, block.vector.flops);
    }
  }

  // Of the block with most to do, on the whole.
  static std::vector<uint32_t> modelled_scales(const std::vector<Block>& blocks) {
    double most = 0.0;
    for (const Block& block : blocks) most = std::max(most, block.modelled_amount());
    std::vector<uint32_t> scales;
    for (const Block& block : blocks) {
      const double part = most == 0.0 ? 1.0 : block.modelled_amount() / most;
      scales.push_back(static_cast<uint32_t>(std::llround(part * kWholeBlock)));
    }
    const bool are_equal = std::all_of(scales.begin(), scales.end(),
                                       [](uint32_t scale) { return scale == kWholeBlock; });
    return are_equal ? std::vector<uint32_t>() : scales;
  }

  // Rounded up: the simulator rounds down.
  std::vector<uint32_t> scales_of(const std::vector<Block>& blocks, int64_t longest_ns) const {
    const bool are_equal =
        std::all_of(blocks.begin(), blocks.end(),
                    [longest_ns](const Block& block) { return block.run_ns() == longest_ns; });
    if (are_equal || options_.has_equal_blocks) return {};
    std::vector<uint32_t> scales;
    for (const Block& block : blocks) {
      const double part = static_cast<double>(block.run_ns()) / static_cast<double>(longest_ns);
      scales.push_back(static_cast<uint32_t>(std::ceil(part * kWholeBlock)));
    }
    return scales;
  }

  const Trace& trace_;
  const StepTasks& tasks_;
  const RecordedGraphOptions& options_;
  RecordedCores cores_;
  std::vector<uint32_t> clusters_;  // by core
  std::vector<RowKind> kinds_;      // by row
  DisjointSets rows_;               // those of one task
  std::vector<uint32_t> group_of_;
  std::vector<Group> groups_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // between groups
  std::vector<uint32_t> order_;                       // groups by place
  std::vector<uint32_t> place_;                       // and places by group
  SimGraphBuilder builder_;
  RecordedGraph made_;
};

}  // namespace

RecordedCores recorded_cores(const StepTasks& tasks) {
  RecordedCores cores;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    const CoreClass kind = tasks.core_class(core);
    ++(kind == CoreClass::kCube     ? cores.cube_count
       : kind == CoreClass::kVector ? cores.vector_count
                                    : cores.any_count);
  }
  return cores;
}

std::vector<uint32_t> recorded_clusters(const StepTasks& tasks) {
  const uint32_t vector_cores = std::max(recorded_cores(tasks).vector_cores(), 1u);
  uint32_t vector_count = 0;
  uint32_t other_count = 0;
  std::vector<uint32_t> clusters;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    const bool is_vector = tasks.core_class(core) == CoreClass::kVector;
    clusters.push_back(is_vector ? vector_count++ / vector_cores : other_count++);
  }
  return clusters;
}

Result<RecordedGraph> make_recorded_graph(const Trace& trace, const StepTasks& tasks,
                                          const RecordedGraphOptions& options) {
  return RecordedGraphMaker(trace, tasks, options).make();
}

}  // namespace gapless
