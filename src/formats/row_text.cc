// SPDX-License-Identifier: Apache-2.0

#include "formats/row_text.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/csv_reader.h"
#include "base/file.h"
#include "base/input_stream.h"
#include "formats/ascend_cells.h"
#include "formats/ascend_header.h"

namespace gapless {
namespace {

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

bool is_line_break(char c) { return c == '\n' || c == '\r'; }

// A text that is one record, taken apart. It must outlive this.
class LoneRecord {
 public:
  explicit LoneRecord(std::string_view text)
      : input_(InputStream::from_memory(std::as_bytes(std::span(text)), "record")),
        reader_(input_, {.start_bytes = text.size() + 1}) {
    const Result<bool> is_there = reader_.next(record_);
    is_whole_ = is_there && *is_there && record_.text.size() == text.size();
  }
  LoneRecord(const LoneRecord&) = delete;
  LoneRecord& operator=(const LoneRecord&) = delete;

  bool is_whole() const { return is_whole_; }
  const CsvRecord& record() const { return record_; }

 private:
  InputStream input_;
  CsvReader reader_;
  CsvRecord record_;
  bool is_whole_ = false;
};

// The bytes of a file, unpacked.
class FileBytes {
 public:
  static Result<FileBytes> open(const KernelSource& source) {
    FileBytes bytes;
    if (source.is_compressed) {
      bytes.stream_ =
          std::make_unique<InputStream>(GAPLESS_TRY(InputStream::open_file(source.path)));
    } else {
      bytes.mapped_ = std::make_unique<MappedFile>(GAPLESS_TRY(MappedFile::open(source.path)));
    }
    return bytes;
  }

  // `count` bytes from `offset` on, or fewer where the file ends. The next call takes them away. Of
  // a compressed file offsets may only grow.
  Result<std::string_view> at(uint64_t offset, size_t count) {
    if (mapped_ != nullptr) {
      const std::span<const std::byte> bytes = mapped_->bytes();
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return offset < text.size() ? text.substr(offset, count) : std::string_view();
    }
    GAPLESS_TRY(move_to(offset));
    while (window_.size() - position_ < count && !has_ended_) GAPLESS_TRY(read_piece());
    return std::string_view(window_).substr(position_, count);
  }

 private:
  static constexpr size_t kPieceBytes = 1 << 20;

  FileBytes() = default;

  Result<void> move_to(uint64_t offset) {
    GAPLESS_CHECK(offset >= window_offset_ + position_);
    while (offset - window_offset_ > window_.size() && !has_ended_) {
      position_ = window_.size();
      GAPLESS_TRY(read_piece());
    }
    position_ = static_cast<size_t>(std::min<uint64_t>(offset - window_offset_, window_.size()));
    return {};
  }

  // More bytes behind those that are still wanted.
  Result<void> read_piece() {
    window_.erase(0, position_);
    window_offset_ += position_;
    position_ = 0;
    const size_t old_size = window_.size();
    window_.resize(old_size + kPieceBytes);
    const size_t count =
        GAPLESS_TRY(stream_->read(std::span<char>(window_.data() + old_size, kPieceBytes)));
    window_.resize(old_size + count);
    has_ended_ = count < kPieceBytes;
    return {};
  }

  std::unique_ptr<MappedFile> mapped_;
  std::unique_ptr<InputStream> stream_;
  std::string window_;
  size_t position_ = 0;  // of the first wanted byte in the window
  uint64_t window_offset_ = 0;
  bool has_ended_ = false;
};

Error file_changed(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kInvalidInput, "{}: changed since it was read: {}", path, what);
}

// Empty lines may stand before the header.
Result<void> check_header(const KernelSource& source, FileBytes& bytes) {
  constexpr size_t kRoomBytes = 64 << 10;
  std::string_view text = GAPLESS_TRY(bytes.at(0, source.header.size() + kRoomBytes));
  if (text.starts_with(kUtf8Mark) != source.has_byte_order_mark) {
    return file_changed(source.path, "its byte order mark came or went");
  }
  if (source.has_byte_order_mark) text.remove_prefix(kUtf8Mark.size());
  text.remove_prefix(static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_line_break) -
                                         text.begin()));
  const bool is_there = text.starts_with(source.header);
  if (is_there) text.remove_prefix(source.header.size());
  if (!is_there || (!text.empty() && !is_line_break(text.front()))) {
    return file_changed(source.path, "it does not begin with the header that it had");
  }
  return {};
}

class RowTexts {
 public:
  explicit RowTexts(const CaptureTable& table) : table_(table), headers_(table.sources.size()) {}

  // Opens the files of these rows; takes all texts out of the compressed ones.
  Result<void> open(std::span<const uint32_t> rows) {
    std::map<std::string_view, std::vector<uint32_t>> rows_by_path;
    for (const uint32_t row : rows) rows_by_path[source_of(row).path].push_back(row);
    for (auto& [path, file_rows] : rows_by_path) {
      const KernelSource& source = first_source(path);
      FileBytes bytes = GAPLESS_TRY(FileBytes::open(source));
      GAPLESS_TRY(check_header(source, bytes));
      if (source.is_compressed) {
        GAPLESS_TRY(unpack(file_rows, bytes));
      } else {
        files_.emplace(path, std::move(bytes));
      }
    }
    return {};
  }

