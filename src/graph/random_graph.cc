// SPDX-License-Identifier: Apache-2.0

#include "graph/random_graph.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <utility>

#include "base/check.h"
#include "graph/graph_builder.h"
#include "graph/task_context.h"

namespace gapless {
namespace {

// What predicates and scalars read when a task starts.
constexpr std::array<int64_t, 2> kPredicateValues = {0, 1};
constexpr int64_t kScalarValue = 0x5deece66d;
constexpr size_t kMaxDepth = 3;

template <typename T>
T must(Result<T> result) {
  GAPLESS_CHECK(result.has_value());
  return std::move(result).value();
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// An argument as rows of elements, whether it has one dimension or two.
class Rows {
 public:
  Rows(const TaskContext& context, int argument) : tensor_(context.tensor<int64_t>(argument)) {}
  int64_t row_count() const { return tensor_.extent(0); }
  int64_t column_count() const { return tensor_.rank() == 1 ? 1 : tensor_.extent(1); }
  uint64_t load(int64_t row, int64_t column) const {
    return static_cast<uint64_t>(tensor_.rank() == 1 ? tensor_.load(row)
                                                     : tensor_.load(row, column));
  }
  void store(uint64_t value, int64_t row, int64_t column) const {
    if (tensor_.rank() == 1) {
      tensor_.store(static_cast<int64_t>(value), row);
    } else {
      tensor_.store(static_cast<int64_t>(value), row, column);
    }
  }

 private:
  TensorRef<int64_t> tensor_;
};

uint64_t digest_of_inputs(const TaskContext& context) {
  uint64_t digest = 0;
  for (int i = 0; i < context.scalar_count(); ++i) {
    digest = mix(digest + static_cast<uint64_t>(context.scalar(i)));
  }
  for (int i = 0; i < context.argument_count(); ++i) {
    if (context.argument(i).access != Access::kIn) continue;
    const Rows input(context, i);
    for (int64_t row = 0; row < input.row_count(); ++row) {
      for (int64_t column = 0; column < input.column_count(); ++column) {
        digest = digest * 0x9e3779b97f4a7c15 + input.load(row, column);
      }
    }
  }
  return digest;
}

// Writes the block's share of the rows: y = hash, or y = y * odd + hash where y was there before.
template <uint64_t kOdd>
void mix_task(TaskContext& context) {
  static_assert(kOdd % 2 == 1);
  const uint64_t digest = digest_of_inputs(context);
  for (int i = 0; i < context.argument_count(); ++i) {
    const Access access = context.argument(i).access;
    if (!writes(access)) continue;
    const Rows output(context, i);
    const int64_t begin = output.row_count() * context.block_index() / context.block_count();
    const int64_t end = output.row_count() * (context.block_index() + 1) / context.block_count();
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t column = 0; column < output.column_count(); ++column) {
        const uint64_t place =
            static_cast<uint64_t>((i * output.row_count() + row) * output.column_count() + column);
        const uint64_t old = reads(access) ? output.load(row, column) * kOdd : 0;
        output.store(old + mix(digest + place), row, column);
      }
    }
  }
}

class RandomProgram {
 public:
  RandomProgram(uint64_t seed, const RandomGraphOptions& options);
  Graph make();

 private:
  struct KnownBuffer {
    BufferId id;
    int64_t rows = 0;
    int64_t columns = 0;
  };

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  bool happens(double share) { return static_cast<double>(random_() >> 11) * 0x1p-53 < share; }

  void add_buffer(BufferKind kind);
  void fill(const KnownBuffer& buffer);
  void keep(const KnownBuffer& buffer);
  View random_view(const KnownBuffer& buffer);
  std::vector<Argument> random_arguments();
  void add_random_task();
  void begin_scope();
  void end_scope();

