// SPDX-License-Identifier: Apache-2.0

#include "report/pass_metadata.h"

#include <filesystem>
#include <system_error>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file.h"
#include "formats/ascend_csv_writer.h"
#include "formats/row_text.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kCsv = ".csv";

Json sources_json(const CaptureTable& table, const PassesOptions& options) {
  Json sources = Json::array();
  for (const KernelSource& source : table.sources) sources.push_back(source.path);
  // A table that was made of a trace knows no files.
  if (sources.empty()) sources = options.paths;
  return sources;
}

Json times_json(const PassSummary& summary) {
  Json json = {{"sum", summary.sum_ns()},
               {"compute", summary.compute_ns},
               {"collective", summary.collective_ns},
               {"copy", summary.copy_ns},
               {"union", summary.union_ns},
               {"collective_alone", summary.collective_alone_ns},
               {"wall", summary.wall_ns}};
  if (summary.wait_ns) json["collective_wait"] = *summary.wait_ns;
  if (summary.transit_ns) json["collective_transit"] = *summary.transit_ns;
  return json;
}

Json known_json(int64_t value) { return value < 0 ? Json() : Json(value); }

Json phase_json(const PhaseGuess& guess) {
  return {{"name", guess.phase ? Json(pass_phase_name(*guess.phase)) : Json()},
          {"confidence", guess.confidence},
          {"evidence", guess.evidence},
          {"tokens", known_json(guess.tokens)},
          {"sequences", known_json(guess.sequences)},
          {"is_dummy", guess.is_dummy}};
}

Json options_json(const PassesOptions& options) {
  return {{"anchor", options.search.anchor.empty() ? Json() : Json(options.search.anchor)},
          {"layers", options.search.layers == 0 ? Json() : Json(options.search.layers)},
          {"method", pass_method_word(options.search.method)},
          {"window", window_policy_name(options.window)},
          {"dedup", dedup_rule_name(options.dedup)},
          {"device", options.device ? Json(*options.device) : Json()}};
}

// What a symbolic link leads to is replaced, and the link stays.
std::string link_target(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target.string();
}

bool is_pipe_or_device(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return is_descriptor_path(path) ||
         (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status));
}

Result<uint64_t> write_rows(const PassMetadata& metadata, const std::string& path) {
  const CaptureTable& table = metadata.input.table;
  const std::vector<uint32_t>& rows = metadata.detail.window.rows;
  if (rows.empty())
    return fail(ErrorCode::kInvalidInput, "pass {} has no rows in the window",
                metadata.input.found.passes[metadata.detail.pass].index);
  if (has_row_text(table)) return write_row_text(table, rows, path);
  AscendWriteOptions options;
  options.rows = rows;
  options.has_counters = false;  // there are none to write
  options.makes_up_cells = false;
  return write_ascend_csv(table, path, options);
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

std::string pass_metadata_json(const PassMetadata& metadata, bool has_text) {
  const PassesInput& input = metadata.input;
  const PassesOptions& options = metadata.options;
  const ForwardPass& pass = input.found.passes[metadata.detail.pass];
  const PassSummary& summary = input.summaries[metadata.detail.pass];
  const PassWindow& window = metadata.detail.window;
  const bool has_device = pass.device != CaptureTable::kNoDevice;
  const bool has_anchor = input.found.anchor != kNoIndex;
  const Json json = {
      {"sources", sources_json(input.table, options)},
      {"format", input.table.format},
      {"columns", has_text ? "of the source" : "written by gapless"},
      {"device", has_device ? Json(pass.device) : Json()},
      {"pass", pass.index},
      {"window",
       {{"policy", window_policy_name(options.window)},
        {"begin_ns", window.begin_ns},
        {"end_ns", window.end_ns},
        {"straddling_rows", window.straddling_count},
        {"lost_share", summary.lost_share},
        {"anchor_window_lost_share", input.anchor_summaries[metadata.detail.pass].lost_share}}},
      {"anchor", has_anchor ? Json(input.table.names[input.found.anchor]) : Json()},
      {"anchors", pass.anchor_count},
      {"drafts", pass.draft_count},
      {"draft_anchors", pass.draft_anchor_count},
      {"is_cut_at_start", pass.is_cut_at_start},
      {"is_cut_at_end", pass.is_cut_at_end},
      {"phase", phase_json(summary.phase)},
      {"outlier", summary.outlier.empty() ? Json() : Json(summary.outlier)},
      {"dedup", dedup_rule_name(options.dedup)},
      {"rows", window.rows.size()},
      {"kernels", summary.kernel_count},
      {"collectives", summary.collective_count},
      {"wrappers", summary.wrapper_count},
      {"time_ns", times_json(summary)},
      {"options", options_json(options)},
      {"gapless", metadata.version}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool has_row_text(const CaptureTable& table) {
  return !table.text_offset.empty() && table.text_offset.size() == table.size();
}

std::string metadata_path(const std::string& csv_path) {
  const std::string_view name(csv_path);
  if (!name.ends_with(kCsv)) return csv_path + ".json";
  return csv_path.substr(0, csv_path.size() - kCsv.size()) + ".json";
}

Result<WrittenPass> write_pass_csv(const PassMetadata& metadata, const std::string& path) {
  WrittenPass written;
  written.row_count = metadata.detail.window.rows.size();
  if (is_pipe_or_device(path)) {
    written.bytes = GAPLESS_TRY(write_rows(metadata, path));
    return written;
  }
  if (is_directory(path)) return fail(ErrorCode::kInvalidInput, "{}: is a directory", path);
  // The rows take the place of what is there only when the metadata is in its own.
  const std::string target = link_target(path);
  const std::string rows_path = fmt::format("{}.rows{}", target, ::getpid());
  Result<uint64_t> bytes = write_rows(metadata, rows_path);
  if (!bytes) {
    // The user knows nothing of the name in between.
    std::string& message = bytes.error().message;
    const size_t place = message.find(rows_path);
    if (place != std::string::npos) message.replace(place, rows_path.size(), path);
    return bytes.error();
  }
  written.bytes = *bytes;
  written.metadata_path = metadata_path(path);
  const Result<void> noted = write_text_file(
      written.metadata_path, pass_metadata_json(metadata, has_row_text(metadata.input.table)));
  if (!noted) {
    remove_quietly(rows_path);
    return noted.error();
  }
  std::error_code error;
  fs::rename(rows_path, target, error);
  if (!error) return written;
  remove_quietly(rows_path);
  remove_quietly(written.metadata_path);
  return fail(ErrorCode::kSystem, "{}: cannot create: {}", path, error.message());
}

}  // namespace gapless
