// SPDX-License-Identifier: Apache-2.0

#include "model/replaced_folder.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "base/decimal.h"
#include "base/file.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;

// Whether `inner` is `outer` or lies in it; both without links and dots.
bool is_inside(const fs::path& inner, const fs::path& outer) {
  fs::path::const_iterator at = inner.begin();
  for (const fs::path& part : outer) {
    if (at == inner.end() || *at != part) return false;
    ++at;
  }
  return true;
}

// What is at `path` may give way.
Result<void> check_target(const fs::path& path, const ReplacedFolderOptions& options) {
  std::error_code error;
  const fs::path source = fs::weakly_canonical(options.source, error);
  if (is_inside(source, path) || is_inside(path, source))
    return fail(ErrorCode::kInvalidInput,
                "{}: is, holds or lies in the folder that is read ({}); name another one",
                options.folder, options.source);
  if (!fs::exists(path, error)) return {};
  if (!fs::is_directory(path, error))
    return fail(ErrorCode::kInvalidInput, "{}: is there and is not a folder", options.folder);
  if (fs::is_empty(path, error) && !error) return {};
  if (!options.replace)
    return fail(ErrorCode::kInvalidInput,
                "{}: is there and not empty; name another folder, or replace it with --force",
                options.folder);
  if (!fs::exists(path / "config.json", error))
    return fail(ErrorCode::kInvalidInput,
                "{}: has no config.json; only a checkpoint is replaced by another one",
                options.folder);
  return {};
}

// Folders that processes left which were killed: the names that begin() makes, with the number of a
// process that is no more.
void remove_abandoned(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".tmp";
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::optional<int64_t> process = parse_decimal(name.substr(prefix.size()), 0);
    if (!process || *process <= 0 || *process > INT32_MAX) continue;
    if (fmt::format("{}{}", prefix, *process) != name) continue;
    if (::kill(static_cast<pid_t>(*process), 0) != 0 && errno == ESRCH)
      abandoned.push_back(at->path());
  }
  for (const fs::path& folder : abandoned) fs::remove_all(folder, error);
}

}  // namespace

ReplacedFolder::ReplacedFolder(std::string path, std::string temporary_path, bool may_replace)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      may_replace_(may_replace) {}

ReplacedFolder::ReplacedFolder(ReplacedFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      may_replace_(other.may_replace_) {}

ReplacedFolder::~ReplacedFolder() {
  std::error_code ignored;
  if (!temporary_path_.empty()) fs::remove_all(temporary_path_, ignored);
}

Result<ReplacedFolder> ReplacedFolder::begin(const ReplacedFolderOptions& options) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(options.folder, error), error);
  if (options.folder.empty() || error)
    return fail(ErrorCode::kInvalidInput, "'{}': is no name of a folder", options.folder);
  if (!path.has_filename()) path = path.parent_path();  // "out/"
  GAPLESS_TRY(check_target(path, options));
  std::string temporary = fmt::format("{}.tmp{}", path.string(), ::getpid());
  remove_abandoned(path);
  fs::remove_all(temporary, error);  // of a process that was killed and had our number
  GAPLESS_TRY(make_directories(temporary));
  return ReplacedFolder(path.string(), std::move(temporary), options.replace);
}

Result<void> ReplacedFolder::commit() {
  const std::string old = fmt::format("{}.old{}", path_, ::getpid());
  std::error_code error;
  // An empty folder is replaced by the rename itself, and one that is no longer empty refuses it.
  const bool replaces = may_replace_ && fs::exists(path_, error) && !fs::is_empty(path_, error);
  if (replaces) {
    fs::rename(path_, old, error);
    if (error) return fail(ErrorCode::kSystem, "{}: cannot replace: {}", path_, error.message());
  }
  fs::rename(temporary_path_, path_, error);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(old, path_, ignored);
    return fail(ErrorCode::kSystem, "{}: cannot put in place: {}", path_, error.message());
  }
  temporary_path_.clear();
  if (replaces) fs::remove_all(old, error);
  return {};
}

}  // namespace gapless
