// SPDX-License-Identifier: Apache-2.0

#include "base/csv_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

namespace gapless {
namespace {

static_assert(std::endian::native == std::endian::little, "find_stop counts from the low byte");

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHigh = 0x8080808080808080;
constexpr uint64_t kLineBreaks = kOnes * '\n';
constexpr size_t kPaddingBytes = sizeof(uint64_t);

const char* find_byte(const char* begin, const char* end, char byte) {
  return static_cast<const char*>(std::memchr(begin, byte, static_cast<size_t>(end - begin)));
}

// A small file needs no large window; one that grows behind its size does no harm.
size_t first_window_bytes(const InputStream& input, const CsvOptions& options) {
  constexpr uint64_t kSmallest = 16;
  constexpr uint64_t kSmall = 64 << 10;
  const uint64_t enough = std::max(kSmall, input.source_size() + 1);
  const bool is_known = input.source_size() > 0;
  const uint64_t bytes = is_known ? std::min<uint64_t>(options.start_bytes, enough)
                                  : static_cast<uint64_t>(options.start_bytes);
  return static_cast<size_t>(std::max(bytes, kSmallest));
}

}  // namespace

void append_csv_unescaped(const CsvField& field, std::string& out) {
  if (!field.has_quotes) {
    out += field.text;
    return;
  }
  for (size_t i = 0; i < field.text.size(); ++i) {
    out += field.text[i];
    if (field.text[i] == '"') ++i;
  }
}

CsvReader::CsvReader(InputStream& input, const CsvOptions& options, Progress progress)
    : input_(input),
      options_(options),
      progress_(std::move(progress)),
      separators_(kOnes * static_cast<unsigned char>(options.separator)),
      buffer_(first_window_bytes(input, options) + kPaddingBytes) {}

// The next separator or line break. One always comes: a line break stands behind the window.
const char* CsvReader::find_stop(const char* at) const {
  while (true) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    const uint64_t separator = word ^ separators_;
    const uint64_t line_break = word ^ kLineBreaks;
    const uint64_t hits =
        (((separator - kOnes) & ~separator) | ((line_break - kOnes) & ~line_break)) & kHigh;
    if (hits != 0) return at + std::countr_zero(hits) / 8;
    at += sizeof(word);
  }
}

// A field that begins with a quote. Returns where it stops; nullptr: the quote is still open at the
// end. Where anything stands between the closing quote and the separator, the writer did not know
// about quotes, and they are bytes like others.
const char* CsvReader::scan_quoted(const char* at, const char* end, bool is_final,
                                   CsvField& field) const {
  const char* quote = at + 1;
  bool has_quotes = false;
  while (true) {
    quote = find_byte(quote, end, '"');
    if (quote == nullptr) return nullptr;
    if (quote + 1 == end && !is_final) return nullptr;
    if (quote + 1 == end || quote[1] != '"') break;
    has_quotes = true;
    quote += 2;
  }
  const char* stop = find_stop(quote + 1);
  const auto is_return = [](char c) { return c == '\r'; };
  if (stop == quote + 1 || (*stop == '\n' && std::all_of(quote + 1, stop, is_return))) {
    const std::string_view text(at + 1, static_cast<size_t>(quote - at - 1));
    field = {.text = text, .is_quoted = true, .has_quotes = has_quotes};
    return stop;
  }
  stop = find_stop(at);
  field = {.text = {at, static_cast<size_t>(stop - at)}};
  return stop;
}

// Fields from `begin` up to a line break; a line break stands at `end`. `is_final`: nothing comes
// behind the end.
CsvReader::Scan CsvReader::scan(const char* begin, const char* end, bool is_final,
                                CsvRecord& record) {
  record.fields.clear();
  record.has_line_breaks = false;
  const char* at = begin;
  while (true) {
    CsvField field;
    const char* stop = nullptr;
    if (*at == '"') {
      stop = scan_quoted(at, end, is_final, field);
      if (stop == nullptr && !record.has_unclosed_quote) return Scan::kOpenQuote;
      record.has_line_breaks =
          record.has_line_breaks || field.text.find('\n') != std::string_view::npos;
    }
    if (stop == nullptr) {
      stop = find_stop(at);
      field = {.text = {at, static_cast<size_t>(stop - at)}};
    }
    record.fields.push_back(field);
    if (*stop == '\n') {
      if (stop == end && !is_final) return Scan::kNeedMore;
      finish_record(begin, stop, record);
      return Scan::kDone;
    }
    at = stop + 1;
  }
}

