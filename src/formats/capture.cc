// SPDX-License-Identifier: Apache-2.0

#include "formats/capture.h"

#include <utility>

#include "base/input_stream.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_db.h"
#include "formats/ascend_folder.h"
#include "formats/json_kernels.h"
#include "formats/nsys_db.h"
#include "formats/rocprof_json.h"
#include "trace/capture_trace.h"

namespace gapless {
namespace {

Result<CaptureTable> read_csv(std::span<const std::string> paths,
                              const CaptureReadOptions& options) {
  return read_ascend_csv(paths,
                         {.default_device = options.default_device, .progress = options.progress});
}

// The table that the format is; a trace of tasks becomes one.
Result<CaptureTable> read_as(Format format, const std::string& path,
                             const CaptureReadOptions& options) {
  switch (format) {
    case Format::kAscendCsv:
      return read_csv({&path, 1}, options);
    case Format::kAscendDb:
      return read_ascend_db(path, options);
    case Format::kAscendFolder:
      return read_ascend_folder(path, options);
    case Format::kNsys:
      return read_nsys_db(path, options);
    case Format::kRocprof:
      return read_rocprof_json(GAPLESS_TRY(InputStream::open_file(path)), options);
    case Format::kChromeJson: {
      InputStream input = GAPLESS_TRY(InputStream::open_file(path));
      CaptureTable table = GAPLESS_TRY(read_json_kernels(std::move(input), options));
      if (table.size() > 0) return table;
      break;
    }
    default:
      break;
  }
  return capture_of(GAPLESS_TRY(read_trace(path, {.progress = options.progress})));
}

}  // namespace

bool is_capture(Format format) {
  return format == Format::kAscendCsv || format == Format::kAscendDb ||
         format == Format::kAscendFolder || format == Format::kNsys || format == Format::kRocprof;
}

Result<CaptureTable> read_capture(std::span<const std::string> paths,
                                  const CaptureReadOptions& options) {
  if (paths.empty()) return fail(ErrorCode::kUsage, "no file was given");
  if (paths.size() > 1) {
    for (const std::string& path : paths) {
      const Format format = GAPLESS_TRY(detect_format(path));
      if (format == Format::kAscendCsv) continue;
      return fail(
          ErrorCode::kInvalidInput,
          "{}: a trace in {} format; only kernel tables of the Ascend profiler (CSV) can be "
          "read as several files of one capture",
          path, info_of(format).name);
    }
    CaptureTable table = GAPLESS_TRY(read_csv(paths, options));
    for (const Finding& finding : table.findings) {
      if (finding.code == "files-overlap") {
        return fail(ErrorCode::kInvalidInput, "{}", finding.text);
      }
    }
    return table;
  }
  const std::string& path = paths.front();
  const Format format = GAPLESS_TRY(detect_format(path));
  CaptureTable table = GAPLESS_TRY(read_as(format, path, options));
  if (table.size() == 0) {
    return fail(ErrorCode::kInvalidInput, "{}: no kernel in it has a start and an end", path);
  }
  return table;
}

}  // namespace gapless
