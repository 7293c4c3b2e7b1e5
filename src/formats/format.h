// SPDX-License-Identifier: Apache-2.0
//
// Every trace format by name: which one a path holds, reading any of them, writing any of them.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

enum class Format {
  kGapless,
  kTracr,
  kChromeJson,
  kPerfetto,
  kFxt,
  kParaver,
  kSwimlane,
  kAscendCsv,
  kAscendDb,
  kAscendFolder,
  kNsys,
  kRocprof
};

struct FormatInfo {
  Format format;
  std::string_view name;       // as on the command line: "gapless", "tracr", "json", ...
  std::string_view extension;  // of the file or directory that is written: ".json"
  bool is_directory;
  bool can_read;
  bool can_write;
  bool can_compress;
  std::string_view description;  // one line
};
std::span<const FormatInfo> all_formats();
const FormatInfo& info_of(Format format);
std::optional<Format> format_by_name(std::string_view name);
// By the extension of a file to be written ("x.json.gz" is JSON, "x/" a TraCR directory).
std::optional<Format> format_by_extension(std::string_view path);
// By what is in the file or directory, never by its name. A trace of a format that we only write is
// an error that says so.
Result<Format> detect_format(const std::string& path);

struct ReadOptions {
  // TraCR files of the old dialect do not say which label belongs to which event. true: number the
  // labels in the order of their keys in the file, as the old tracr_process did (often wrong).
  bool tracr_labels_by_key_order = false;
  Progress progress = {};
};

struct WriteOptions {
  bool compress = false;  // gapless: zstd for each chunk; json: gzip
  Progress progress = {};
};

Result<Trace> read_trace(const std::string& path, const ReadOptions& options = {});
Result<void> write_trace(const Trace& trace, const std::string& path, Format format,
                         const WriteOptions& options = {});

}  // namespace gapless