void CsvReader::finish_record(const char* begin, const char* stop, CsvRecord& record) {
  const char* text_end = stop;
  while (text_end > begin && text_end[-1] == '\r') --text_end;
  CsvField& last = record.fields.back();
  if (!last.is_quoted) {
    while (last.text.ends_with('\r')) last.text.remove_suffix(1);
  }
  const char* const window_end = buffer_.data() + size_;
  const char* const next = stop < window_end ? stop + 1 : window_end;
  record.offset = window_offset_ + static_cast<uint64_t>(begin - buffer_.data());
  record.text = {begin, static_cast<size_t>(text_end - begin)};
  record.line_end = {text_end, static_cast<size_t>(next - text_end)};
  position_ = static_cast<size_t>(next - buffer_.data());
}

Result<bool> CsvReader::refill() {
  if (has_ended_) return false;
  std::copy(buffer_.begin() + static_cast<ptrdiff_t>(position_),
            buffer_.begin() + static_cast<ptrdiff_t>(size_), buffer_.begin());
  window_offset_ += position_;
  size_ -= position_;
  position_ = 0;
  const size_t capacity = buffer_.size() - kPaddingBytes;
  if (size_ > capacity / 2) buffer_.resize(2 * capacity + kPaddingBytes);
  const size_t room = buffer_.size() - kPaddingBytes - size_;
  const size_t count = GAPLESS_TRY(input_.read(std::span<char>(buffer_.data() + size_, room)));
  has_ended_ = count < room;
  size_ += count;
  std::fill_n(buffer_.begin() + static_cast<ptrdiff_t>(size_), kPaddingBytes, '\n');
  if (progress_) progress_(input_.source_position(), input_.source_size());
  return count > 0;
}

Result<void> CsvReader::start() {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  has_started_ = true;
  GAPLESS_TRY(refill());
  has_byte_order_mark_ = std::string_view(buffer_.data(), size_).starts_with(kByteOrderMark);
  if (has_byte_order_mark_) position_ = kByteOrderMark.size();
  return {};
}

Result<bool> CsvReader::next(CsvRecord& record) {
  if (!has_started_) GAPLESS_TRY(start());
  record.has_unclosed_quote = false;
  while (true) {
    const char* const begin = buffer_.data() + position_;
    const char* const end = buffer_.data() + size_;
    if (begin == end) {
      if (!GAPLESS_TRY(refill())) return false;
      continue;
    }
    const Scan scanned = scan(begin, end, has_ended_, record);
    if (scanned == Scan::kDone) return true;
    const bool is_full = size_ - position_ >= options_.limit_bytes;
    if (!is_full && !has_ended_) {
      GAPLESS_TRY(refill());
      continue;
    }
    if (!has_ended_ && (scanned == Scan::kNeedMore || find_byte(begin, end, '\n') == nullptr)) {
      return fail(ErrorCode::kInvalidInput, "{}: the line at byte {} is longer than {} bytes",
                  input_.name(), window_offset_ + position_, options_.limit_bytes);
    }
    scan_line(begin, record);
    return true;
  }
}

void CsvReader::end_at_line_break(CsvRecord& record) {
  scan_line(buffer_.data() + (record.offset - window_offset_), record);
}

void CsvReader::take_back(const CsvRecord& record) {
  position_ = static_cast<size_t>(record.offset - window_offset_);
}

// The record is the line at `begin`; a quote that is open at its end is a byte like others.
void CsvReader::scan_line(const char* begin, CsvRecord& record) {
  const char* const end = buffer_.data() + size_;
  const char* const line_break = find_byte(begin, end, '\n');
  record.has_unclosed_quote = true;
  scan(begin, line_break == nullptr ? end : line_break, true, record);
}

}  // namespace gapless
