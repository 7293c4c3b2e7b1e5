// SPDX-License-Identifier: Apache-2.0

#include "base/json_scanner.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

struct Parsed {
  JsonStatus status;
  JsonValue value;
  size_t end;  // how far the cursor came
};

// The text must outlive the result.
Parsed parse(const std::string& text) {
  JsonCursor cursor{text.data(), text.data() + text.size()};
  Parsed parsed{};
  parsed.status = cursor.read_value(parsed.value);
  parsed.end = static_cast<size_t>(cursor.at - text.data());
  return parsed;
}

InputStream stream_of(const std::string& text) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "test.json");
}

TEST(JsonCursor, TakesEachKindOfValue) {
  const std::vector<std::pair<std::string, JsonKind>> cases = {
      {"12,", JsonKind::kNumber},      {"-0.5e+10 ", JsonKind::kNumber},
      {"true]", JsonKind::kLiteral},   {"null}", JsonKind::kLiteral},
      {"\"text\"", JsonKind::kString}, {"[1,[2],{}]", JsonKind::kArray},
      {"[]", JsonKind::kArray},        {"{\"a\":[true,null],\"b\":{}}", JsonKind::kObject}};
  for (const auto& [text, kind] : cases) {
    const Parsed parsed = parse(text);
    EXPECT_EQ(parsed.status, JsonStatus::kOk) << text;
    EXPECT_EQ(parsed.value.kind, kind) << text;
    EXPECT_FALSE(parsed.value.is_lenient) << text;
  }
  const std::string string = " \n\t\"a longer text, more than one word\" ";
  EXPECT_EQ(parse(string).value.text, "a longer text, more than one word");
  const std::string number = "-12.5,";
  EXPECT_EQ(parse(number).value.text, "-12.5");
}

TEST(JsonCursor, SaysWhereItIsNotJson) {
  const std::vector<std::pair<std::string, size_t>> cases = {
      {"x,", 0},       {"[1 2]", 3},   {"{1:2}", 1},       {"{\"a\" 2}", 5}, {"[1,]", 3},
      {"{\"a\":}", 5}, {"\"\\x\"", 2}, {"\"\\u12g4\"", 5}, {"tru ", 0},      {"-]", 0},
      {"1e}", 2},      {"[1}", 2},     {"{\"a\":1]", 6},   {"nul]", 0},
  };
  for (const auto& [text, place] : cases) {
    const Parsed parsed = parse(text);
    EXPECT_EQ(parsed.status, JsonStatus::kBad) << text;
    EXPECT_EQ(parsed.end, place) << text;
  }
}

TEST(JsonCursor, EveryPrefixNeedsMore) {
  const std::string text =
      "{\"name\":\"a\\\"b\\u00b5\",\"list\":[1,-2.5e3,true,false,null,{\"x\":[]}],\"n\":1}";
  ASSERT_EQ(parse(text).status, JsonStatus::kOk);
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string prefix = text.substr(0, size);
    EXPECT_EQ(parse(prefix).status, JsonStatus::kNeedMore) << prefix;
  }
}

TEST(JsonCursor, FindsTheEndOfAStringAtEveryLength) {
  for (size_t length = 0; length < 40; ++length) {
    const std::string inside(length, 'x');
    const std::string text = "\"" + inside + "\"\"next\"";
    EXPECT_EQ(parse(text).value.text, inside);
    const std::string with_escape = "\"" + inside + "\\\"" + inside + "\",";
    const Parsed parsed = parse(with_escape);
    EXPECT_EQ(parsed.value.text, inside + "\\\"" + inside);
    EXPECT_TRUE(parsed.value.has_escapes);
    const std::string high = "\"" + inside + "\xc2\xb5\xff\"";
    EXPECT_EQ(parse(high).value.text, inside + "\xc2\xb5\xff");
  }
}

TEST(JsonCursor, AcceptsWhatWritersGetWrongAndSaysSo) {
  for (const std::string text :
       {"NaN,", "Infinity,", "-Infinity,", "007,", "1.,", "\"a\nb\"", "[NaN]", "{\"a\tb\":1}"}) {
    const Parsed parsed = parse(text);
    EXPECT_EQ(parsed.status, JsonStatus::kOk) << text;
    EXPECT_TRUE(parsed.value.is_lenient) << text;
  }
  const std::string zero("\"a\0b\"", 5);
  EXPECT_EQ(parse(zero).status, JsonStatus::kBad);
}

TEST(JsonCursor, DepthCostsNoStack) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + "\"]\"" + std::string(depth, ']');
  };
  EXPECT_FALSE(parse(nested(kMaxJsonDepth)).value.is_too_deep);
  for (const size_t depth : {size_t{kMaxJsonDepth} + 1, size_t{3'000'000}}) {
    const std::string text = nested(depth);
    const Parsed parsed = parse(text);
    EXPECT_EQ(parsed.status, JsonStatus::kOk);
    EXPECT_TRUE(parsed.value.is_too_deep);
    EXPECT_EQ(parsed.end, text.size());
  }
  EXPECT_EQ(parse(std::string(3'000'000, '[')).status, JsonStatus::kNeedMore);
}

