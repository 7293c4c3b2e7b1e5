// SPDX-License-Identifier: Apache-2.0

#include "formats/conversion_target.h"

#include <filesystem>
#include <system_error>

namespace gapless {
namespace {

namespace fs = std::filesystem;

// "dir/x.json.gz" and "dir/x.json" are "dir/x".
std::string without_extension(const std::string& path) {
  fs::path stem(path);
  while (!stem.has_filename() && stem.has_relative_path()) stem = stem.parent_path();
  if (stem.extension() == ".gz") stem.replace_extension();
  return stem.replace_extension().string();
}

// Users of TraCR know perfetto.json and tracr.prv inside the directory.
std::string name_inside_tracr(Format format) {
  const std::string extension(info_of(format).extension);
  if (format == Format::kGapless) return "trace" + extension;
  if (format == Format::kParaver) return "tracr" + extension;
  return "perfetto" + extension;
}

Result<std::string> default_output(const ConversionRequest& request, Format format) {
  const std::string ending = request.compress && format == Format::kChromeJson ? ".gz" : "";
  if (request.input_format != Format::kTracr) {
    return without_extension(request.input) + std::string(info_of(format).extension) + ending;
  }
  if (format == Format::kTracr) {
    return fail(ErrorCode::kUsage, "{}: is a TraCR directory already; name another one with -o",
                request.input);
  }
  return (fs::path(request.input) / (name_inside_tracr(format) + ending)).string();
}

Result<Format> choose_format(const ConversionRequest& request) {
  if (request.to) return *request.to;
  if (request.output.empty()) {
    if (request.input_format == Format::kTracr) return Format::kChromeJson;
    return fail(ErrorCode::kUsage, "say where to write (-o FILE) or in which format (--to FORMAT)");
  }
  const std::optional<Format> format = format_by_extension(request.output);
  if (format) return *format;
  std::string known;
  for (const FormatInfo& info : all_formats()) {
    if (!info.can_write) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.extension);
  }
  return fail(ErrorCode::kUsage,
              "{}: the extension does not name a format (one of {}); add --to FORMAT",
              request.output, known);
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// The files of a TraCR directory are the input, too.
bool is_part_of_input(const ConversionRequest& request, const fs::path& output) {
  if (is_same_file(request.input, output)) return true;
  if (request.input_format != Format::kTracr) return false;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(request.input, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path name = entry->path().filename();
    const bool is_input = name == "metadata.json" || name.extension() == ".bts";
    if (is_input && is_same_file(entry->path(), output)) return true;
  }
  return false;
}

uint64_t file_bytes(const fs::path& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

}  // namespace

Result<ConversionTarget> choose_target(const ConversionRequest& request) {
  ConversionTarget target;
  target.format = GAPLESS_TRY(choose_format(request));
  const FormatInfo& info = info_of(target.format);
  if (request.compress && !info.can_compress) {
    return fail(ErrorCode::kUsage, "--compress: {} has no compressed form; gapless and json have",
                info.name);
  }
  target.path = request.output;
  if (target.path.empty()) target.path = GAPLESS_TRY(default_output(request, target.format));
  const bool named_gzip = target.format == Format::kChromeJson && target.path.ends_with(".gz");
  target.compress = request.compress || named_gzip;
  if (is_part_of_input(request, target.path)) {
    return fail(ErrorCode::kUsage, "{}: would write over the input; name another file with -o",
                target.path);
  }
  return target;
}

uint64_t output_bytes(const ConversionTarget& target) {
  uint64_t bytes = 0;
  std::error_code error;
  if (info_of(target.format).is_directory) {
    for (fs::recursive_directory_iterator entry(target.path, error), end; !error && entry != end;
         entry.increment(error)) {
      bytes += file_bytes(entry->path());
    }
    return bytes;
  }
  bytes = file_bytes(target.path);
  if (target.format != Format::kParaver) return bytes;
  for (const char* extension : {".pcf", ".row"}) {
    bytes += file_bytes(fs::path(target.path).replace_extension(extension));
  }
  return bytes;
}

}  // namespace gapless
