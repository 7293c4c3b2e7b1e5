// SPDX-License-Identifier: Apache-2.0

#include "formats/format.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/input_stream.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_db.h"
#include "formats/ascend_folder.h"
#include "formats/capture.h"
#include "formats/chrome_json.h"
#include "formats/database.h"
#include "formats/fxt.h"
#include "formats/nsys_db.h"
#include "formats/paraver.h"
#include "formats/perfetto.h"
#include "formats/rocprof_json.h"
#include "formats/swimlane_reader.h"
#include "formats/tracr.h"
#include "trace/capture_trace.h"
#include "trace/trace_file.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

constexpr std::array<FormatInfo, 12> kFormats = {{
    {Format::kGapless, "gapless", ".gapless", false, true, true, true,
     "Gapless trace file: keeps everything"},
    {Format::kTracr, "tracr", ".tracr", true, true, true, false,
     "TraCR directory: proc.*/metadata.json and thread.*/traces.bts"},
    {Format::kChromeJson, "json", ".json", false, true, true, true,
     "Chrome JSON trace events, for Perfetto and chrome://tracing"},
    {Format::kPerfetto, "perfetto", ".pftrace", false, false, true, false,
     "Perfetto protobuf (TrackEvent), for ui.perfetto.dev"},
    {Format::kFxt, "fxt", ".fxt", false, false, true, false,
     "Fuchsia trace format, for ui.perfetto.dev"},
    {Format::kParaver, "paraver", ".prv", false, false, true, false,
     "Paraver: .prv with .pcf and .row beside it"},
    {Format::kSwimlane, "swimlane", ".json", false, true, false, false,
     "swimlane records of simpler, with deps.json and name map beside them"},
    {Format::kAscendCsv, "ascend-csv", ".csv", false, true, false, false,
     "kernel_details.csv or op_summary*.csv of the Ascend profiler"},
    {Format::kAscendDb, "ascend-db", ".db", false, true, false, false,
     "ascend_pytorch_profiler*.db or msprof_*.db of the Ascend profiler"},
    {Format::kAscendFolder, "ascend-folder", "", true, true, false, false,
     "a whole *_ascend_pt or PROF_* folder of the Ascend profiler"},
    {Format::kNsys, "nsys", ".sqlite", false, true, false, false,
     "what `nsys export --type sqlite` writes of an Nsight Systems report"},
    {Format::kRocprof, "rocprof", ".json", false, true, false, false, "JSON of rocprofv3"},
}};

constexpr std::string_view kWhatWeRead =
    "a Gapless trace file, Chrome JSON (plain or gzip), a TraCR directory, simpler's swimlane "
    "records, an Ascend profiler's CSV, database or folder, an Nsight Systems SQLite export or "
    "rocprofv3 JSON";

// Enough for any first record that tells a format; the Perfetto check follows one whole packet.
constexpr size_t kSniffBytes = 4096;