TEST(JsonCursor, VisitsMembersInOrder) {
  const std::string object = " { \"a\" : 1 , \"b\" : { \"c\" : [2, 3] } , \"d\" : \"x\" } ";
  std::string seen;
  for_each_member(object, [&seen](const JsonValue& key, const JsonValue& value) {
    seen += std::string(key.text) + "=" + std::string(value.text) + ";";
  });
  EXPECT_EQ(seen, "a=1;b={ \"c\" : [2, 3] };d=x;");
  for_each_member("{}", [](const JsonValue&, const JsonValue&) { ADD_FAILURE(); });
}

// Goal: no value is lost or changed where a window ends. Method: every window size from one byte.
TEST(JsonScanner, GivesTheSameValuesWithAnyWindow) {
  std::string text = "[";
  std::vector<std::string> values;
  for (int i = 0; i < 60; ++i) {
    values.push_back(std::string(static_cast<size_t>(i), 'v') + std::to_string(i));
    text += "\"" + values.back() + "\" , ";
  }
  for (size_t window = 1; window < 100; ++window) {
    InputStream input = stream_of(text);
    JsonScanner scanner(input, {window, 1 << 20}, {});
    ASSERT_EQ(*scanner.peek(), '[');
    scanner.take();
    for (const std::string& expected : values) {
      JsonValue value;
      const Result<JsonStatus> status =
          scanner.read([&value](JsonCursor& cursor) { return cursor.read_value(value); });
      ASSERT_EQ(*status, JsonStatus::kOk);
      ASSERT_EQ(value.text, expected);
      ASSERT_EQ(*scanner.peek(), ',');
      scanner.take();
    }
    EXPECT_EQ(*scanner.peek(), '\0');
    EXPECT_EQ(scanner.offset(), text.size());
  }
}

TEST(JsonScanner, SkipsValuesLargerThanItsWindow) {
  const std::string large = "{\"a\":[\"" + std::string(5000, 'x') + "\\\"]\",{}],\"b\":\"\\\\\"}";
  for (const std::string& value : {large, std::string("12"), std::string("\"a}\\\"\""),
                                   std::string("true"), "[" + large + "," + large + "]"}) {
    const std::string text = " " + value + " , 7 ";
    InputStream input = stream_of(text);
    JsonScanner scanner(input, {16, 64}, {});
    ASSERT_EQ(*scanner.skip_value(), JsonStatus::kOk);
    ASSERT_EQ(*scanner.peek(), ',');
    EXPECT_EQ(scanner.offset(), value.size() + 2);
  }
  const std::string open = "[[1,2],";
  InputStream input = stream_of(open);
  JsonScanner scanner(input, {16, 64}, {});
  EXPECT_EQ(*scanner.skip_value(), JsonStatus::kNeedMore);
}

TEST(JsonScanner, RefusesWhatIsLargerThanItsLimit) {
  const std::string text = "\"" + std::string(1000, 'x') + "\",1";
  InputStream input = stream_of(text);
  JsonScanner scanner(input, {16, 256}, {});
  JsonValue value;
  const auto read_value = [&value](JsonCursor& cursor) { return cursor.read_value(value); };
  EXPECT_EQ(*scanner.read(read_value), JsonStatus::kTooLarge);
  EXPECT_EQ(*scanner.skip_value(), JsonStatus::kOk);
  EXPECT_EQ(*scanner.peek(), ',');
}

TEST(JsonScanner, SaysWhereInTheInputItIsBad) {
  const std::string text = std::string(100, ' ') + "[1 2]";
  InputStream input = stream_of(text);
  JsonScanner scanner(input, {16, 256}, {});
  ASSERT_EQ(*scanner.peek(), '[');
  JsonValue value;
  const auto read_value = [&value](JsonCursor& cursor) { return cursor.read_value(value); };
  EXPECT_EQ(*scanner.read(read_value), JsonStatus::kBad);
  EXPECT_EQ(scanner.bad_offset(), 103u);
}

TEST(JsonScanner, ReportsProgressUpToTheSize) {
  const std::string text(10'000, ' ');
  InputStream input = stream_of(text);
  uint64_t last = 0;
  uint64_t total = 0;
  int calls = 0;
  JsonScanner scanner(input, {1000, 1 << 20}, [&](uint64_t done, uint64_t size) {
    EXPECT_GE(done, last);
    last = done;
    total = size;
    ++calls;
  });
  EXPECT_EQ(*scanner.peek(), '\0');
  EXPECT_EQ(last, text.size());
  EXPECT_EQ(total, text.size());
  EXPECT_GE(calls, 10);
}

}  // namespace
}  // namespace gapless
