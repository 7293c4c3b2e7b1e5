// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "report/passes_report.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json optional_json(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); }

Json known_json(int64_t value) { return value < 0 ? Json() : Json(value); }

Json device_json(int32_t device) {
  return device == CaptureTable::kNoDevice ? Json() : Json(device);
}

Json phase_json(const std::optional<PassPhase>& phase) {
  return phase ? Json(pass_phase_name(*phase)) : Json();
}

Json spread_json(const PassSpread& spread) {
  return {{"median", spread.median},
          {"least", spread.least},
          {"most", spread.most},
          {"median_deviation", spread.deviation}};
}

Json drafts_json(const std::vector<DraftPart>& parts) {
  Json json = Json::array();
  for (const DraftPart& part : parts)
    json.push_back({{"draft", part.draft},
                    {"anchor_count", part.anchor_count},
                    {"row_count", part.row_count},
                    {"sum_ns", part.sum_ns},
                    {"union_ns", part.union_ns},
                    {"wall_ns", part.wall_ns}});
  return json;
}

Json pass_json(const PassesInput& input, size_t i) {
  const ForwardPass& pass = input.found.passes[i];
  const PassSummary& summary = input.summaries[i];
  return {{"device", device_json(pass.device)},
          {"index", pass.index},
          {"phase", phase_json(summary.phase.phase)},
          {"confidence", summary.phase.confidence},
          {"evidence", summary.phase.evidence},
          {"tokens", known_json(summary.phase.tokens)},
          {"sequences", known_json(summary.phase.sequences)},
          {"is_dummy", summary.phase.is_dummy},
          {"anchor_count", pass.anchor_count},
          {"draft_count", pass.draft_count},
          {"draft_anchor_count", pass.draft_anchor_count},
          {"is_cut_at_start", pass.is_cut_at_start},
          {"is_cut_at_end", pass.is_cut_at_end},
          {"first_start_ns", input.table.start_ns[pass.first_row]},
          {"row_count", summary.row_count},
          {"kernel_count", summary.kernel_count},
          {"collective_count", summary.collective_count},
          {"wrapper_count", summary.wrapper_count},
          {"straddling_count", summary.straddling_count},
          {"sum_ns", summary.sum_ns()},
          {"compute_ns", summary.compute_ns},
          {"collective_ns", summary.collective_ns},
          {"copy_ns", summary.copy_ns},
          {"union_ns", summary.union_ns},
          {"collective_alone_ns", summary.collective_alone_ns},
          {"wall_ns", summary.wall_ns},
          {"wait_ns", optional_json(summary.wait_ns)},
          {"transit_ns", optional_json(summary.transit_ns)},
          {"lost_share", summary.lost_share},
          {"anchor_window_lost_share", input.anchor_summaries[i].lost_share},
          {"outlier", summary.outlier.empty() ? Json() : Json(summary.outlier)}};
}

Json group_json(const PassesInput& input, const PassGroup& group) {
  Json passes = Json::array();
  for (const size_t i : group.passes)
    passes.push_back({{"device", device_json(input.found.passes[i].device)},
                      {"index", input.found.passes[i].index}});
  const ForwardPass& median = input.found.passes[group.median_pass];
  return {{"phase", phase_json(group.phase)},
          {"tokens", known_json(group.tokens)},
          {"anchor_count", group.anchor_count},
          {"is_dummy", group.is_dummy},
          {"pass_count", group.passes.size()},
          {"kernel_count", spread_json(group.kernel_count)},
          {"sum_ns", spread_json(group.sum_ns)},
          {"union_ns", spread_json(group.union_ns)},
          {"wall_ns", spread_json(group.wall_ns)},
          {"median_pass", {{"device", device_json(median.device)}, {"index", median.index}}},
          {"passes", passes}};
}

Json anchor_json(const PassesInput& input, const PassesOptions& options) {
  const FoundPasses& found = input.found;
  const auto name = [&](uint32_t id) {
    return id == kNoIndex ? Json() : Json(input.table.names[id]);
  };
  Json candidates = Json::array();
  for (const AnchorCandidate& candidate : found.candidates)
    candidates.push_back({{"type", name(candidate.type)},
                          {"count", candidate.count},
                          {"score", candidate.score},
                          {"reason", candidate.reason}});
  return {{"type", name(found.anchor)},
          {"is_chosen_by_user", !options.search.anchor.empty()},
          {"per_pass", found.anchors_per_pass == 0 ? Json() : Json(found.anchors_per_pass)},
          {"believed", options.search.layers == 0 ? Json() : Json(options.search.layers)},
          {"method", pass_method_word(options.search.method)},
          {"candidates", candidates}};
}

Json collectives_json(const CollectiveRows& rows, DedupRule rule) {
  return {{"rule", dedup_rule_name(rule)},
          {"summary_count", rows.summary_count},
          {"fragment_count", rows.fragment_count},
          {"wrapper_count", rows.wrapper_count},
          {"merged_count", rows.merged_count},
          {"lone_fragment_count", rows.lone_fragment_count},
          {"lone_summary_count", rows.lone_summary_count},
          {"merged_ns", rows.merged_ns}};
}

