// SPDX-License-Identifier: Apache-2.0
//
// Which folders are of the Ascend profiler, and what lies in them. Part of ascend_folder.h.

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/input_stream.h"
#include "formats/ascend_communication.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_db.h"
#include "formats/ascend_folder.h"
#include "formats/ascend_step_trace.h"
#include "formats/chrome_json.h"
#include "formats/database.h"
#include "formats/json_walk.h"

namespace gapless {
namespace {

constexpr std::string_view kOutputFolder = "ASCEND_PROFILER_OUTPUT";
constexpr std::string_view kNativeOutputFolder = "mindstudio_profiler_output";
constexpr size_t kMaxEntries = 4096;  // of one folder
constexpr int kLevels = 2;

std::string base_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.find_last_of('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

std::vector<std::string> entries_of(const std::string& path) {
  Result<std::vector<std::string>> names = list_directory(path);
  if (!names) return {};
  if (names->size() > kMaxEntries) names->resize(kMaxEntries);
  return std::move(*names);
}

std::vector<std::string> subfolders_of(const std::string& path) {
  std::vector<std::string> names = entries_of(path);
  std::erase_if(names, [&path](const std::string& name) {
    return name.starts_with('.') || !is_directory(path + "/" + name);
  });
  return names;
}

// The number that the text begins with.
std::optional<int32_t> leading_number(std::string_view text) {
  int32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop == text.data() || number < 0) return std::nullopt;
  return number;
}

bool is_native_folder_name(std::string_view name) {
  return name.starts_with("PROF_") && leading_number(name.substr(5));
}

std::optional<int32_t> device_of_name(std::string_view name) {
  constexpr std::string_view kDevice = "device_";
  if (!name.starts_with(kDevice)) return std::nullopt;
  return leading_number(name.substr(kDevice.size()));
}

// By its own name or by what the profiler makes in it.
bool is_marked(const std::string& path) {
  const std::string name = base_name(path);
  if (name.ends_with("_ascend_pt") || name.ends_with("_ascend_ms")) return true;
  if (is_native_folder_name(name) || name == kOutputFolder || name == kNativeOutputFolder) {
    return true;
  }
  if (is_directory(path + "/" + std::string(kOutputFolder))) return true;
  if (is_directory(path + "/" + std::string(kNativeOutputFolder))) return true;
  const std::vector<std::string> names = subfolders_of(path);
  return std::any_of(names.begin(), names.end(), [&path](const std::string& child) {
    return device_of_name(child) && is_directory(path + "/" + child + "/summary");
  });
}

// The first bytes, unpacked; empty when the file cannot be read.
std::string first_bytes_of(const std::string& path) {
  constexpr size_t kBytes = 16 << 10;
  Result<InputStream> input = InputStream::open_file(path);
  if (!input) return {};
  std::string bytes(kBytes, '\0');
  const Result<size_t> count = input->read(std::span<char>(bytes.data(), bytes.size()));
  bytes.resize(count ? *count : 0);
  return bytes;
}

void add_database(const std::string& path, AscendFolder& folder) {
  const Result<Database> database = Database::open(path);
  const bool is_analysis = database && database->has_table("CommAnalyzerTime");
  if (is_analysis) folder.analysis_database = path;
  // One that cannot be opened is tried again by the reader, which says why.
  if (!database || is_ascend_database(*database)) folder.databases.push_back(path);
}

// What stands in for a file or is damaged says nothing; its name still tells what is missing.
void add_by_name(const std::string& path, std::string_view name, AscendFolder& folder) {
  if (name.starts_with("kernel_details") || name.starts_with("op_summary")) {
    folder.tables.push_back(path);
  } else if (name.starts_with("ascend_pytorch_profiler") ||
             name.starts_with("ascend_mindspore_profiler") ||
             (name.starts_with("msprof_") && name.ends_with(".db"))) {
    folder.databases.push_back(path);
  } else if (name.starts_with("trace_view.json") || name.starts_with("msprof")) {
    folder.timelines.push_back(path);
  } else if (name.starts_with("step_trace_time")) {
    folder.step_trace = path;
  } else if (name == "communication.json") {
    folder.communication = path;
  }
}

void add_file(const std::string& path, const std::string& name, AscendFolder& folder) {
  // A cache of MindStudio Insight, and what SQLite writes beside a database.
  if (name == "mindstudio_insight_data.db" || name.ends_with("-wal") || name.ends_with("-shm")) {
    return;
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  const std::string bytes = first_bytes_of(path);
  if (looks_like_database(bytes)) {
    add_database(path, folder);
  } else if (looks_like_ascend_csv(bytes)) {
    folder.tables.push_back(path);
  } else if (looks_like_step_trace(bytes)) {
    folder.step_trace = path;
  } else if (looks_like_communication_json(bytes)) {
    folder.communication = path;
  } else if (looks_like_chrome_json(bytes)) {
    folder.timelines.push_back(path);
  } else {
    add_by_name(path, name, folder);
  }
}

// Beside the whole timeline there may be others of parts of it.
void keep_whole_timelines(std::vector<std::string>& timelines) {
  const auto is_part = [](const std::string& path) {
    const std::string name = base_name(path);
    return !name.starts_with("trace_view") && !name.starts_with("msprof");
  };
  if (std::all_of(timelines.begin(), timelines.end(), is_part)) return;
  std::erase_if(timelines, is_part);
}

AscendFolder files_of(const std::string& path) {
  AscendFolder folder;
  folder.path = path;
  for (const std::string& name : entries_of(path)) add_file(path + "/" + name, name, folder);
  keep_whole_timelines(folder.timelines);
  return folder;
}

// What `folder` does not have yet.
void add_missing(const AscendFolder& more, AscendFolder& folder) {
  const auto add_list = [](const std::vector<std::string>& from, std::vector<std::string>& to) {
    if (to.empty()) to = from;
  };
  const auto add_text = [](const std::string& from, std::string& to) {
    if (to.empty()) to = from;
  };
  add_list(more.tables, folder.tables);
  add_list(more.databases, folder.databases);
  add_list(more.timelines, folder.timelines);
  add_text(more.step_trace, folder.step_trace);
  add_text(more.communication, folder.communication);
  add_text(more.analysis_database, folder.analysis_database);
}

// A native folder: one entry, or one for each device of the older layout.
std::vector<AscendFolder> scan_native(const std::string& path) {
  AscendFolder whole = files_of(path + "/" + std::string(kNativeOutputFolder));
  add_missing(files_of(path), whole);
  add_missing(files_of(path + "/analyze"), whole);
  whole.path = path;
  std::vector<AscendFolder> folders;
  for (const std::string& name : subfolders_of(path)) {
    const std::optional<int32_t> device = device_of_name(name);
    if (!device) continue;
    AscendFolder part = files_of(path + "/" + name + "/summary");
    add_missing(files_of(path + "/" + name + "/timeline"), part);
    if (!part.has_kernels()) continue;
    part.path = path + "/" + name;
    part.device = *device;
    folders.push_back(std::move(part));
  }
  if (whole.has_kernels() || folders.empty()) folders.assign(1, std::move(whole));
  return folders;
}

std::string parent_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return (whole.has_filename() ? whole : whole.parent_path()).parent_path().string();
}

std::optional<int32_t> rank_in_info(const std::string& path) {
  Result<InputStream> input = InputStream::open_file(path);
  if (!input) return std::nullopt;
  JsonWalk walk(*input, {});
  const Result<char> first = walk.begin();
  if (!first || *first != '{') return std::nullopt;
  std::optional<int64_t> rank;
  const Result<bool> walked = walk.members([&](std::string_view key) -> Result<bool> {
    if (key != "rank_id") return walk.skip();
    JsonValue value;
    if (!GAPLESS_TRY(walk.value(value))) return false;
    rank = json_integer(value);
    return true;
  });
  if (!walked || !rank || *rank < 0 || *rank > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int32_t>(*rank);
}

// Of profiler_info_<rank>.json: what it says, else its name.
std::optional<int32_t> rank_of_info(const std::string& path) {
  constexpr std::string_view kInfo = "profiler_info";
  for (const std::string& name : entries_of(path)) {
    if (!name.starts_with(kInfo) || !name.ends_with(".json")) continue;
    if (const std::optional<int32_t> rank = rank_in_info(path + "/" + name)) return rank;
    if (name[kInfo.size()] != '_') continue;
    const std::string_view number = std::string_view(name).substr(kInfo.size() + 1);
    if (const std::optional<int32_t> rank = leading_number(number)) return rank;
  }
  return std::nullopt;
}

// The number behind the last `word` of a name that stands by itself: "dp0_tp3_rank5".
std::optional<int32_t> number_behind(std::string_view name, std::string_view word) {
  for (size_t at = name.rfind(word); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : name.rfind(word, at - 1)) {
    const char before = at == 0 ? '_' : name[at - 1];
    const bool is_word = before == '_' || before == '-' || before == '.';
    std::string_view rest = name.substr(at + word.size());
    if (rest.starts_with('_')) rest.remove_prefix(1);
    if (const std::optional<int32_t> number = leading_number(rest); is_word && number) {
      return number;
    }
  }
  return std::nullopt;
}

// "tp3" is the rank when nothing else of the parallel groups differs from 0.
std::optional<int32_t> rank_of_name(std::string_view name) {
  if (const std::optional<int32_t> rank = number_behind(name, "rank")) return rank;
  const bool is_first =
      number_behind(name, "dp").value_or(0) == 0 && number_behind(name, "pp").value_or(0) == 0;
  return is_first ? number_behind(name, "tp") : std::nullopt;
}

int32_t find_rank(const std::string& path, const AscendFolder& folder) {
  const bool is_output = base_name(path) == kOutputFolder;
  const std::string root = is_output ? parent_of(path) : path;
  if (const std::optional<int32_t> rank = rank_of_info(root)) return *rank;
  if (const std::optional<int32_t> rank = rank_of_name(base_name(root))) return *rank;
  for (const std::string& database : folder.databases) {
    const std::string name = base_name(database);
    if (!name.starts_with("ascend_")) continue;
    if (const std::optional<int32_t> rank = number_behind(name, "profiler")) return *rank;
  }
  return -1;
}

void set_finished(const std::string& output, AscendFolder& folder) {
  std::error_code error;
  folder.is_finished = std::filesystem::exists(output + "/analyse.done", error);
}

// A folder that is marked, with the native folders that may lie in it.
std::vector<AscendFolder> scan_marked(const std::string& path) {
  const std::string output = path + "/" + std::string(kOutputFolder);
  const bool has_output = is_directory(output);
  AscendFolder folder = files_of(has_output ? output : path);
  if (has_output) add_missing(files_of(path), folder);
  if (has_output) set_finished(output, folder);
  if (base_name(path) == kOutputFolder) set_finished(path, folder);
  folder.path = path;
  std::vector<AscendFolder> native;
  if (is_native_folder_name(base_name(path)) || !has_output) native = scan_native(path);
  for (const std::string& name : subfolders_of(path)) {
    if (!is_native_folder_name(name)) continue;
    for (AscendFolder& nested : scan_native(path + "/" + name)) {
      if (nested.has_kernels()) native.push_back(std::move(nested));
    }
  }
  const bool by_device = !native.empty() && native.front().device >= 0;
  std::vector<AscendFolder> folders;
  if (folder.has_kernels() || !by_device) {
    for (const AscendFolder& nested : native) add_missing(nested, folder);
    folders.push_back(std::move(folder));
  } else {
    folders = std::move(native);
  }
  const int32_t rank = find_rank(path, folders.front());
  for (AscendFolder& found : folders) found.rank = rank;
  std::erase_if(folders, [](const AscendFolder& found) { return !found.has_kernels(); });
  return folders;
}

// Files that somebody put into a folder of another name. A timeline alone may be anyone's.
std::vector<AscendFolder> scan_plain(const std::string& path) {
  AscendFolder folder = files_of(path);
  const auto is_ours = [](const std::string& timeline) {
    const std::string name = base_name(timeline);
    return name.starts_with("trace_view.json") || name.starts_with("msprof");
  };
  const bool has_timeline = std::any_of(folder.timelines.begin(), folder.timelines.end(), is_ours);
  if (folder.tables.empty() && folder.databases.empty() && !has_timeline) return {};
  folder.rank = find_rank(path, folder);
  return {std::move(folder)};
}

// Folders inside that are marked come before files that lie beside them.
std::vector<AscendFolder> find_folders(const std::string& path, int levels) {
  if (is_marked(path)) return scan_marked(path);
  std::vector<AscendFolder> marked;
  std::vector<AscendFolder> plain;
  const std::vector<std::string> names =
      levels > 0 ? subfolders_of(path) : std::vector<std::string>();
  for (const std::string& name : names) {
    const std::string child = path + "/" + name;
    for (AscendFolder& folder : find_folders(child, levels - 1)) {
      const bool is_plain = folder.path == child && !is_marked(child);
      (is_plain ? plain : marked).push_back(std::move(folder));
    }
  }
  if (!marked.empty()) return marked;
  std::vector<AscendFolder> own = scan_plain(path);
  return own.empty() ? plain : own;
}

bool has_marked_folder(const std::string& path, int levels) {
  if (is_marked(path)) return true;
  if (levels == 0) return false;
  const std::vector<std::string> names = subfolders_of(path);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return has_marked_folder(path + "/" + name, levels - 1);
  });
}

}  // namespace

std::vector<AscendFolder> find_ascend_folders(const std::string& path) {
  if (!is_directory(path)) return {};
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::vector<AscendFolder> folders = find_folders(folder, kLevels);
  std::stable_sort(folders.begin(), folders.end(),
                   [](const AscendFolder& a, const AscendFolder& b) {
                     return std::tie(a.rank, a.device, a.path) < std::tie(b.rank, b.device, b.path);
                   });
  return folders;
}

bool is_ascend_folder(const std::string& path) {
  if (!is_directory(path)) return false;
  return has_marked_folder(path, kLevels) || !find_ascend_folders(path).empty();
}

}  // namespace gapless
