// SPDX-License-Identifier: Apache-2.0
//
// The task graphs on which runtimes are compared, without any work in them: what is left is what a
// runtime costs. A grid that is crossed by a wave, a chain, layers that fan out and join, and the
// layers of one decode step.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gapless {

// Tasks are numbered so that every edge goes to a higher number: counting up is a legal order.
struct TaskShape {
  std::string name;  // "wavefront 200x200"
  uint32_t task_count = 0;
  std::vector<uint32_t> producer_count;   // of each task
  std::vector<uint32_t> successor_begin;  // task_count + 1 places in `successors`
  std::vector<uint32_t> successors;       // of task 0, of task 1, ...; ascending within a task
};

// side x side tasks; each follows its upper and its left neighbour.
TaskShape wavefront_shape(int side);

// Each task follows the one before.
TaskShape chain_shape(int task_count);

// A layer is `width` tasks that follow the join before, and a join that follows all of them.
struct LayeredShapeArgs {
  std::string name = {};  // empty: "layers 40x224"
  int layer_count = 0;
  int width = 0;
};
TaskShape layered_shape(const LayeredShapeArgs& args);

// A decode step as it was recorded: 160 x (241 + 1) = 38,720 tasks.
TaskShape decode_shape();

// wavefront 200x200, chain 10000, layers 40x224, decode 38720.
std::vector<TaskShape> all_task_shapes();

// What every task runs. Whoever runs a shape calls it through the pointer, once a task.
struct TaskBody {
  void (*function)(void* state, uint32_t task) = nullptr;
  void* state = nullptr;
};

// Does nothing, and the compiler cannot know that.
TaskBody empty_task_body();

}  // namespace gapless
