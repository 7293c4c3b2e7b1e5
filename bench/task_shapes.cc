// SPDX-License-Identifier: Apache-2.0

#include "bench/task_shapes.h"

#include <utility>

#include <fmt/core.h>

#include "base/check.h"

namespace gapless {
namespace {

struct Edge {
  uint32_t producer = 0;
  uint32_t consumer = 0;
};

uint32_t task_number(int64_t value) {
  GAPLESS_CHECK(value >= 0);
  GAPLESS_CHECK(value <= int64_t{UINT32_MAX});
  return static_cast<uint32_t>(value);
}

// `edges` must ascend by consumer for each producer, which makes its successors ascend.
TaskShape build_shape(std::string name, uint32_t task_count, const std::vector<Edge>& edges) {
  TaskShape shape;
  shape.name = std::move(name);
  shape.task_count = task_count;
  shape.producer_count.assign(task_count, 0);
  shape.successor_begin.assign(task_count + size_t{1}, 0);
  shape.successors.resize(edges.size());
  for (const Edge& edge : edges) {
    GAPLESS_CHECK(edge.producer < edge.consumer);
    GAPLESS_CHECK(edge.consumer < task_count);
    ++shape.producer_count[edge.consumer];
    ++shape.successor_begin[edge.producer + size_t{1}];
  }
  for (size_t task = 0; task < task_count; ++task) {
    shape.successor_begin[task + 1] += shape.successor_begin[task];
  }
  std::vector<uint32_t> place(shape.successor_begin.begin(), shape.successor_begin.end() - 1);
  for (const Edge& edge : edges) shape.successors[place[edge.producer]++] = edge.consumer;
  return shape;
}

void do_nothing(void*, uint32_t) {}

}  // namespace

TaskShape wavefront_shape(int side) {
  std::vector<Edge> edges;
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column < side; ++column) {
      const int64_t task = int64_t{row} * side + column;
      if (row > 0) edges.push_back({task_number(task - side), task_number(task)});
      if (column > 0) edges.push_back({task_number(task - 1), task_number(task)});
    }
  }
  return build_shape(fmt::format("wavefront {}x{}", side, side), task_number(int64_t{side} * side),
                     edges);
}

TaskShape chain_shape(int task_count) {
  std::vector<Edge> edges;
  for (int task = 1; task < task_count; ++task) {
    edges.push_back({task_number(task - 1), task_number(task)});
  }
  return build_shape(fmt::format("chain {}", task_count), task_number(task_count), edges);
}

TaskShape layered_shape(const LayeredShapeArgs& args) {
  std::vector<Edge> edges;
  const int64_t layer_tasks = int64_t{args.width} + 1;
  for (int layer = 0; layer < args.layer_count; ++layer) {
    const int64_t first = layer * layer_tasks;
    const uint32_t join = task_number(first + args.width);
    for (int i = 0; i < args.width; ++i) {
      if (layer > 0) edges.push_back({task_number(first - 1), task_number(first + i)});
      edges.push_back({task_number(first + i), join});
    }
  }
  const std::string name =
      args.name.empty() ? fmt::format("layers {}x{}", args.layer_count, args.width) : args.name;
  return build_shape(name, task_number(args.layer_count * layer_tasks), edges);
}

TaskShape decode_shape() {
  return layered_shape({.name = "decode 38720", .layer_count = 160, .width = 241});
}

std::vector<TaskShape> all_task_shapes() {
  std::vector<TaskShape> shapes;
  shapes.push_back(wavefront_shape(200));
  shapes.push_back(chain_shape(10'000));
  shapes.push_back(layered_shape({.layer_count = 40, .width = 224}));
  shapes.push_back(decode_shape());
  return shapes;
}

TaskBody empty_task_body() {
  void (*volatile function)(void*, uint32_t) = do_nothing;
  return {.function = function, .state = nullptr};
}

}  // namespace gapless