  RandomGraphOptions options_;
  std::mt19937_64 random_;
  GraphBuilder builder_;
  std::vector<KernelId> kernels_;
  std::vector<KnownBuffer> buffers_;  // those that may be used now
  std::vector<size_t> outer_counts_;  // how many there were when each open scope began
  int name_count_ = 0;
};

RandomProgram::RandomProgram(uint64_t seed, const RandomGraphOptions& options)
    : options_(options), random_(seed), builder_({.reduce_edges = options.reduce_edges}) {
  kernels_.push_back(must(builder_.add_kernel("fill", mix_task<1>)));
  kernels_.push_back(must(builder_.add_kernel("mix_3", mix_task<3>)));
  kernels_.push_back(must(builder_.add_kernel("mix_5", mix_task<5>)));
}

void RandomProgram::add_buffer(BufferKind kind) {
  const int64_t columns = std::min(int64_t{1} << below(5), options_.elements);
  const int64_t rows = options_.elements / columns;
  const std::string name =
      fmt::format("{}{}", kind == BufferKind::kExternal ? 'x' : 'y', name_count_++);
  const int64_t bytes = rows * columns * dtype_bytes(DType::kS64);
  const BufferId id = must(builder_.add_buffer({.name = name, .kind = kind, .bytes = bytes}));
  buffers_.push_back({id, rows, columns});
  if (kind == BufferKind::kIntermediate) fill(buffers_.back());
}

void RandomProgram::fill(const KnownBuffer& buffer) {
  const Argument whole = out(dense_view(buffer.id, DType::kS64, {buffer.rows, buffer.columns}));
  const Scalar salt = Scalar::fixed(static_cast<int64_t>(random_()));
  must(builder_.add_task({.kernel = kernels_[0], .arguments = {&whole, 1}, .scalars = {&salt, 1}}));
}

// Mixes all of an intermediate into an external buffer: what went wrong in it is seen outside.
void RandomProgram::keep(const KnownBuffer& buffer) {
  const KnownBuffer& external = buffers_.front();
  const std::array<Argument, 2> arguments = {
      in(dense_view(buffer.id, DType::kS64, {buffer.rows, buffer.columns})),
      inout(dense_view(external.id, DType::kS64, {external.rows, external.columns}))};
  must(builder_.add_task({.kernel = kernels_[1], .arguments = arguments}));
}

View RandomProgram::random_view(const KnownBuffer& buffer) {
  const View whole = dense_view(buffer.id, DType::kS64, {buffer.rows, buffer.columns});
  if (happens(0.2)) return whole;
  const int64_t row = below(buffer.rows);
  const int64_t rows = 1 + below(buffer.rows - row);
  if (happens(0.2)) {  // whole rows as one dimension
    const View flat = dense_view(buffer.id, DType::kS64, {buffer.rows * buffer.columns});
    return slice(flat, 0, row * buffer.columns, rows * buffer.columns);
  }
  const int64_t column = happens(0.3) ? 0 : below(buffer.columns);
  const int64_t columns = 1 + below(buffer.columns - column);
  return tile(whole, {.row = row, .rows = rows, .column = column, .columns = columns});
}

// Buffers that are written are named once, so that the blocks of a task never meet.
std::vector<Argument> RandomProgram::random_arguments() {
  std::vector<KnownBuffer> buffers = buffers_;
  const int64_t most = std::min<int64_t>(2, static_cast<int64_t>(buffers.size()));
  const int64_t written_count = 1 + below(most);
  std::vector<Argument> arguments;
  for (int64_t i = 0; i < written_count; ++i) {
    const int64_t chosen = below(static_cast<int64_t>(buffers.size()));
    const View view = random_view(buffers[static_cast<size_t>(chosen)]);
    arguments.push_back(happens(0.3) ? out(view) : inout(view));
    buffers.erase(buffers.begin() + chosen);
  }
  const int64_t read_count = buffers.empty() ? 0 : below(4);
  for (int64_t i = 0; i < read_count; ++i) {
    const size_t buffer = static_cast<size_t>(below(static_cast<int64_t>(buffers.size())));
    arguments.push_back(in(random_view(buffers[buffer])));
  }
  return arguments;
}

void RandomProgram::add_random_task() {
  const std::vector<Argument> arguments = random_arguments();
  std::vector<Scalar> scalars = {Scalar::fixed(static_cast<int64_t>(random_()))};
  if (happens(0.2)) scalars.push_back(Scalar::read_from(&kScalarValue));
  TaskSpec spec = {.kernel = kernels_[static_cast<size_t>(1 + below(2))],
                   .arguments = arguments,
                   .scalars = scalars};
  if (happens(options_.spmd_share)) spec.block_count = static_cast<int32_t>(2 + below(5));
  if (happens(options_.predicate_share)) {
    spec.predicate = {&kPredicateValues[static_cast<size_t>(below(2))], Comparison::kNotEqual, 0};
  }
  TaskId before;
  if (builder_.task_count() > 0 && happens(options_.after_share)) {
    before.id = static_cast<uint32_t>(below(builder_.task_count()));
    spec.after = {&before, 1};
  }
  if (happens(0.5)) spec.cost = {.bytes = 8 + below(1000), .flops = below(50000)};
  must(builder_.add_task(spec));
}

void RandomProgram::begin_scope() {
  builder_.begin_scope();
  outer_counts_.push_back(buffers_.size());
  add_buffer(BufferKind::kIntermediate);
}

void RandomProgram::end_scope() {
  keep(buffers_.back());
  GAPLESS_CHECK(builder_.end_scope().has_value());
  buffers_.resize(outer_counts_.back());
  outer_counts_.pop_back();
}

Graph RandomProgram::make() {
  for (int i = 0; i < options_.buffer_count; ++i) {
    add_buffer(i % 2 == 0 ? BufferKind::kExternal : BufferKind::kIntermediate);
  }
  while (builder_.task_count() < static_cast<uint32_t>(options_.task_count)) {
    if (outer_counts_.size() < kMaxDepth && happens(options_.scope_share)) {
      begin_scope();
    } else if (!outer_counts_.empty() && happens(options_.scope_share)) {
      end_scope();
    } else {
      add_random_task();
    }
  }
  while (!outer_counts_.empty()) end_scope();
  for (size_t i = 1; i < buffers_.size(); i += 2) keep(buffers_[i]);
  return must(builder_.finish());
}

}  // namespace