Json capture_json(const PassesInput& input, const PassesReport& report,
                  const PassesOptions& options) {
  const CaptureTable& table = input.table;
  Json sources = Json::array();
  for (const KernelSource& source : table.sources)
    sources.push_back({{"path", source.path}, {"row_count", source.row_count}});
  return {{"paths", options.paths},
          {"format", table.format},
          {"device_word", table.device_word},
          {"device", options.device ? device_json(*options.device) : Json()},
          {"sources", sources},
          {"row_count", table.size()},
          {"rows_in_passes", report.rows_in_passes},
          {"dropped_count", table.dropped_count},
          {"order_break_count", table.order_break_count},
          {"derived_type_count", table.derived_type_count}};
}

Json window_json(const PassesReport& report, WindowPolicy policy) {
  Json json = {{"policy", window_policy_name(policy)}, {"anchor_lost_share", nullptr}};
  if (!report.lost_permyriad) return json;
  const auto share = [](int64_t permyriad) { return static_cast<double>(permyriad) / 1e4; };
  json["anchor_lost_share"] = {{"median", share(report.lost_permyriad->median)},
                               {"least", share(report.lost_permyriad->least)},
                               {"most", share(report.lost_permyriad->most)}};
  return json;
}

Json findings_json(const PassesInput& input) {
  Json json = Json::array();
  for (const std::vector<Finding>* findings : {&input.found.findings, &input.table.findings}) {
    for (const Finding& finding : *findings)
      json.push_back({{"severity", severity_name(finding.severity)},
                      {"code", finding.code},
                      {"text", finding.text},
                      {"count", finding.count}});
  }
  return json;
}

Json kernels_json(const PassDetail& detail) {
  Json json = Json::array();
  for (const PassKernel& kernel : detail.kernels)
    json.push_back({{"type", kernel.type},
                    {"count", kernel.count},
                    {"sum_ns", kernel.sum_ns},
                    {"least_ns", kernel.least_ns},
                    {"most_ns", kernel.most_ns},
                    {"merged_count", kernel.merged_count},
                    {"is_collective", kernel.is_collective},
                    {"is_wrapper", kernel.is_wrapper}});
  return json;
}

Json detail_json(const PassesInput& input, const PassDetail& detail, WindowPolicy policy) {
  Json json = pass_json(input, detail.pass);
  json["window"] = {{"policy", window_policy_name(policy)},
                    {"begin_ns", detail.window.begin_ns},
                    {"end_ns", detail.window.end_ns},
                    {"row_count", detail.window.rows.size()},
                    {"straddling_count", detail.window.straddling_count}};
  json["gap_before_ns"] = optional_json(detail.gap_before_ns);
  json["gap_after_ns"] = optional_json(detail.gap_after_ns);
  json["kernels"] = kernels_json(detail);
  json["streams"] = Json::array();
  for (const PassStream& stream : detail.streams)
    json["streams"].push_back(
        {{"stream", stream.stream == CaptureTable::kNoStream ? Json() : Json(stream.stream)},
         {"row_count", stream.row_count},
         {"counted_count", stream.counted_count},
         {"sum_ns", stream.sum_ns}});
  json["drafts"] = drafts_json(detail.drafts);
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string passes_json(const PassesInput& input, const PassesReport& report,
                        const PassesOptions& options, const PassDetail* detail) {
  Json json = {{"verdict", report.verdict},
               {"capture", capture_json(input, report, options)},
               {"collectives", collectives_json(input.collectives, options.dedup)},
               {"window", window_json(report, options.window)},
               {"anchor", anchor_json(input, options)},
               {"pass_count", input.found.passes.size()},
               {"whole_count", report.whole_count},
               {"with_cut", options.with_cut}};
  json["passes"] = Json::array();
  for (size_t i = 0; i < input.found.passes.size(); ++i) {
    json["passes"].push_back(pass_json(input, i));
    if (!report.drafts.empty()) json["passes"].back()["drafts"] = drafts_json(report.drafts[i]);
  }
  json["groups"] = Json::array();
  for (const PassGroup& group : report.groups) json["groups"].push_back(group_json(input, group));
  if (detail != nullptr) json["detail"] = detail_json(input, *detail, options.window);
  json["findings"] = findings_json(input);
  return text_of(json);
}

std::string pass_detail_json(const PassesInput& input, const PassesReport& report,
                             const PassDetail& detail, const PassesOptions& options) {
  Json json = {{"capture", capture_json(input, report, options)},
               {"collectives", collectives_json(input.collectives, options.dedup)},
               {"anchor", anchor_json(input, options)},
               {"pass", detail_json(input, detail, options.window)},
               {"findings", findings_json(input)}};
  return text_of(json);
}

}  // namespace gapless
