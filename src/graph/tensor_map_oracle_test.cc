// SPDX-License-Identifier: Apache-2.0
//
// Goal: the map misses no ordering that the bytes require and, for rectangles, finds no other.
// Method: random programs. The oracle keeps for each byte its last writer and the readers since. An
// ordering counts as found when a chain of the map's edges implies it, so all is compared as
// transitive closures.

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "graph/tensor_map.h"

namespace gapless {
namespace {

int pick(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

// before[task][other]: `other` comes before `task`, directly or not.
class Closure {
 public:
  void add_task() { before_.emplace_back(before_.size(), false); }
  void add(size_t before, size_t after) {
    before_[after][before] = true;
    for (size_t i = 0; i < before; ++i) {
      if (before_[before][i]) before_[after][i] = true;
    }
  }
  bool has(size_t before, size_t after) const { return before_[after][before]; }
  const std::vector<bool>& of(size_t task) const { return before_[task]; }
  bool operator==(const Closure&) const = default;

 private:
  std::vector<std::vector<bool>> before_;
};

struct Byte {
  int64_t writer = -1;
  std::set<size_t> readers;
};

std::vector<size_t> bytes_of(const View& view) {
  std::set<size_t> bytes;
  const int64_t size = dtype_bytes(view.dtype);
  for (int64_t i = 0; i < element_count(view); ++i) {
    int64_t left = i;
    int64_t element = view.offset;
    for (size_t dimension = view.rank; dimension-- > 0;) {
      element += left % view.shape[dimension] * view.strides[dimension];
      left /= view.shape[dimension];
    }
    for (int64_t byte = 0; byte < size; ++byte) {
      bytes.insert(static_cast<size_t>(element * size + byte));
    }
  }
  return {bytes.begin(), bytes.end()};
}

// What one task must wait for.
struct Required {
  std::set<size_t> written;  // by those whose bytes it reads
  std::set<size_t> all;
};

class Oracle {
 public:
  explicit Oracle(size_t buffer_count) : buffers_(buffer_count) {}

  Required access(size_t task, const std::vector<Argument>& arguments) {
    Required required;
    for (const Argument& argument : arguments) collect(argument, required);
    for (const Argument& argument : arguments) {
      if (writes(argument.access)) continue;
      for (const size_t at : bytes_of(argument.view)) {
        byte(argument.view, at).readers.insert(task);
      }
    }
    for (const Argument& argument : arguments) {
      if (!writes(argument.access)) continue;
      for (const size_t at : bytes_of(argument.view)) {
        byte(argument.view, at) = {static_cast<int64_t>(task), {}};
      }
    }
    return required;
  }

  void forget(BufferId buffer) { buffers_[buffer.index()].clear(); }

 private:
  Byte& byte(const View& view, size_t at) {
    std::vector<Byte>& bytes = buffers_[view.buffer.index()];
    if (at >= bytes.size()) bytes.resize(at + 1);
    return bytes[at];
  }

  void collect(const Argument& argument, Required& required) {
    for (const size_t at : bytes_of(argument.view)) {
      const Byte& touched = byte(argument.view, at);
      if (touched.writer >= 0) {
        required.all.insert(static_cast<size_t>(touched.writer));
        if (reads(argument.access)) required.written.insert(static_cast<size_t>(touched.writer));
      }
      if (writes(argument.access)) {
        required.all.insert(touched.readers.begin(), touched.readers.end());
      }
    }
  }

  std::vector<std::vector<Byte>> buffers_;
};

// Makes views of buffers of up to 512 bytes, each with a shape of its own.
class Views {
 public:
  Views(std::mt19937& random, bool only_rectangles)
      : random_(random), only_rectangles_(only_rectangles) {
    const int buffer_count = pick(random, 1, 3);
    for (int i = 0; i < buffer_count; ++i) buffers_.push_back(whole_of(BufferId{id_of(i)}));
  }

  size_t buffer_count() const { return buffers_.size(); }
  BufferId buffer(size_t i) const { return buffers_[i].buffer; }

  View next() {
    if (!used_.empty() && pick(random_, 0, 1) == 0) return used_[any_of(used_.size())];
    const View& whole = buffers_[any_of(buffers_.size())];
    const bool is_box = only_rectangles_ || pick(random_, 0, 1) == 0;
    used_.push_back(is_box ? box_of(whole) : strided_of(whole));
    return used_.back();
  }

 private:
  static uint32_t id_of(int i) { return static_cast<uint32_t>(i); }
  size_t any_of(size_t count) {
    return static_cast<size_t>(pick(random_, 0, static_cast<int>(count) - 1));
  }

  View whole_of(BufferId buffer) {
    const int kind = pick(random_, 0, 3);
    if (kind == 0) return dense_view(buffer, DType::kU8, {pick(random_, 64, 512)});
    if (kind == 1) return dense_view(buffer, DType::kF32, {pick(random_, 4, 8), 16});
    if (kind == 2) return dense_view(buffer, DType::kBf16, {4, pick(random_, 3, 7), 9});
    return dense_view(buffer, DType::kU8, {3, 4, pick(random_, 2, 6), 7});
  }

  View box_of(const View& whole) {
    View view = whole;
    for (int dimension = 0; dimension < view.rank; ++dimension) {
      if (pick(random_, 0, 2) == 0) continue;  // all of it
      const int extent = view.shape[static_cast<size_t>(dimension)];
      const int begin = pick(random_, 0, extent - 1);
      const int most = std::max(1, (extent - begin) / pick(random_, 1, 3));
      view = slice(view, dimension, begin, pick(random_, 1, most));
    }
    return view;
  }

  // Any strides that stay within the buffer.
  View strided_of(const View& whole) {
    const int64_t size = element_count(whole) * dtype_bytes(whole.dtype);
    while (true) {
      View view;
      view.buffer = whole.buffer;
      view.dtype = pick(random_, 0, 1) == 0 ? DType::kU8 : DType::kBf16;
      view.rank = static_cast<uint8_t>(pick(random_, 0, kMaxRank));
      view.offset = pick(random_, 0, static_cast<int>(size) / 2);
      for (size_t i = 0; i < view.rank; ++i) {
        view.shape[i] = pick(random_, 0, 15) == 0 ? 0 : pick(random_, 1, 6);
        view.strides[i] = pick(random_, -8, 48);
      }
      const std::vector<size_t> bytes = bytes_of_valid(view, size);
      if (!bytes.empty() || element_count(view) == 0) return view;
    }
  }

  // Nothing when the view leaves the buffer.
  static std::vector<size_t> bytes_of_valid(const View& view, int64_t size) {
    int64_t first = view.offset;
    int64_t last = view.offset;
    for (size_t i = 0; i < view.rank; ++i) {
      const int64_t reach = std::max(0, view.shape[i] - 1) * view.strides[i];
      (reach < 0 ? first : last) += reach;
    }
    if (first < 0 || (last + 1) * dtype_bytes(view.dtype) > size) return {};
    return bytes_of(view);
  }

  std::mt19937& random_;
  bool only_rectangles_;
  std::vector<View> buffers_;
  std::vector<View> used_;
};

std::vector<Argument> random_arguments(std::mt19937& random, Views& views) {
  std::vector<Argument> arguments;
  const int count = pick(random, 1, 4);
  for (int i = 0; i < count; ++i) {
    arguments.push_back({views.next(), static_cast<Access>(pick(random, 0, 2))});
  }
  return arguments;
}

struct Outcome {
  size_t required_count = 0;
  size_t edge_count = 0;
  uint64_t swept_count = 0;
};

struct Program {
  bool only_rectangles = false;
  bool forgets = false;
  int task_count = 60;
};

// Both closures of one program, and that each read waits for its writers with a data edge.
void run_program(uint32_t seed, const Program& program, Outcome& outcome) {
  std::mt19937 random(seed);
  Views views(random, program.only_rectangles);
  TensorMap map;
  Oracle oracle(views.buffer_count());
  Closure found;
  Closure required;
  std::vector<Dependency> dependencies;
  for (size_t task = 0; task < static_cast<size_t>(program.task_count); ++task) {
    if (program.forgets && pick(random, 0, 9) == 0) {
      const BufferId buffer =
          views.buffer(static_cast<size_t>(pick(random, 0, 2)) % views.buffer_count());
      map.forget(buffer);
      oracle.forget(buffer);
    }
    const std::vector<Argument> arguments = random_arguments(random, views);
    found.add_task();
    required.add_task();
    dependencies.clear();
    map.access(task, arguments, dependencies);
    std::set<size_t> data;
    for (const Dependency& dependency : dependencies) {
      ASSERT_LT(dependency.task, task) << "seed " << seed;
      found.add(dependency.task, task);
      if (dependency.kind == EdgeKind::kData) data.insert(dependency.task);
    }
    const Required must = oracle.access(task, arguments);
    for (const size_t other : must.all) {
      ASSERT_TRUE(found.has(other, task)) << "seed " << seed << ": " << task << " after " << other;
      required.add(other, task);
    }
    ASSERT_TRUE(std::includes(data.begin(), data.end(), must.written.begin(), must.written.end()))
        << "seed " << seed << ": task " << task << " reads without a data edge";
    if (program.only_rectangles) {
      ASSERT_EQ(found.of(task), required.of(task)) << "seed " << seed << ": task " << task;
    }
    outcome.required_count += must.all.size();
    outcome.edge_count += dependencies.size();
  }
}

TEST(TensorMapOracle, FindsEveryOrderingThatBytesRequire) {
  Outcome outcome;
  for (uint32_t seed = 0; seed < test_effort(1500); ++seed) {
    run_program(seed, {}, outcome);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(outcome.required_count, test_effort(10000));
}

TEST(TensorMapOracle, FindsNothingElseForRectangles) {
  Outcome outcome;
  for (uint32_t seed = 0; seed < test_effort(1500); ++seed) {
    run_program(seed, {.only_rectangles = true}, outcome);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(outcome.required_count, test_effort(10000));
}

TEST(TensorMapOracle, AgreesWhenBuffersGoAndComeBack) {
  Outcome outcome;
  for (uint32_t seed = 0; seed < test_effort(500); ++seed) {
    run_program(seed, {.only_rectangles = seed % 2 == 0, .forgets = true}, outcome);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(outcome.required_count, test_effort(1000));
}

// Small tiles, and large ones that cover many of them again and again: what the map drops then must
// not have been needed.
TEST(TensorMapOracle, AgreesWhenSlicesAreCoveredAgainAndAgain) {
  const View whole = dense_view(BufferId{0}, DType::kU8, {8, 16});
  uint64_t swept_count = 0;
  for (uint32_t seed = 0; seed < test_effort(200); ++seed) {
    std::mt19937 random(seed);
    TensorMap map;
    Oracle oracle(1);
    Closure found;
    Closure required;
    std::vector<Dependency> dependencies;
    for (size_t task = 0; task < 200; ++task) {
      std::vector<Argument> arguments;
      for (int i = pick(random, 1, 3); i > 0; --i) {
        const int largest = pick(random, 0, 3) == 0 ? 8 : 2;
        const int row = pick(random, 0, 8 - largest);
        const int column = pick(random, 0, 16 - 2 * largest);
        const Tile part = {.row = row, .rows = largest, .column = column, .columns = 2 * largest};
        arguments.push_back({tile(whole, part), static_cast<Access>(pick(random, 0, 2))});
      }
      found.add_task();
      required.add_task();
      dependencies.clear();
      map.access(task, arguments, dependencies);
      for (const Dependency& dependency : dependencies) found.add(dependency.task, task);
      for (const size_t other : oracle.access(task, arguments).all) required.add(other, task);
      ASSERT_EQ(found.of(task), required.of(task)) << "seed " << seed << ": task " << task;
    }
    swept_count += map.stats().swept_count;
  }
  EXPECT_GT(swept_count, test_effort(1000));
}

bool is_not_done(const void* owner, uint64_t task) {
  return task >= *static_cast<const uint64_t*>(owner);
}

// Small tiles of a buffer of 64 x 64 bytes: thousands of distinct views, so that the map sweeps.
View small_tile(std::mt19937& random) {
  const View whole = dense_view(BufferId{0}, DType::kU8, {64, 64});
  const int row = pick(random, 0, 63);
  const int column = pick(random, 0, 63);
  return tile(whole, {.row = row,
                      .rows = pick(random, 1, std::min(6, 64 - row)),
                      .column = column,
                      .columns = pick(random, 1, std::min(6, 64 - column))});
}

void run_with_done_tasks(uint32_t seed, Outcome& outcome) {
  std::mt19937 random(seed);
  uint64_t done_count = 0;
  TensorMap map(is_not_done, &done_count);
  Oracle oracle(1);
  Closure found;
  Closure required;
  std::vector<Dependency> dependencies;
  // The closures cost the square of it.
  const size_t task_count = kSanitized ? 2000 : 6000;
  for (size_t task = 0; task < task_count; ++task) {
    if (pick(random, 0, 49) == 0) {
      done_count =
          static_cast<uint64_t>(pick(random, static_cast<int>(done_count), static_cast<int>(task)));
    }
    std::vector<Argument> arguments;
    const int count = pick(random, 1, 3);
    for (int i = 0; i < count; ++i) {
      arguments.push_back({small_tile(random), static_cast<Access>(pick(random, 0, 2))});
    }
    found.add_task();
    required.add_task();
    dependencies.clear();
    map.access(task, arguments, dependencies);
    for (const Dependency& dependency : dependencies) found.add(dependency.task, task);
    const Required must = oracle.access(task, arguments);
    for (const size_t other : must.all) required.add(other, task);
    outcome.required_count += must.all.size();
    if (kSanitized && task % 16 != 0) continue;
    for (size_t other = 0; other < task; ++other) {
      ASSERT_TRUE(required.has(other, task) || !found.has(other, task)) << "seed " << seed;
      if (other < done_count) continue;
      ASSERT_EQ(found.has(other, task), required.has(other, task)) << "seed " << seed;
    }
  }
  outcome.swept_count += map.stats().swept_count;
}

TEST(TensorMapOracle, AgreesOnTasksThatAreNotDone) {
  Outcome outcome;
  for (uint32_t seed = 0; seed < test_effort(4); ++seed) {
    run_with_done_tasks(seed, outcome);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(outcome.required_count, test_effort(1000));
  EXPECT_GT(outcome.swept_count, test_effort(1000));
}

}  // namespace
}  // namespace gapless
