// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_columns.h"

#include <algorithm>

namespace gapless {
namespace {

using Column = WrittenColumn;

constexpr std::string_view kCounterHeaders =
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_scalar_time(us),"
    "aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,"
    "aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,"
    "aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),"
    "aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)";

constexpr Column kShapeColumns[] = {Column::kInputShapes,  Column::kInputTypes,
                                    Column::kInputFormats, Column::kOutputShapes,
                                    Column::kOutputTypes,  Column::kOutputFormats};

bool has_step_column(int header, bool has_steps) {
  const bool always = header == 1 || (header >= 5 && header <= 7) || header == 10;
  return always || (header > 1 && header != 12 && has_steps);
}

bool has_device_column(int header) { return (header >= 2 && header <= 4) || header >= 8; }

bool counts_blocks(int header) { return header == 3 || header == 4 || header == 9 || header == 10; }

std::vector<Column> level0_columns(int header) {
  std::vector<Column> columns = {Column::kName,     Column::kType, Column::kCore,  Column::kStart,
                                 Column::kDuration, Column::kWait, Column::kBlocks};
  if (header == 4) {
    columns.insert(columns.end(), std::begin(kShapeColumns), std::end(kShapeColumns));
  }
  return columns;
}

std::vector<Column> full_columns(int header, bool has_counters) {
  std::vector<Column> columns = {Column::kModelId, Column::kTask, Column::kStream};
  if (header == 12) columns.push_back(Column::kInferId);
  columns.insert(columns.end(), {Column::kName, Column::kType});
  if (header >= 7) columns.push_back(Column::kOpState);
  columns.insert(columns.end(), {Column::kCore, Column::kStart, Column::kDuration, Column::kWait});
  if (header != 11) {
    columns.insert(columns.end(), {Column::kBlocks, Column::kMixBlocks});
    if (header >= 6) columns.push_back(Column::kHf32);
    columns.insert(columns.end(), std::begin(kShapeColumns), std::end(kShapeColumns));
  }
  columns.push_back(Column::kContext);
  if (has_counters && header != 11) columns.push_back(Column::kCounters);
  return columns;
}

std::string_view operator_column_name(Column column, AscendNaming naming) {
  const bool is_summary = naming == AscendNaming::kOpSummary;
  switch (column) {
    case Column::kName:
      return is_summary ? "Op Name" : "Name";
    case Column::kType:
      return is_summary ? "OP Type" : "Type";
    case Column::kCore:
      return is_summary ? "Task Type" : "Accelerator Core";
    case Column::kStart:
      return naming == AscendNaming::kKernelDetails ? "Start Time(us)" : "Task Start Time(us)";
    case Column::kDuration:
      return is_summary ? "Task Duration(us)" : "Duration(us)";
    case Column::kWait:
      return is_summary ? "Task Wait Time(us)" : "Wait Time(us)";
    default:
      return "";
  }
}

std::string_view column_name(Column column, const AscendWriteOptions& options) {
  const bool is_new = counts_blocks(options.header);
  switch (column) {
    case Column::kModelName:
      return "Model Name";
    case Column::kStep:
      return options.header == 10 ? "Step ID" : "Step Id";
    case Column::kDevice:
      return "Device_id";
    case Column::kModelId:
      return "Model ID";
    case Column::kTask:
      return "Task ID";
    case Column::kStream:
      return "Stream ID";
    case Column::kInferId:
      return "Infer ID";
    case Column::kOpState:
      return "OP State";
    case Column::kBlocks:
      return is_new ? "Block Num" : "Block Dim";
    case Column::kMixBlocks:
      return is_new ? "Mix Block Num" : "Mix Block Dim";
    case Column::kHf32:
      return "HF32 Eligible";
    case Column::kInputShapes:
      return "Input Shapes";
    case Column::kInputTypes:
      return "Input Data Types";
    case Column::kInputFormats:
      return "Input Formats";
    case Column::kOutputShapes:
      return "Output Shapes";
    case Column::kOutputTypes:
      return "Output Data Types";
    case Column::kOutputFormats:
      return "Output Formats";
    case Column::kContext:
      return "Context ID";
    case Column::kCounters:
      return kCounterHeaders;
    default:
      return operator_column_name(column, options.naming);
  }
}

}  // namespace

std::vector<WrittenCell> written_columns(const AscendWriteOptions& options, bool has_steps) {
  std::vector<Column> columns;
  if (options.header == 12) columns.push_back(Column::kModelName);
  if (has_step_column(options.header, has_steps)) columns.push_back(Column::kStep);
  if (has_device_column(options.header)) columns.push_back(Column::kDevice);
  const std::vector<Column> others = options.header < 5
                                         ? level0_columns(options.header)
                                         : full_columns(options.header, options.has_counters);
  columns.insert(columns.end(), others.begin(), others.end());

  std::vector<WrittenCell> cells;
  for (const Column column : columns) {
    cells.push_back({.column = column, .header = std::string(column_name(column, options))});
  }
  for (const AscendExtraColumn& extra : options.extra_columns) {
    const auto same = std::find_if(cells.begin(), cells.end(), [&](const WrittenCell& cell) {
      return cell.header == extra.header;
    });
    if (same != cells.end()) {
      same->column = Column::kExtra;
      same->extra = &extra;
    } else {
      cells.push_back({.column = Column::kExtra, .header = extra.header, .extra = &extra});
    }
  }
  return cells;
}

}  // namespace gapless
