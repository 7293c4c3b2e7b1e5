// SPDX-License-Identifier: Apache-2.0

#include "bench/task_shapes.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::vector<uint32_t> successors_of(const TaskShape& shape, uint32_t task) {
  return {shape.successors.begin() + shape.successor_begin[task],
          shape.successors.begin() + shape.successor_begin[task + size_t{1}]};
}

// How many tasks can run at all: those on a cycle, and those behind one, never get ready.
size_t count_reachable(const TaskShape& shape) {
  std::vector<uint32_t> waiting_for = shape.producer_count;
  std::vector<uint32_t> ready;
  for (uint32_t task = 0; task < shape.task_count; ++task) {
    if (waiting_for[task] == 0) ready.push_back(task);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (const uint32_t successor : successors_of(shape, ready[i])) {
      if (--waiting_for[successor] == 0) ready.push_back(successor);
    }
  }
  return ready.size();
}

TEST(TaskShapes, HaveTheStatedNumberOfTasksAndEdges) {
  const std::vector<TaskShape> shapes = all_task_shapes();
  ASSERT_EQ(shapes.size(), 4u);
  EXPECT_EQ(shapes[0].name, "wavefront 200x200");
  EXPECT_EQ(shapes[0].task_count, 40'000u);
  EXPECT_EQ(shapes[0].successors.size(), 2u * 200u * 199u);
  EXPECT_EQ(shapes[1].name, "chain 10000");
  EXPECT_EQ(shapes[1].task_count, 10'000u);
  EXPECT_EQ(shapes[1].successors.size(), 9'999u);
  EXPECT_EQ(shapes[2].name, "layers 40x224");
  EXPECT_EQ(shapes[2].task_count, 9'000u);
  EXPECT_EQ(shapes[2].successors.size(), (40u + 39u) * 224u);
  EXPECT_EQ(shapes[3].name, "decode 38720");
  EXPECT_EQ(shapes[3].task_count, 38'720u);
  EXPECT_EQ(shapes[3].successors.size(), (160u + 159u) * 241u);
}

TEST(TaskShapes, HaveNoCycle) {
  for (const TaskShape& shape : all_task_shapes()) {
    EXPECT_EQ(count_reachable(shape), shape.task_count) << shape.name;
  }
}

TEST(TaskShapes, NumberTasksInALegalOrder) {
  for (const TaskShape& shape : all_task_shapes()) {
    for (uint32_t task = 0; task < shape.task_count; ++task) {
      const std::vector<uint32_t> successors = successors_of(shape, task);
      EXPECT_TRUE(std::is_sorted(successors.begin(), successors.end())) << shape.name;
      EXPECT_TRUE(successors.empty() || successors.front() > task) << shape.name;
    }
  }
}

TEST(TaskShapes, CountTheProducersThatTheirEdgesName) {
  for (const TaskShape& shape : all_task_shapes()) {
    std::vector<uint32_t> producer_count(shape.task_count);
    for (const uint32_t successor : shape.successors) ++producer_count[successor];
    EXPECT_EQ(producer_count, shape.producer_count) << shape.name;
    ASSERT_EQ(shape.successor_begin.size(), shape.task_count + size_t{1});
    EXPECT_EQ(shape.successor_begin.back(), shape.successors.size());
  }
}

TEST(TaskShapes, CrossAGridAsAWave) {
  const TaskShape shape = wavefront_shape(3);
  EXPECT_EQ(shape.producer_count, (std::vector<uint32_t>{0, 1, 1, 1, 2, 2, 1, 2, 2}));
  EXPECT_EQ(successors_of(shape, 0), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(successors_of(shape, 4), (std::vector<uint32_t>{5, 7}));
  EXPECT_EQ(successors_of(shape, 8), std::vector<uint32_t>{});
}

TEST(TaskShapes, JoinEachLayerBeforeTheNext) {
  const TaskShape shape = layered_shape({.layer_count = 2, .width = 2});
  EXPECT_EQ(shape.producer_count, (std::vector<uint32_t>{0, 0, 2, 1, 1, 2}));
  EXPECT_EQ(successors_of(shape, 0), (std::vector<uint32_t>{2}));
  EXPECT_EQ(successors_of(shape, 1), (std::vector<uint32_t>{2}));
  EXPECT_EQ(successors_of(shape, 2), (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(successors_of(shape, 4), (std::vector<uint32_t>{5}));
}

TEST(TaskShapes, MayBeSmall) {
  EXPECT_EQ(chain_shape(1).task_count, 1u);
  EXPECT_TRUE(chain_shape(1).successors.empty());
  EXPECT_EQ(chain_shape(0).task_count, 0u);
  EXPECT_EQ(wavefront_shape(1).producer_count, std::vector<uint32_t>{0});
}

}  // namespace
}  // namespace gapless
