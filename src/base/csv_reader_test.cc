// SPDX-License-Identifier: Apache-2.0

#include "base/csv_reader.h"

#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

struct Seen {
  uint64_t offset;
  std::string text;
  std::string line_end;
  std::vector<std::string> fields;
  bool has_line_breaks;
  bool has_unclosed_quote;
  bool operator==(const Seen&) const = default;
};

Seen seen(const CsvRecord& record) {
  Seen copy{record.offset,          std::string(record.text), std::string(record.line_end), {},
            record.has_line_breaks, record.has_unclosed_quote};
  for (const CsvField& field : record.fields) {
    append_csv_unescaped(field, copy.fields.emplace_back());
  }
  return copy;
}

InputStream stream_of(std::string_view text) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "t.csv");
}

std::vector<Seen> read_all(std::string_view text, const CsvOptions& options = {}) {
  InputStream input = stream_of(text);
  CsvReader reader(input, options);
  CsvRecord record;
  std::vector<Seen> records;
  while (true) {
    const Result<bool> more = reader.next(record);
    EXPECT_TRUE(more.has_value()) << more.error().message;
    if (!more || !*more) return records;
    records.push_back(seen(record));
  }
}

using Fields = std::vector<std::string>;

TEST(CsvReader, SplitsFieldsAndKnowsWhereRecordsLie) {
  const std::vector<Seen> records = read_all("a,bc,\n,d,e\n");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields, (Fields{"a", "bc", ""}));
  EXPECT_EQ(records[0].offset, 0u);
  EXPECT_EQ(records[0].text, "a,bc,");
  EXPECT_EQ(records[1].fields, (Fields{"", "d", "e"}));
  EXPECT_EQ(records[1].offset, 6u);
}

TEST(CsvReader, HasNoRecordsInAnEmptyInput) {
  EXPECT_TRUE(read_all("").empty());
  EXPECT_TRUE(read_all("\xef\xbb\xbf").empty());
}

TEST(CsvReader, TakesAnyMixtureOfLineEnds) {
  const std::vector<Seen> records = read_all("a,1\r\nb,2\nc,\"3\"\r\n\r\nd,4\r\r\ne\rf,\"5\"");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[0].fields, (Fields{"a", "1"}));
  EXPECT_EQ(records[0].line_end, "\r\n");
  EXPECT_EQ(records[1].line_end, "\n");
  EXPECT_EQ(records[2].fields, (Fields{"c", "3"}));
  EXPECT_EQ(records[2].text, "c,\"3\"");
  EXPECT_EQ(records[3].fields, Fields{""});
  EXPECT_EQ(records[3].text, "");
  EXPECT_EQ(records[4].fields, (Fields{"d", "4"}));
  EXPECT_EQ(records[4].line_end, "\r\r\n");
  EXPECT_EQ(records[5].fields, (Fields{"e\rf", "5"})) << "a lone CR ends nothing";
  EXPECT_EQ(records[5].line_end, "");
}

TEST(CsvReader, PassesOverAByteOrderMark) {
  const std::string_view text = "\xef\xbb\xbfname\nx\n";
  InputStream input = stream_of(text);
  CsvReader reader(input, {});
  CsvRecord record;
  ASSERT_TRUE(*reader.next(record));
  EXPECT_TRUE(reader.has_byte_order_mark());
  EXPECT_EQ(record.fields[0].text, "name");
  EXPECT_EQ(record.offset, 3u);
}

TEST(CsvReader, TakesQuotesApart) {
  const std::vector<Seen> records =
      read_all("\"a,b\",\"\"\"1,2;3\"\"\",\"\"\"\"\"\",\"\"\nx\"y,\"p\"q,\"z\t\"\n");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields, (Fields{"a,b", "\"1,2;3\"", "\"\"", ""}));
  EXPECT_EQ(records[1].fields, (Fields{"x\"y", "\"p\"q", "z\t"}))
      << "a quote in the middle is a byte like others";
}

TEST(CsvReader, TakesQuotesOfAWriterThatDoesNotKnowThemAsBytes) {
  const std::vector<Seen> records = read_all("\"odd,1,\"\"\"16,2\"\"\",\"a,b\"c\nx,y\n");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields, (Fields{"\"odd", "1", "\"16,2\"", "\"a", "b\"c"}));
}

TEST(CsvReader, LetsQuotedFieldsHoldLineBreaks) {
  const std::vector<Seen> records = read_all("a,\"one\r\ntwo\nthree\",b\nc,d,e\n");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields, (Fields{"a", "one\r\ntwo\nthree", "b"}));
  EXPECT_TRUE(records[0].has_line_breaks);
  EXPECT_FALSE(records[1].has_line_breaks);
  EXPECT_EQ(records[1].offset, 21u);
}

