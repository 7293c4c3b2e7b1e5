// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "report/align_report.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json side_json(const AlignedSide& side) {
  Json json = {{"source", side.side.source},
               {"passes", side.passes},
               {"pass_count", side.side.pass_count},
               {"has_counts", side.side.has_counts},
               {"merged_count", side.side.merged_count},
               {"wrapper_count", side.side.wrapper_count}};
  if (side.wall_ns) json["wall_ns"] = *side.wall_ns;
  return json;
}

Json row_json(const AlignRow& row) {
  return {{"type", row.type},
          {"model_type", row.model_type.empty() ? row.type : row.model_type},
          {"shape", row.shape},
          {"status", align_status_name(row.status)},
          {"is_collective", row.is_collective},
          {"is_composite", row.is_composite},
          {"has_counts", row.has_counts},
          {"measured_count", row.measured_count},
          {"model_count", row.model_count},
          {"measured_ns", row.measured_ns},
          {"model_ns", row.model_ns},
          {"time_error", row.time_error},
          {"mean_error", row.mean_error},
          {"count_error", row.count_error},
          {"share", row.share}};
}

Json sum_json(const AlignSum& sum) {
  return {{"row_count", sum.row_count},
          {"measured_ns", sum.measured_ns},
          {"model_ns", sum.model_ns},
          {"ratio", sum.ratio()}};
}

Json options_json(const AlignOptions& options) {
  return {{"by_shape", options.by_shape},
          {"time_tolerance", options.time_tolerance},
          {"count_tolerance", options.count_tolerance},
          {"low_ratio", options.low_ratio},
          {"high_ratio", options.high_ratio}};
}

}  // namespace

std::string align_json(const AlignReport& report) {
  const Alignment& alignment = report.alignment;
  Json json = {{"verdict", report.verdict},
               {"measured", side_json(report.measured)},
               {"model", side_json(report.model)},
               {"options", options_json(report.options)},
               {"measured_ns", alignment.measured_ns},
               {"model_ns", alignment.model_ns},
               {"ratio", alignment.ratio},
               {"is_close", alignment.is_close},
               {"row_error", alignment.row_error},
               {"hit_share", alignment.hit_share},
               {"partial_share", alignment.partial_share},
               {"miss_share", alignment.miss_share},
               {"compute", sum_json(alignment.compute)},
               {"matched", sum_json(alignment.matched)}};
  json["by_status"] = Json::object();
  for (size_t i = 0; i < kAlignStatusCount; ++i) {
    const std::string name(align_status_name(static_cast<AlignStatus>(i)));
    json["by_status"][name] = sum_json(alignment.by_status[i]);
  }
  json["rows"] = Json::array();
  for (const AlignRow& row : alignment.rows) json["rows"].push_back(row_json(row));
  json["notes"] = report.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
