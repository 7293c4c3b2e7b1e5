// SPDX-License-Identifier: Apache-2.0
//
// ReplacedFolder: a checkpoint folder that is written beside its place and renamed into it, so that
// it is there completely or not at all.

#pragma once

#include <string>

#include "base/result.h"

namespace gapless {

struct ReplacedFolderOptions {
  std::string folder;    // to be made; must not exist or be empty, see `replace`
  std::string source;    // what is read meanwhile: never written over
  bool replace = false;  // a folder that has a config.json may be there, and goes
};

class ReplacedFolder {
 public:
  static Result<ReplacedFolder> begin(const ReplacedFolderOptions& options);
  ReplacedFolder(ReplacedFolder&& other) noexcept;
  ReplacedFolder& operator=(ReplacedFolder&&) = delete;
  // Without commit() nothing is left, and what was in place stays. What a process leaves that is
  // killed, the next begin() for the same folder removes.
  ~ReplacedFolder();

  // Where to write.
  const std::string& temporary_path() const { return temporary_path_; }
  Result<void> commit();

 private:
  ReplacedFolder(std::string path, std::string temporary_path, bool may_replace);
  std::string path_;
  std::string temporary_path_;  // empty: committed, or moved from
  bool may_replace_ = false;
};

}  // namespace gapless