std::string_view as_text(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

// A varint at `position`, which moves behind it. Nothing: not one, or it is cut off.
std::optional<uint64_t> take_varint(std::string_view bytes, size_t& position) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && position < bytes.size(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes[position++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return std::nullopt;
}

// Walks the fields of one protobuf message. A message that ends outside `bytes` is fine as far as
// it can be seen.
bool looks_like_message(std::string_view bytes) {
  size_t position = 0;
  while (position < bytes.size()) {
    const std::optional<uint64_t> tag = take_varint(bytes, position);
    if (!tag) return position >= bytes.size();
    if (*tag >> 3 == 0) return false;
    const uint64_t wire_type = *tag & 7;
    uint64_t skip = 0;
    if (wire_type == 0 || wire_type == 2) {
      const std::optional<uint64_t> value = take_varint(bytes, position);
      if (!value) return position >= bytes.size();
      if (wire_type == 2) skip = *value;
    } else if (wire_type == 1) {
      skip = 8;
    } else if (wire_type == 5) {
      skip = 4;
    } else {
      return false;
    }
    if (skip > bytes.size() - position) return true;
    position += skip;
  }
  return true;
}

// A Perfetto trace is a sequence of packets, each field 1 of the whole. A text that happens to
// begin with the same byte (a new line) does not have another packet where the first one ends.
bool looks_like_perfetto(std::string_view bytes) {
  constexpr char kPacketTag = 0x0a;
  if (bytes.size() < 3 || bytes[0] != kPacketTag) return false;
  size_t position = 1;
  const std::optional<uint64_t> packet_bytes = take_varint(bytes, position);
  if (!packet_bytes || *packet_bytes == 0) return false;
  const std::string_view rest = bytes.substr(position);
  if (*packet_bytes < rest.size() && rest[*packet_bytes] != kPacketTag) return false;
  if (*packet_bytes > rest.size() && bytes.size() < kSniffBytes) return false;
  return looks_like_message(rest.substr(0, *packet_bytes));
}

std::optional<Format> format_of_bytes(std::string_view bytes) {
  constexpr std::string_view kFxtMagic("\x10\x00\x04\x46\x78\x54\x16\x00", 8);
  if (is_trace_file(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())))) {
    return Format::kGapless;
  }
  if (bytes.starts_with("#Paraver ")) return Format::kParaver;
  if (bytes.starts_with(kFxtMagic)) return Format::kFxt;
  if (looks_like_swimlane(bytes)) return Format::kSwimlane;
  if (looks_like_rocprof(bytes)) return Format::kRocprof;
  if (looks_like_chrome_json(bytes)) return Format::kChromeJson;
  if (looks_like_ascend_csv(bytes)) return Format::kAscendCsv;
  if (looks_like_perfetto(bytes)) return Format::kPerfetto;
  return std::nullopt;
}

// The first bytes as a person can read them: "hello\x0a".
std::string quoted_start(std::string_view bytes) {
  constexpr size_t kShownBytes = 16;
  std::string text = "\"";
  for (const char c : bytes.substr(0, kShownBytes)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return text + (bytes.size() > kShownBytes ? "\"..." : "\"");
}

Error unknown_content(const std::string& path, std::string_view bytes) {
  constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";
  if (bytes.starts_with(kZstdMagic)) {
    return fail(ErrorCode::kInvalidInput, "{}: compressed with zstd; run `unzstd {}` first", path,
                path);
  }
  if (looks_like_lfs_pointer(bytes)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: stands for a large file that git did not fetch; run `git lfs pull` first",
                path);
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: not a trace; looked for {}, but the file begins with {}", path, kWhatWeRead,
              quoted_start(bytes));
}

// Of a SQLite file the tables tell what it is.
Result<Format> detect_database_format(const std::string& path) {
  const Database database = GAPLESS_TRY(Database::open(path));
  if (is_ascend_database(database)) return Format::kAscendDb;
  if (is_nsys_database(database)) return Format::kNsys;
  return fail(ErrorCode::kInvalidInput,
              "{}: a SQLite database without a profiler's tables; looked for TASK and "
              "COMPUTE_TASK_INFO (Ascend) and for CUPTI_ACTIVITY_KIND_KERNEL (Nsight Systems)",
              path);
}

bool starts_as_gzip(const std::string& path) {
  char magic[2] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return magic[0] == '\x1f' && magic[1] == '\x8b';
}

Result<Format> detect_file_format(const std::string& path) {
  InputStream stream = GAPLESS_TRY(InputStream::open_file(path));
  std::array<char, kSniffBytes> buffer;
  const size_t size = GAPLESS_TRY(stream.read(buffer));
  const std::string_view bytes = as_text(std::span<const char>(buffer).first(size));
  if (bytes.empty() && !stream.damage().empty()) {
    return fail(ErrorCode::kInvalidInput, "{}: nothing can be read: {}", path, stream.damage());
  }
  if (bytes.empty()) {
    return fail(ErrorCode::kInvalidInput, "{}: empty (0 bytes); looked for {}", path, kWhatWeRead);
  }
  if (looks_like_database(bytes)) {
    if (!starts_as_gzip(path)) return detect_database_format(path);
    return fail(ErrorCode::kInvalidInput, "{}: a database inside gzip; run `gunzip {}` first", path,
                path);
  }
  const std::optional<Format> format = format_of_bytes(bytes);
  if (!format) return unknown_content(path, bytes);
  const FormatInfo& info = info_of(*format);
  if (!info.can_read) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a trace in {} format, which gapless writes but does not read; give it {}",
                path, info.name, kWhatWeRead);
  }
  if (*format == Format::kGapless && starts_as_gzip(path)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a Gapless trace file inside gzip; run `gunzip {}` first", path, path);
  }
  return *format;
}

}  // namespace