TEST(CsvReader, LosesOneLineToAQuoteThatNobodyCloses) {
  const std::vector<Seen> records = read_all("a,\"b,c\nd,e,f\ng,h,i");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_TRUE(records[0].has_unclosed_quote);
  EXPECT_EQ(records[0].fields, (Fields{"a", "\"b", "c"}));
  EXPECT_EQ(records[1].fields, (Fields{"d", "e", "f"}));
  EXPECT_FALSE(records[1].has_unclosed_quote);
  EXPECT_EQ(records[2].fields, (Fields{"g", "h", "i"}));
}

TEST(CsvReader, SplitsARecordIntoLinesWhenAsked) {
  const std::string_view text = "\"a,b\nc,\"\"d\"\"\ne\",f\ng,h\n";
  InputStream input = stream_of(text);
  CsvReader reader(input, {});
  CsvRecord record;
  ASSERT_TRUE(*reader.next(record));
  EXPECT_EQ(record.fields.size(), 2u);
  EXPECT_TRUE(record.has_line_breaks);
  reader.end_at_line_break(record);
  EXPECT_EQ(record.text, "\"a,b");
  EXPECT_EQ(seen(record).fields, (Fields{"\"a", "b"}));
  EXPECT_FALSE(record.has_line_breaks);
  reader.take_back(record);
  ASSERT_TRUE(*reader.next(record));
  EXPECT_EQ(record.text, "\"a,b\nc,\"\"d\"\"\ne\",f");
  EXPECT_FALSE(record.has_unclosed_quote);
  reader.end_at_line_break(record);
  ASSERT_TRUE(*reader.next(record));
  EXPECT_EQ(record.text, "c,\"\"d\"\"");
  EXPECT_EQ(record.offset, 5u);
}

TEST(CsvReader, RefusesALineBeyondTheLimit) {
  const std::string text(500, 'x');
  InputStream input = stream_of(text);
  CsvReader reader(input, {.start_bytes = 16, .limit_bytes = 64});
  CsvRecord record;
  const Result<bool> more = reader.next(record);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().message, "t.csv: the line at byte 0 is longer than 64 bytes");
}

TEST(CsvReader, GivesUpAnOpenQuoteAtTheLimit) {
  const std::string text = "a,\"b\n" + std::string(500, '\n') + "c,d\n";
  const std::vector<Seen> records = read_all(text, {.start_bytes = 16, .limit_bytes = 64});
  ASSERT_EQ(records.size(), 502u);
  EXPECT_EQ(records[0].fields, (Fields{"a", "\"b"}));
  EXPECT_EQ(records[501].fields, (Fields{"c", "d"}));
}

TEST(CsvReader, TakesOtherSeparators) {
  const std::vector<Seen> records = read_all("a;b,c;\"d;e\"\n", {.separator = ';'});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].fields, (Fields{"a", "b,c", "d;e"}));
}

// Goal: what is read does not depend on the window, and records tile the input.
// Method: random texts of the bytes that matter, read with a window of 16 bytes and with one that
// holds them; texts and line ends put together are the input again.
TEST(CsvReader, GivesTheSameThroughAnyWindow) {
  std::mt19937 random(7);
  constexpr std::string_view kBytes = "aab,,\"\"\n\r";
  for (int round = 0; round < 1000; ++round) {
    std::string text;
    const size_t size = random() % 120;
    for (size_t i = 0; i < size; ++i) text += kBytes[random() % kBytes.size()];
    const std::vector<Seen> wide = read_all(text, {.start_bytes = 256});
    const std::vector<Seen> narrow = read_all(text, {.start_bytes = 16});
    ASSERT_EQ(wide, narrow) << text;
    std::string joined;
    for (const Seen& record : wide) {
      ASSERT_EQ(record.offset, joined.size()) << text;
      joined += record.text + record.line_end;
    }
    ASSERT_EQ(joined, text);
  }
}

TEST(CsvReader, ReportsProgressOncePerWindow) {
  const std::string text(100, '\n');
  InputStream input = stream_of(text);
  std::vector<uint64_t> done;
  CsvReader reader(input, {.start_bytes = 40}, [&done](uint64_t bytes, uint64_t total) {
    EXPECT_EQ(total, 100u);
    done.push_back(bytes);
  });
  CsvRecord record;
  int count = 0;
  while (*reader.next(record)) ++count;
  EXPECT_EQ(count, 100);
  EXPECT_EQ(done, (std::vector<uint64_t>{40, 80, 100}));
}

}  // namespace
}  // namespace gapless
