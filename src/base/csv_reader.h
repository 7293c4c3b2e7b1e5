// SPDX-License-Identifier: Apache-2.0
//
// CsvReader: comma separated text of any size, one record at a time, in the memory of one window.
//
// A record is not a line: quoted fields may hold line breaks. Fields are views into the window with
// their quotes taken off and nothing else changed; each record knows its offset, so that it can be
// copied out of the file again as it stands. Line ends may be LF, CRLF or a mixture, the last may
// be missing, and a byte order mark is passed over. Bytes are opaque: no character set, no locale.
// A quote that nobody closes costs its own line and not the rest of the file. Eight bytes are
// looked at in one step: about 1 GB/s.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/input_stream.h"
#include "base/result.h"

namespace gapless {

struct CsvField {
  std::string_view text;  // without the quotes around it; doubled ones inside stand as they are
  bool is_quoted = false;
  bool has_quotes = false;  // inside a quoted field: append_csv_unescaped makes one of two
};

void append_csv_unescaped(const CsvField& field, std::string& out);

// Valid until the reader's next step.
struct CsvRecord {
  uint64_t offset = 0;              // of its first byte in the (unpacked) input
  std::string_view text;            // as it stands, without its line end
  std::string_view line_end;        // "\n", "\r\n"; empty where the input ends without one
  std::vector<CsvField> fields;     // at least one; of an empty line one empty field
  bool has_line_breaks = false;     // in a quoted field
  bool has_unclosed_quote = false;  // the record was ended at its first line break instead

  bool is_blank() const { return fields.size() == 1 && text.empty(); }
};

struct CsvOptions {
  char separator = ',';
  size_t start_bytes = 1 << 20;   // of the window
  size_t limit_bytes = 16 << 20;  // of one record
};

class CsvReader {
 public:
  // The stream must outlive the reader. `progress` is called once a window.
  CsvReader(InputStream& input, const CsvOptions& options, Progress progress = {});

  // The next record; false at the end. Error when the input cannot be read, or when a line is
  // longer than the limit.
  Result<bool> next(CsvRecord& record);

  // Takes the record that next() gave again, ending at its first line break: quotes do not reach
  // beyond it. For records that turn out to be several.
  void end_at_line_break(CsvRecord& record);
  // next() gives this record, the last that was taken, once more and as a whole.
  void take_back(const CsvRecord& record);

  bool has_byte_order_mark() const { return has_byte_order_mark_; }

 private:
  enum class Scan { kDone, kNeedMore, kOpenQuote };

  Scan scan(const char* begin, const char* end, bool is_final, CsvRecord& record);
  void scan_line(const char* begin, CsvRecord& record);
  const char* scan_quoted(const char* at, const char* end, bool is_final, CsvField& field) const;
  const char* find_stop(const char* at) const;
  void finish_record(const char* begin, const char* stop, CsvRecord& record);
  // Reads more bytes behind those not yet taken; false when there are none.
  Result<bool> refill();
  Result<void> start();

  InputStream& input_;
  CsvOptions options_;
  Progress progress_;
  uint64_t separators_;       // the separator eight times
  std::vector<char> buffer_;  // a line break and seven bytes follow the last of size_
  size_t position_ = 0;
  size_t size_ = 0;
  uint64_t window_offset_ = 0;  // of the buffer's first byte in the input
  bool has_started_ = false;
  bool has_ended_ = false;
  bool has_byte_order_mark_ = false;
};

}  // namespace gapless