  // Until the next call.
  Result<std::string_view> text_of(uint32_t row) {
    const KernelSource& source = source_of(row);
    if (!source.is_compressed) return checked_text(row, files_.at(source.path));
    return std::string_view(unpacked_).substr(unpacked_offset_.at(row), table_.text_bytes[row]);
  }

 private:
  const KernelSource& source_of(uint32_t row) const { return table_.sources[table_.source[row]]; }

  // The one whose header stands at the begin of the file.
  const KernelSource& first_source(std::string_view path) const {
    const auto has_path = [path](const KernelSource& source) { return source.path == path; };
    return *std::find_if(table_.sources.begin(), table_.sources.end(), has_path);
  }

  Result<void> unpack(std::vector<uint32_t>& rows, FileBytes& bytes) {
    std::sort(rows.begin(), rows.end(), [this](uint32_t a, uint32_t b) {
      return table_.text_offset[a] < table_.text_offset[b];
    });
    for (const uint32_t row : rows) {
      const auto [entry, is_fresh] = unpacked_offset_.try_emplace(row, unpacked_.size());
      if (is_fresh) unpacked_ += GAPLESS_TRY(checked_text(row, bytes));
    }
    return {};
  }

  // The record as it stands, if it still is that row.
  Result<std::string_view> checked_text(uint32_t row, FileBytes& bytes) {
    const KernelSource& source = source_of(row);
    const uint64_t offset = table_.text_offset[row];
    const size_t size = table_.text_bytes[row];
    const size_t before = offset > 0 ? 1 : 0;
    const std::string_view around = GAPLESS_TRY(bytes.at(offset - before, before + size + 1));
    const bool is_complete = around.size() >= before + size;
    const std::string_view text = is_complete ? around.substr(before, size) : std::string_view();
    const bool begins = around.starts_with('\n');  // of the line before it: at least the header's
    const bool ends =
        is_complete && (around.size() == before + size || is_line_break(around.back()));
    if (!begins || !ends || !has_times_of(row, text)) {
      return file_changed(source.path,
                          fmt::format("at byte {} is not the row that was there", offset));
    }
    return text;
  }

  // Headers of other tables than we know say nothing about times.
  bool has_times_of(uint32_t row, std::string_view text) {
    const std::optional<AscendHeader>& header = header_of(table_.source[row]);
    if (!header) return true;
    const LoneRecord lone(text);
    AscendCells cells;
    if (!lone.is_whole()) return false;
    arrange_cells(*header, lone.record(), cells);
    const AscendTime start = parse_ascend_time(cells.at(AscendColumn::kStart).text);
    const AscendTime duration = parse_ascend_time(cells.at(AscendColumn::kDuration).text);
    return start.is_number && start.ns == table_.start_ns[row] && duration.is_number &&
           duration.ns == table_.duration_ns[row];
  }

  const std::optional<AscendHeader>& header_of(uint32_t source) {
    std::optional<std::optional<AscendHeader>>& header = headers_[source];
    if (!header) {
      const LoneRecord lone(table_.sources[source].header);
      header = parse_ascend_header(lone.record().fields);
    }
    return *header;
  }

  const CaptureTable& table_;
  std::vector<std::optional<std::optional<AscendHeader>>> headers_;  // by source, when parsed
  std::map<std::string_view, FileBytes> files_;                      // those that are plain
  std::string unpacked_;
  std::unordered_map<uint32_t, size_t> unpacked_offset_;  // by row
};

// The source whose header is written.
Result<uint32_t> common_source(const CaptureTable& table, std::span<const uint32_t> rows) {
  if (table.sources.empty() || table.text_offset.size() != table.size() ||
      table.text_bytes.size() != table.size()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: rows of {} have no text of their own; only those of CSV tables can be "
                "written as they stand",
                table.sources.empty() ? "capture" : table.sources.front().path, table.format);
  }
  if (rows.empty()) return uint32_t{0};
  const uint32_t first = table.source[rows.front()];
  uint32_t last = first;
  for (const uint32_t row : rows) {
    const uint32_t source = table.source[row];
    if (source == last) continue;
    last = source;
    if (table.sources[source].header == table.sources[first].header) continue;
    return fail(ErrorCode::kInvalidInput,
                "{} and {}: rows of both are wanted in one file, but their headers differ ({} and "
                "{} bytes); write them one by one",
                table.sources[first].path, table.sources[source].path,
                table.sources[first].header.size(), table.sources[source].header.size());
  }
  return first;
}

}  // namespace

Result<uint64_t> write_row_text(const CaptureTable& table, std::span<const uint32_t> rows,
                                const std::string& path) {
  for (const uint32_t row : rows) GAPLESS_CHECK(row < table.size());
  const KernelSource& source = table.sources[GAPLESS_TRY(common_source(table, rows))];
  RowTexts texts(table);
  GAPLESS_TRY(texts.open(rows));
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  if (source.has_byte_order_mark) file.append(kUtf8Mark);
  file.append(source.header);
  file.append(source.line_end);
  for (const uint32_t row : rows) {
    file.append(GAPLESS_TRY(texts.text_of(row)));
    file.append(table.sources[table.source[row]].line_end);
  }
  const uint64_t bytes_written = file.bytes_written();
  GAPLESS_TRY(file.commit());
  return bytes_written;
}

}  // namespace gapless
