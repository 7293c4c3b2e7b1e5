// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_reader.h"

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "formats/swimlane_deps.h"
#include "formats/swimlane_records.h"
#include "formats/swimlane_tasks.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

constexpr size_t kSniffBytes = 4096;

bool file_looks_like_swimlane(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  Result<InputStream> stream = InputStream::open_file(path);
  if (!stream) return false;
  std::array<char, kSniffBytes> buffer;
  const Result<size_t> size = stream->read(buffer);
  return size && looks_like_swimlane(std::string_view(buffer.data(), *size));
}

// The names of the files in a folder that look like records, sorted.
std::vector<std::string> records_in(const std::string& folder) {
  std::vector<std::string> found;
  const Result<std::vector<std::string>> names = list_directory(folder);
  if (!names) return found;
  for (const std::string& name : *names) {
    if (!name.ends_with(".json") && !name.ends_with(".json.gz")) continue;
    if (file_looks_like_swimlane(folder + "/" + name)) found.push_back(name);
  }
  return found;
}

Result<std::string> find_records(const std::string& path) {
  if (!is_directory(path)) return path;
  const std::vector<std::string> found = records_in(path);
  if (found.size() == 1) return path + "/" + found.front();
  if (found.empty()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a directory without a swimlane file; looked for a .json with "
                "chip_swimlane_level, l2_swimlane_level or tasks",
                path);
  }
  return fail(ErrorCode::kInvalidInput, "{}: holds {} swimlane files ({}); give one of them", path,
              found.size(), fmt::join(found, ", "));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Name maps of several levels may lie there; level 2 is that of the kernels.
Result<SwimlaneNames> find_names(const std::string& folder, TraceBuilder& builder) {
  std::optional<SwimlaneNames> chosen;
  std::vector<std::string> found;
  const Result<std::vector<std::string>> names = list_directory(folder);
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    if (!name.starts_with("name_map") || !name.ends_with(".json")) continue;
    InputStream input = GAPLESS_TRY(InputStream::open_file(folder + "/" + name));
    SwimlaneNames map = GAPLESS_TRY(read_swimlane_names(input, builder));
    found.push_back(name);
    const bool is_better = !chosen || (map.level == 2 && chosen->level != 2);
    if (is_better) chosen = std::move(map);
  }
  if (found.size() > 1) {
    builder.add_finding({Severity::kWarning, "several-name-maps",
                         fmt::format("{} name maps lie beside the records ({}); the first of level "
                                     "2, or the first, was used",
                                     found.size(), fmt::join(found, ", ")),
                         kNoIndex, found.size()});
  }
  return chosen ? std::move(*chosen) : SwimlaneNames{};
}

// Recording costs time where it records; the figures are upstream's own.
void add_observer_effect(const SwimlaneRecords& records, TraceBuilder& builder) {
  const std::string level =
      records.level > 0 ? fmt::format(" level {}", records.level) : std::string();
  builder.add_finding(
      {Severity::kInfo, "observer-effect",
       fmt::format(
           "recorded with swimlane{}: upstream measured about 0.8 us a task switch{} as the "
           "cost of recording",
           level, records.level == 4 ? " and 6.5-9.6 % in the window" : ""),
       kNoIndex, records.tasks.size()});
}

void add_missing_files(const SwimlaneParts& parts, TraceBuilder& builder) {
  const SwimlaneRecords& records = parts.records;
  const bool needs_graph = records.is_in_cycles || records.edges.empty();
  if (!parts.has_graph && needs_graph) {
    builder.add_finding({Severity::kWarning, "no-deps",
                         "there is no deps.json beside the records: tasks have no edges, and their "
                         "kernels are known only where the records name them",
                         kNoIndex, 1});
  }
  if (parts.names.kernels.empty() && (parts.has_graph || !records.is_in_cycles)) {
    builder.add_finding({Severity::kInfo, "no-names",
                         "there is no name map beside the records: kernels are called by number",
                         kNoIndex, 1});
  }
}

Trace finish(SwimlaneParts parts, TraceBuilder& builder) {
  add_observer_effect(parts.records, builder);
  add_missing_files(parts, builder);
  if (!parts.names.orchestrator.empty()) {
    builder.trace().properties.push_back({"swimlane.orchestrator", parts.names.orchestrator});
  }
  add_swimlane(std::move(parts), builder);
  return builder.finish();
}

}  // namespace

bool looks_like_swimlane(std::string_view first_bytes) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const size_t begin = first_bytes.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || first_bytes[begin] != '{') return false;
  const auto has = [first_bytes](std::string_view key) {
    return first_bytes.find(key) != std::string_view::npos;
  };
  if (has("\"traceEvents\"")) return false;
  if (has("\"chip_swimlane_level\"") || has("\"l2_swimlane_level\"")) return true;
  return has("\"tasks\"") && has("\"core_id\"") && has("\"start_time_us\"");
}

bool is_swimlane_folder(const std::string& path) {
  return is_directory(path) && !records_in(path).empty();
}

Result<Trace> read_swimlane_inputs(SwimlaneInputs inputs, const ReadOptions& options) {
  TraceBuilder builder("swimlane");
  SwimlaneParts parts;
  parts.records = GAPLESS_TRY(read_swimlane_records(inputs.records, options.progress, builder));
  parts.has_graph = inputs.deps.has_value();
  if (inputs.deps) parts.graph = GAPLESS_TRY(read_swimlane_deps(*inputs.deps, builder));
  if (inputs.names) parts.names = GAPLESS_TRY(read_swimlane_names(*inputs.names, builder));
  return finish(std::move(parts), builder);
}

Result<Trace> read_swimlane(const std::string& path, const ReadOptions& options) {
  const std::string records_path = GAPLESS_TRY(find_records(path));
  const std::string folder = folder_of(records_path);
  TraceBuilder builder("swimlane");
  SwimlaneParts parts;
  InputStream records = GAPLESS_TRY(InputStream::open_file(records_path));
  parts.records = GAPLESS_TRY(read_swimlane_records(records, options.progress, builder));
  const std::string deps_path = folder + "/deps.json";
  std::error_code error;
  parts.has_graph = std::filesystem::exists(deps_path, error);
  if (parts.has_graph) {
    InputStream deps = GAPLESS_TRY(InputStream::open_file(deps_path));
    parts.graph = GAPLESS_TRY(read_swimlane_deps(deps, builder));
  }
  parts.names = GAPLESS_TRY(find_names(folder, builder));
  return finish(std::move(parts), builder);
}

}  // namespace gapless