Graph make_random_graph(uint64_t seed, const RandomGraphOptions& options) {
  GAPLESS_CHECK(options.buffer_count >= 1);
  GAPLESS_CHECK(options.elements >= 1);
  return RandomProgram(seed, options).make();
}

Graph make_graph_of_edges(uint32_t task_count, std::vector<GraphEdge> edges) {
  Graph graph;
  graph.scopes.push_back({.end_task = task_count});
  const KernelId kernel = must(graph.kernels.add("task", nullptr));
  graph.tasks.resize(task_count, {.kernel = kernel});
  GAPLESS_CHECK(set_edges(graph, std::move(edges)).has_value());
  return graph;
}

Graph make_random_edges(uint64_t seed, uint32_t task_count, uint32_t edge_count) {
  GAPLESS_CHECK(task_count >= 2);
  std::mt19937_64 random(seed);
  std::vector<GraphEdge> edges;
  for (uint32_t i = 0; i < edge_count; ++i) {
    const uint32_t consumer = static_cast<uint32_t>(1 + random() % (task_count - 1));
    const uint32_t producer = static_cast<uint32_t>(random() % consumer);
    edges.push_back({producer, consumer, static_cast<EdgeKind>(random() % 3)});
  }
  return make_graph_of_edges(task_count, std::move(edges));
}

Closure::Closure(const Graph& graph)
    : reached_(graph.task_count(), std::vector<bool>(graph.task_count(), false)) {
  std::vector<uint32_t> to_visit;
  for (uint32_t from = 0; from < graph.task_count(); ++from) {
    to_visit.assign(1, from);
    while (!to_visit.empty()) {
      const uint32_t task = to_visit.back();
      to_visit.pop_back();
      for (const Edge& edge : graph.successors_of(task)) {
        if (reached_[from][edge.task]) continue;
        reached_[from][edge.task] = true;
        to_visit.push_back(edge.task);
      }
    }
  }
}

}  // namespace gapless
