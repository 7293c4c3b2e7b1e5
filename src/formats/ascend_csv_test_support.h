// SPDX-License-Identifier: Apache-2.0
//
// Kernel tables for tests: the headers of all years, rows made for any of them, and the reader over
// a text.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/ascend_csv.h"
#include "formats/ascend_header.h"

namespace gapless {

// As ascend-profiler tools of these years write them.
inline const std::map<std::string, std::string> kAscendHeaders = {
    {"H0", "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"},
    {"H1",
     "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"},
    {"H2",
     "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"},
    {"H3",
     "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num"},
    {"H4",
     "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,"
     "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"},
    {"H5",
     "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),"
     "Wait Time(us),Block Dim,Mix Block Dim,Input Shapes,Input Data Types,Input Formats,Output "
     "Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles"},
    {"H6",
     "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),"
     "Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input "
     "Formats,Output Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us)"},
    {"H7",
     "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
     "Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data "
     "Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
     "aicore_time(us),cube_utilization(%)"},
    {"H8",
     "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start "
     "Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input "
     "Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
     "aicore_time(us),aic_mac_ratio,cube_utilization(%)"},
    {"H9",
     "Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
     "Duration(us),Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data "
     "Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
     "aicore_time(us),aic_mac_ratio,cube_utilization(%)"},
    {"H10",
     "Step ID,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start "
     "Time(us),Duration(us),Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input "
     "Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID"},
    {"H11",
     "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
     "Task Duration(us),Task Wait Time(us),Context ID"},
    {"H12",
     "Model Name,Device_id,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,OP State,Task Type,"
     "Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Num,Mix Block Num,HF32 "
     "Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output "
     "Formats,Context ID"},
    {"mixed",
     "Step Id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Start Time(us),Task "
     "Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input "
     "Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID"},
};

// Cells as they stand in the file.
struct AscendRowCells {
  std::string name = "aclnnMatmul_MatMulCommon_MatMulV2";
  std::string type = "MatMulV2";
  std::string core = "AI_CORE";
  std::string start = "1764246877073569.640\t";
  std::string duration = "61.220";
  std::string device = "0";
  std::string stream = "148";
  std::string task = "11051";
  std::string step = "50";
  std::string context = "N/A";
  std::string input_shapes = "\"\"\"16,5120;5120,768\"\"\"";
  std::string output_shapes = "\"\"\"16,768\"\"\"";
};

inline std::string unread_cell(std::string_view column) {
  if (column.ends_with("Data Types")) return "DT_BF16;DT_BF16";
  if (column.ends_with("Formats")) return "ND;ND";
  if (column == "HF32 Eligible") return "NO";
  return column == "OP State" ? "dynamic" : "0";
}

// The row under this header, without a line end.
inline std::string ascend_row(std::string_view header, const AscendRowCells& cells) {
  const std::map<AscendColumn, std::string> by_column = {
      {AscendColumn::kStep, cells.step},
      {AscendColumn::kDevice, cells.device},
      {AscendColumn::kTask, cells.task},
      {AscendColumn::kStream, cells.stream},
      {AscendColumn::kName, cells.name},
      {AscendColumn::kType, cells.type},
      {AscendColumn::kCore, cells.core},
      {AscendColumn::kStart, cells.start},
      {AscendColumn::kDuration, cells.duration},
      {AscendColumn::kInputShapes, cells.input_shapes},
      {AscendColumn::kOutputShapes, cells.output_shapes},
      {AscendColumn::kContext, cells.context}};
  std::string row;
  for (const CsvField& cell : split_cells(header, ',')) {
    const std::optional<AscendColumn> column = ascend_column(cell.text);
    row += row.empty() && cell.text.data() == header.data() ? "" : ",";
    row += column ? by_column.at(*column) : unread_cell(cell.text);
  }
  return row;
}

// A whole file under one of kAscendHeaders.
inline std::string ascend_text(const std::string& header, const std::vector<AscendRowCells>& rows,
                               std::string_view line_end = "\r\n") {
  const std::string& names = kAscendHeaders.at(header);
  std::string text = names + std::string(line_end);
  for (const AscendRowCells& row : rows) text += ascend_row(names, row) + std::string(line_end);
  return text;
}

inline Result<CaptureTable> read_ascend_text(std::string_view text,
                                             const AscendCsvOptions& options = {}) {
  return read_ascend_csv(
      InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "k.csv"),
      options);
}

inline CaptureTable ascend_table(std::string_view text, const AscendCsvOptions& options = {}) {
  Result<CaptureTable> table = read_ascend_text(text, options);
  EXPECT_TRUE(table.has_value()) << table.error().message;
  return table ? std::move(*table) : CaptureTable{};
}

inline std::string ascend_error(std::string_view text) {
  const Result<CaptureTable> table = read_ascend_text(text);
  return table ? "no error" : table.error().message;
}

inline uint64_t finding_count(const std::vector<Finding>& findings, std::string_view code) {
  uint64_t count = 0;
  for (const Finding& finding : findings) count += finding.code == code ? finding.count : 0;
  return count;
}

inline std::string finding_codes(const std::vector<Finding>& findings) {
  std::string codes;
  for (const Finding& finding : findings) codes += finding.code + " ";
  return codes;
}

inline std::string_view text_at(const CaptureTable& table, uint32_t id) {
  return id == kNoIndex ? "(none)" : table.names[id];
}

}  // namespace gapless
