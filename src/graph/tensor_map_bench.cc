// SPDX-License-Identifier: Apache-2.0
//
// What it costs to find whom a task must wait for, with 1 to 10,000 slices of one buffer alive.
//
// Warm: the slices are known and are updated in turn. Fresh: the buffer is forgotten and all its
// slices are entered again; the figure has the forgetting in it. The peer keeps one list for each
// base address, as simpler's tensor map does, and goes over all that is alive: first the interval
// of bytes, then each dimension. Each access moves the view of one argument to the next slice.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/measurement.h"
#include "graph/tensor_map.h"

namespace gapless {
namespace {

constexpr std::array<int64_t, 8> kSliceCounts = {1, 4, 16, 68, 224, 1024, 4096, 10000};
constexpr int64_t kPeerSlices = 1024;  // beyond it the peer takes most of the run
constexpr int64_t kSliceRows = 16;
constexpr int64_t kSliceColumns = 256;
constexpr double kGoalNs = 100.0;
constexpr double kFlatGoal = 3.0;  // caches: one slice is in the first level, 10,000 are not

enum class Shape { kOneDimension, kColumnSlices };

// The first slice of `count`; slice i begins i * kSliceColumns elements later.
View first_slice(BufferId buffer, Shape shape, int64_t count) {
  if (shape == Shape::kOneDimension) {
    return slice(dense_view(buffer, DType::kBf16, {count * kSliceColumns}), 0, 0, kSliceColumns);
  }
  const View whole = dense_view(buffer, DType::kBf16, {kSliceRows, count * kSliceColumns});
  return slice(whole, 1, 0, kSliceColumns);
}

// A list of what was written to one base address. An update takes the place of what it covers.
class ListMap {
 public:
  void access(uint64_t task, const Argument& argument, std::vector<Dependency>& found) {
    const Entry asked = entry_of(argument.view, task);
    int32_t* to = &first_;
    while (*to >= 0) {
      Entry& entry = entries_[static_cast<size_t>(*to)];
      if (!meets(entry, asked)) {
        to = &entry.next;
        continue;
      }
      found.push_back({entry.writer, EdgeKind::kData});
      const int32_t taken = *to;
      *to = entry.next;
      entry.next = free_;
      free_ = taken;
    }
    if (free_ < 0) {
      free_ = static_cast<int32_t>(entries_.size());
      entries_.emplace_back();
    }
    const int32_t added = free_;
    free_ = entries_[static_cast<size_t>(added)].next;
    entries_[static_cast<size_t>(added)] = asked;
    entries_[static_cast<size_t>(added)].next = first_;
    first_ = added;
  }

 private:
  struct Entry {
    int64_t begin = 0;  // in elements, from the first to one past the last
    int64_t end = 0;
    uint64_t writer = 0;
    std::array<int64_t, kMaxRank> begins = {};  // in each dimension
    std::array<int64_t, kMaxRank> ends = {};
    uint32_t rank = 0;
    int32_t next = -1;
  };

  static Entry entry_of(const View& view, uint64_t task) {
    Entry entry{.begin = view.offset, .end = view.offset + 1, .writer = task, .rank = view.rank};
    int64_t left = view.offset;
    for (size_t i = 0; i < view.rank; ++i) {
      entry.end += (view.shape[i] - 1) * view.strides[i];
      entry.begins[i] = left / view.strides[i];
      entry.ends[i] = entry.begins[i] + view.shape[i];
      left %= view.strides[i];
    }
    return entry;
  }

  // For views of equal strides.
  static bool meets(const Entry& a, const Entry& b) {
    if (a.end <= b.begin || b.end <= a.begin) return false;
    for (size_t i = 0; i < a.rank; ++i) {
      if (a.ends[i] <= b.begins[i] || b.ends[i] <= a.begins[i]) return false;
    }
    return true;
  }

  std::vector<Entry> entries_;
  int32_t first_ = -1;
  int32_t free_ = -1;
};

double per_access_ns(int64_t begin_ns, int64_t accesses) {
  return static_cast<double>(thread_cpu_ns() - begin_ns) / static_cast<double>(accesses);
}

int64_t turns_of(int64_t accesses, int64_t slices) {
  return std::max(int64_t{1}, accesses / slices);
}

struct Slices {
  Argument first;
  int64_t count = 0;
  Argument at(int64_t i) const {
    Argument argument = first;
    argument.view.offset += i * kSliceColumns;
    return argument;
  }
};

// One update of each slice beforehand; then `accesses` of them in turn must each find one writer.
template <typename AccessFunction>
Result<double> time_warm(const Slices& slices, int64_t accesses, AccessFunction access) {
  const int64_t turns = turns_of(accesses, slices.count);
  std::vector<Dependency> found;
  uint64_t task = 0;
  for (int64_t i = 0; i < slices.count; ++i) access(++task, slices.at(i), found);
  size_t found_count = 0;
  const int64_t begin_ns = thread_cpu_ns();
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int64_t i = 0; i < slices.count; ++i) {
      found.clear();
      access(++task, slices.at(i), found);
      found_count += found.size();
    }
  }
  const double ns = per_access_ns(begin_ns, turns * slices.count);
  if (found_count == static_cast<size_t>(turns * slices.count)) return ns;
  return fail(ErrorCode::kInvalidInput, "{} slices: {} of {} writers were found", slices.count,
              found_count, turns * slices.count);
}

