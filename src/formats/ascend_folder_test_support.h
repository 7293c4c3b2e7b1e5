// SPDX-License-Identifier: Apache-2.0
//
// Folders of the Ascend profiler for tests: a small capture of two steps whose sums are plain
// numbers, and files written where the profiler would.
//
//   step 50: 10 us and 20 us of kernels, a collective of 5 us
//   step 51: 30 us of kernels, a collective of 7 us, with its kernel on a stream and a wrapper

#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "formats/ascend_csv_test_support.h"
#include "trace/capture_table_test_support.h"

namespace gapless {

inline AscendRowCells collective_cells(const std::string& name, const std::string& start,
                                       const std::string& duration, const std::string& step) {
  AscendRowCells cells;
  cells.name = name;
  cells.type = "hcom_allReduce_";
  cells.core = "COMMUNICATION";
  cells.start = start;
  cells.duration = duration;
  cells.stream = "N/A";
  cells.task = "N/A";
  cells.step = step;
  cells.input_shapes = "N/A";
  cells.output_shapes = "N/A";
  return cells;
}

inline std::vector<AscendRowCells> two_steps(const std::string& device = "0") {
  AscendRowCells fragment = collective_cells("allreduceAivKernel", "1095.1", "6.900", "51");
  fragment.stream = "9";
  fragment.task = "4";
  AscendRowCells wrapper = collective_cells("allreduceAicpuKernel", "1095.2", "6.000", "51");
  wrapper.stream = "10";
  wrapper.task = "5";
  wrapper.core = "AI_CPU";
  std::vector<AscendRowCells> rows = {
      {.start = "1000.000\t", .duration = "10.000", .step = "50"},
      collective_cells("hcom_allReduce__503_0_1", "1010.000\t", "5.000", "50"),
      {.start = "1015.000\t", .duration = "20.000", .step = "50"},
      {.start = "1060.000\t", .duration = "30.000", .step = "51"},
      collective_cells("hcom_allReduce__503_1_1", "1095.000\t", "7.000", "51"),
      fragment,
      wrapper};
  for (AscendRowCells& row : rows) row.device = device;
  return rows;
}

inline constexpr std::string_view kStepTraceHeader =
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,"
    "Bubble,Communication(Not Overlapped and Exclude Receive),Preparing\n";

inline std::string two_steps_trace() {
  return std::string(kStepTraceHeader) +
         "0,50,30.000000000000004,5,0,5.0,0,35.0,0,5,1\n"
         "0,51,29.999999999999996,7,0,7.0,5,40,2.0,7,1\n";
}

inline std::string communication_entry(const std::string& name, const std::string& wait_ms,
                                       const std::string& transit_ms,
                                       const std::string& start_us = "1") {
  return "\"" + name + "\": {\"Communication Time Info\": {\"Start Timestamp(us)\": " + start_us +
         ", \"Elapse Time(ms)\": 0.005, \"Transit Time(ms)\": " + transit_ms +
         ", \"Wait Time(ms)\": " + wait_ms +
         ", \"Synchronization Time(ms)\": 9}, \"Communication Bandwidth Info\": {\"SDMA\": "
         "{\"Size Distribution\": {\"2.0\": [12, 1.5]}}}}";
}

inline std::string two_steps_communication() {
  return "{\"step50\": {\"p2p\": {}, \"collective\": {" +
         communication_entry("hcom_allReduce__503_0_1@175", "0.004", "1e-3") + ", " +
         communication_entry("Total Op Info", "1", "1") +
         "}}, \"step51\": {\"p2p\": {}, \"collective\": {" +
         communication_entry("hcom_allReduce__503_1_1@175", "0.00650000049", "0.0001234995") +
         "}}}";
}

// A folder in which files are made with the folders above them.
class ProfilerFolder {
 public:
  const std::string& path() const { return directory_.path(); }
  std::string path(const std::string& name) const { return directory_.path(name); }

  void write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  // All that a rank has, under `root` of this folder.
  void write_rank(const std::string& root, const std::string& rank,
                  const std::string& device = "0") const {
    const std::string output = root + "/ASCEND_PROFILER_OUTPUT/";
    write(root + "/profiler_info_" + rank + ".json", "{\"config\": {}, \"rank_id\": " + rank + "}");
    write(output + "kernel_details.csv", ascend_text("H8", two_steps(device)));
    write(output + "step_trace_time.csv", two_steps_trace());
    write(output + "communication.json", two_steps_communication());
    write(output + "analyse.done", "");
  }

 private:
  TemporaryDirectory directory_;
};

inline const Finding* find_finding(const CaptureTable& table, std::string_view code) {
  for (const Finding& finding : table.findings) {
    if (finding.code == code) return &finding;
  }
  return nullptr;
}

inline InputStream stream_of_text(std::string_view text, std::string name) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())),
                                  std::move(name));
}

}  // namespace gapless
