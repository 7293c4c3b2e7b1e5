// SPDX-License-Identifier: Apache-2.0
//
// KinetoKernels: the kernels, copies and fills in the events of a PyTorch profile on CUDA or ROCm,
// with the calls that launched them. Part of json_kernels.h.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/chrome_json_event.h"
#include "formats/json_kernel_events.h"
#include "trace/trace.h"

namespace gapless {

// A demangled name without its return type, template arguments and parameters:
// "void at::native::add<4, float>(int)" is "at::native::add". "Memcpy HtoD (Pageable -> Device)" is
// "Memcpy HtoD".
std::string short_kernel_name(std::string_view name);

// Whether a kernel's full name says that it moves data between devices: NCCL and RCCL.
bool names_nccl_kernel(std::string_view name);

class KinetoKernels {
 public:
  explicit KinetoKernels(JsonKernelEvents& events) : events_(events) {}

  // One complete event with a category. False when the category says nothing about whose it is.
  bool add(const ChromeEvent& event);
  // Finds the launches, steps and shapes of the rows, which are the table's first, and reports.
  void finish();
  uint64_t row_count() const { return correlations_.size(); }

 private:
  struct Launch {
    uint64_t correlation;
    int64_t begin_ns;
    bool is_graph;
  };
  struct OperatorShapes {
    uint64_t external_id;
    uint32_t shapes;  // of shape_texts_
  };

  void add_device_event(const ChromeEvent& event, bool is_kernel);
  void add_call(const ChromeEvent& event);
  void add_operator(const ChromeEvent& event);
  uint32_t type_of(uint32_t name);
  void join_launches();
  void join_shapes();

  JsonKernelEvents& events_;
  KernelEventLosses losses_ = {};
  std::vector<uint64_t> correlations_;  // by row; 0: none
  std::vector<uint64_t> external_ids_;
  std::vector<Launch> launches_;
  std::vector<OperatorShapes> operators_;
  uint64_t operators_passed_over_ = 0;  // beyond what is kept of them
  NameTable shape_texts_;               // of operators, whether they have kernels or not
  std::vector<uint32_t> types_;         // by name; kNoIndex: not made yet
  std::string buffer_;
};

}  // namespace gapless