Result<double> time_fresh(const Slices& slices, int64_t accesses) {
  const int64_t turns = turns_of(accesses, slices.count);
  TensorMap map;
  std::vector<Dependency> found;
  uint64_t task = 0;
  int64_t begin_ns = 0;
  for (int64_t turn = 0; turn <= turns; ++turn) {
    if (turn == 1) begin_ns = thread_cpu_ns();  // the memory is there after the first
    for (int64_t i = 0; i < slices.count; ++i) {
      const Argument argument = slices.at(i);
      map.access(++task, {&argument, 1}, found);
    }
    map.forget(slices.first.view.buffer);
  }
  const double ns = per_access_ns(begin_ns, turns * slices.count);
  if (found.empty()) return ns;
  return fail(ErrorCode::kInvalidInput, "{} slices: {} writers after forgetting", slices.count,
              found.size());
}

// Tasks read a slice of two buffers and write the same slice of a third. The buffers change places
// after each turn, so that every slice is written once and read twice in three turns.
Result<double> time_three_arguments(int64_t slice_count, int64_t accesses) {
  std::array<View, 3> first;
  for (uint32_t i = 0; i < 3; ++i) {
    first[i] = first_slice(BufferId{i}, Shape::kColumnSlices, slice_count);
  }
  const int64_t turns = 3 * turns_of(accesses, 3 * slice_count);
  TensorMap map;
  std::vector<Dependency> found;
  uint64_t task = 0;
  size_t found_count = 0;
  int64_t begin_ns = 0;
  for (int64_t turn = 0; turn < turns + 3; ++turn) {
    if (turn == 3) begin_ns = thread_cpu_ns();
    if (turn == 3) found_count = 0;
    std::array<Argument, 3> arguments = {in(first[0]), in(first[1]), out(first[2])};
    for (int64_t i = 0; i < slice_count; ++i) {
      found.clear();
      map.access(++task, arguments, found);
      found_count += found.size();
      for (Argument& argument : arguments) argument.view.offset += kSliceColumns;
    }
    std::rotate(first.begin(), first.begin() + 1, first.end());
  }
  const double ns = per_access_ns(begin_ns, turns * slice_count);
  // Two writers, and two readers of what is written.
  if (found_count == static_cast<size_t>(4 * turns * slice_count)) return ns;
  return fail(ErrorCode::kInvalidInput, "{} slices: {} dependencies, {} expected", slice_count,
              found_count, 4 * turns * slice_count);
}

struct Case {
  Shape shape = Shape::kOneDimension;
  Slices slices = {};
  Figure warm{"ns", {}};
  Figure fresh{"ns", {}};
  Figure three{"ns", {}};  // columns only
  Figure peer{"ns", {}};
};

Result<void> run_round(Case& one, bool quick) {
  const int64_t accesses = quick ? 20'000 : 400'000;
  TensorMap map;
  const auto access = [&map](uint64_t task, const Argument& argument,
                             std::vector<Dependency>& found) {
    map.access(task, {&argument, 1}, found);
  };
  one.warm.values.push_back(GAPLESS_TRY(time_warm(one.slices, accesses, access)));
  one.fresh.values.push_back(GAPLESS_TRY(time_fresh(one.slices, accesses)));
  if (one.shape == Shape::kColumnSlices) {
    one.three.values.push_back(GAPLESS_TRY(time_three_arguments(one.slices.count, accesses / 2)));
  }
  if (one.slices.count > kPeerSlices) return {};
  ListMap list;
  const auto list_access = [&list](uint64_t task, const Argument& argument,
                                   std::vector<Dependency>& found) {
    list.access(task, argument, found);
  };
  const int64_t peer_accesses = std::max(one.slices.count, accesses / (one.slices.count + 8));
  one.peer.values.push_back(GAPLESS_TRY(time_warm(one.slices, peer_accesses, list_access)));
  return {};
}

std::string shape_name(Shape shape) {
  return shape == Shape::kOneDimension ? "1-D slices" : "2-D column slices";
}

void add_rows(const Case& one, std::vector<Row>& rows) {
  const std::string what = fmt::format("{} {}", one.slices.count, shape_name(one.shape));
  Row warm{"tensor map", what + ", known", one.warm, "", {}, "", {}, ""};
  if (!one.peer.values.empty()) compare(warm, "list by address", one.peer);
  rows.push_back(expect_at_most(warm, kGoalNs));
  Row fresh{"tensor map", what + ", new", one.fresh, "", {}, "", {}, ""};
  rows.push_back(expect_at_most(fresh, kGoalNs));
  if (one.shape != Shape::kColumnSlices) return;
  Row three{"tensor map", what + ", in, in, out", one.three, "", {}, "", {}, ""};
  three.note = "a task of three arguments";
  rows.push_back(expect_at_most(three, kGoalNs));
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  std::vector<Case> cases;
  for (const Shape shape : {Shape::kOneDimension, Shape::kColumnSlices}) {
    for (const int64_t count : kSliceCounts) {
      const Argument update = inout(first_slice(BufferId{0}, shape, count));
      cases.push_back({.shape = shape, .slices = {update, count}});
    }
  }
  const int round_count = options.quick ? 1 : 7;
  for (int round = 0; round < round_count; ++round) {
    for (Case& one : cases) GAPLESS_TRY(run_round(one, options.quick));
  }
  std::vector<Row> rows;
  for (const Case& one : cases) add_rows(one, rows);
  for (size_t last = kSliceCounts.size() - 1; last < cases.size(); last += kSliceCounts.size()) {
    Row flat{"tensor map", "", cases[last].warm, "", {}, "", {}, ""};
    flat.what =
        fmt::format("{} {} against 1", cases[last].slices.count, shape_name(cases[last].shape));
    compare(flat, "1 slice", cases[last + 1 - kSliceCounts.size()].warm);
    rows.push_back(expect_ratio_at_most(flat, kFlatGoal));
  }
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