std::span<const FormatInfo> all_formats() { return kFormats; }

const FormatInfo& info_of(Format format) { return kFormats[static_cast<size_t>(format)]; }

std::optional<Format> format_by_name(std::string_view name) {
  for (const FormatInfo& info : kFormats) {
    if (info.name == name) return info.format;
  }
  return std::nullopt;
}

std::optional<Format> format_by_extension(std::string_view path) {
  if (path.ends_with('/')) return Format::kTracr;
  if (path.ends_with(".json.gz")) return Format::kChromeJson;
  if (path.ends_with(".perfetto-trace")) return Format::kPerfetto;
  for (const FormatInfo& info : kFormats) {
    if (info.can_write && path.ends_with(info.extension)) return info.format;
  }
  return std::nullopt;
}

Result<Format> detect_format(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kSystem, "{}: {}", path,
                error ? error.message() : "no such file or directory");
  }
  if (std::filesystem::is_directory(status)) {
    if (is_tracr_directory(path)) return Format::kTracr;
    if (is_swimlane_folder(path)) return Format::kSwimlane;
    if (is_ascend_folder(path)) return Format::kAscendFolder;
    return fail(ErrorCode::kInvalidInput,
                "{}: a directory without a trace; looked for proc.*/metadata.json and "
                "proc.*/thread.*/traces.bts (TraCR), for the records of simpler, and for what the "
                "Ascend profiler writes (kernel_details.csv, op_summary*.csv, a database)",
                path);
  }
  if (!std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a pipe or a device; a trace is looked at twice, so save it to a file first",
                path);
  }
  return detect_file_format(path);
}

Result<Trace> read_trace(const std::string& path, const ReadOptions& options) {
  const Format format = GAPLESS_TRY(detect_format(path));
  switch (format) {
    case Format::kGapless:
      return read_trace_file(path, options.progress);
    case Format::kTracr:
      return read_tracr(path, options);
    case Format::kChromeJson:
      return read_chrome_json(GAPLESS_TRY(InputStream::open_file(path)), options);
    case Format::kSwimlane:
      return read_swimlane(path, options);
    case Format::kAscendCsv:
    case Format::kAscendDb:
    case Format::kAscendFolder:
    case Format::kNsys:
    case Format::kRocprof:
      return trace_of(
          GAPLESS_TRY(read_capture({&path, 1}, {.keep_host = true, .progress = options.progress})));
    case Format::kPerfetto:
    case Format::kFxt:
    case Format::kParaver:
      break;
  }
  return fail(ErrorCode::kInvalidInput, "{}: gapless does not read {}", path, info_of(format).name);
}

Result<void> write_trace(const Trace& trace, const std::string& path, Format format,
                         const WriteOptions& options) {
  switch (format) {
    case Format::kGapless:
      return write_trace_file(trace, path,
                              {.compress = options.compress, .progress = options.progress});
    case Format::kTracr:
      return write_tracr(trace, path, options);
    case Format::kChromeJson:
      return write_chrome_json(trace, path, options);
    case Format::kPerfetto:
      return write_perfetto(trace, path, options);
    case Format::kFxt:
      return write_fxt(trace, path, options);
    case Format::kParaver:
      return write_paraver(trace, path, options);
    case Format::kSwimlane:
    case Format::kAscendCsv:
    case Format::kAscendDb:
    case Format::kAscendFolder:
    case Format::kNsys:
    case Format::kRocprof:
      break;
  }
  return fail(ErrorCode::kUsage, "{}: gapless does not write {}", path, info_of(format).name);
}

}  // namespace gapless
