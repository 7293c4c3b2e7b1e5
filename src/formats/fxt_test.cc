// SPDX-License-Identifier: Apache-2.0
//
// A small decoder of the format's words reads back what the writer made. That Perfetto itself
// understands it is proven by tests/perfetto.

#include "formats/fxt.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

uint64_t bits(uint64_t word, int first, int last) {
  return word >> first & ((uint64_t{2} << (last - first)) - 1);
}

// The file as a reader of the format sees it, in lines that a person can check.
class Decoder {
 public:
  explicit Decoder(const std::string& path) {
    const Result<std::string> text = read_text_file(path, size_t{1} << 30);
    EXPECT_TRUE(text.has_value());
    EXPECT_EQ(text->size() % 8, 0u);
    words_.resize(text->size() / 8);
    std::memcpy(words_.data(), text->data(), words_.size() * 8);
    EXPECT_EQ(words_.at(0), 0x0016547846040010u);
    while (at_ < words_.size()) decode_record();
  }

  std::vector<std::string> events;
  std::map<uint64_t, std::string> objects;  // names of processes and threads by number
  uint64_t ticks_per_second = 0;
  std::string provider;
  size_t string_records = 0;

 private:
  std::string text_at(size_t word, uint64_t size) const {
    return {reinterpret_cast<const char*>(words_.data() + word), size};
  }
  std::string string(uint64_t number) const {
    if (number == 0) return "";
    const auto found = strings_.find(number);
    if (found != strings_.end()) return found->second;
    ADD_FAILURE() << "text " << number << " is not defined";
    return "?";
  }

  void decode_record() {
    const uint64_t head = words_[at_];
    const size_t size = bits(head, 4, 15);
    ASSERT_GT(size, 0u);
    ASSERT_LE(at_ + size, words_.size());
    const uint64_t type = bits(head, 0, 3);
    if (type == 0 && bits(head, 16, 19) == 1) provider = text_at(at_ + 1, bits(head, 52, 59));
    if (type == 1) ticks_per_second = words_[at_ + 1];
    if (type == 2) {
      ++string_records;
      strings_[bits(head, 16, 30)] = text_at(at_ + 1, bits(head, 32, 46));
    }
    if (type == 3) threads_[bits(head, 16, 23)] = {words_[at_ + 1], words_[at_ + 2]};
    if (type == 4) decode_event(head, at_ + size);
    if (type == 7) objects[words_[at_ + 1]] = string(bits(head, 24, 39));
    at_ += size;
  }

  void decode_event(uint64_t head, size_t end) {
    constexpr const char* kTypes[] = {"instant",    "counter",   "?",       "?",
                                      "slice",      "?",         "?",       "?",
                                      "flow begin", "flow step", "flow end"};
    size_t word = at_ + 2;
    const uint64_t thread = bits(head, 24, 31);
    std::pair<uint64_t, uint64_t> place = threads_[thread];
    if (thread == 0) {
      place = {words_[word], words_[word + 1]};
      word += 2;
    }
    std::string text = fmt::format("{} {}/{} {}", words_[at_ + 1], objects[place.first],
                                   objects[place.second], kTypes[bits(head, 16, 19)]);
    text += " " + string(bits(head, 48, 63));
    if (bits(head, 32, 47) != 0) text += " cat=" + string(bits(head, 32, 47));
    for (uint64_t i = 0; i < bits(head, 20, 23); ++i) {
      const uint64_t argument = words_[word];
      text += " " + string(bits(argument, 16, 31)) + "=" + argument_text(argument, word);
      word += bits(argument, 4, 15);
    }
    if (word < end) text += fmt::format(" {}", words_[word++]);
    EXPECT_EQ(word, end) << text;
    events.push_back(text);
  }

  std::string argument_text(uint64_t argument, size_t word) const {
    switch (bits(argument, 0, 3)) {
      case 2:
        return fmt::format("{}", bits(argument, 32, 63));
      case 4:
        return fmt::format("{}", words_[word + 1]);
      case 5:
        return fmt::format("{}", std::bit_cast<double>(words_[word + 1]));
      case 6:
        return string(bits(argument, 32, 47));
    }
    ADD_FAILURE() << "argument type " << bits(argument, 0, 3);
    return "?";
  }

  std::vector<uint64_t> words_;
  size_t at_ = 0;
  std::map<uint64_t, std::string> strings_;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> threads_;
};

Decoder write_and_decode(const Trace& trace) {
  const std::string path =
      testing::TempDir() + "gapless_fxt_" + std::to_string(::getpid()) + ".fxt";
  const Result<void> written = write_fxt(trace, path, {});
  EXPECT_TRUE(written.has_value());
  Decoder decoder(path);
  std::remove(path.c_str());
  return decoder;
}

using Lines = std::vector<std::string>;

TEST(Fxt, WritesSlicesWithWhatTheyCarry) {
  TraceBuilder builder("test");
  builder.add_device({"host", 42});
  builder.add_lane({.name = "main"});
  const uint32_t span = builder.add_span(0, 1000, 1020, builder.intern("größe"), 4'000'000'000);
  builder.set_category(span, builder.intern("io"));
  builder.set_args(span, builder.intern("{\"k\":1}"));
  builder.add_span(0, 1020, 1020, builder.intern(""));
  builder.task_time(9'000'000'000, TaskTime::kStart, 1030, 0, builder.intern("matmul"));
  builder.task_time(9'000'000'000, TaskTime::kEnd, 1040, 0, kNoIndex);
  builder.task_time(5, TaskTime::kStart, 1050, 0, kNoIndex);
  builder.task_time(5, TaskTime::kEnd, 1060, 0, kNoIndex);
  builder.instant(0, 1015, builder.intern("mark"), 3);
  builder.counter(0, 1012, builder.intern("depth"), -1.5);
  const Decoder decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.ticks_per_second, 1'000'000'000u);
  EXPECT_EQ(decoded.provider, "gapless: time 0 is 1000 ns");
  EXPECT_EQ(decoded.events,
            (Lines{"0 host/main slice größe cat=io value=4000000000 args={\"k\":1} 20",
                   "20 host/main slice  20", "30 host/main slice matmul task=9000000000 40",
                   "50 host/main slice (unknown kernel) task=5 60",
                   "15 host/main instant mark value=3", "12 host/main counter main depth=-1.5 0"}));
}

TEST(Fxt, APlainSliceTakes24BytesAndAValue8More) {
  const auto bytes_of = [](bool values, uint32_t spans) {
    const std::string path =
        testing::TempDir() + "gapless_fxt_size_" + std::to_string(::getpid()) + ".fxt";
    const Trace trace = make_synthetic_trace(
        {.lane_count = 2, .spans_per_lane = spans, .name_count = 1, .values = values});
    EXPECT_TRUE(write_fxt(trace, path, {}).has_value());
    const Result<std::string> text = read_text_file(path);
    std::remove(path.c_str());
    return text->size();
  };
  EXPECT_EQ(bytes_of(false, 200) - bytes_of(false, 100), 2u * 100 * 24);
  EXPECT_EQ(bytes_of(true, 200) - bytes_of(true, 100), 2u * 100 * 32);
}

TEST(Fxt, PutsFlowsRightBehindTheirSlices) {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_lane({.name = "a"});
  builder.add_lane({.name = "b"});
  const uint32_t name = builder.intern("s");
  const uint32_t out = builder.add_span(0, 0, 10, name);
  const uint32_t step = builder.add_span(1, 12, 15, name);
  const uint32_t in = builder.add_span(1, 20, 30, name);
  builder.flow(0, 5, 77, FlowPhase::kOut, out);
  builder.flow(1, 13, 77, FlowPhase::kStep, step);
  builder.flow(1, 25, 77, FlowPhase::kIn, in);
  const Decoder decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.events, (Lines{"0 host/a slice s 10", "0 host/a flow begin flow cat=flow 1",
                                   "12 host/b slice s 15", "12 host/b flow step flow cat=flow 1",
                                   "20 host/b slice s 30", "20 host/b flow end flow cat=flow 1"}));
}

TEST(Fxt, MoreLanesThanTheThreadTableHolds) {
  TraceBuilder builder("test");
  builder.add_device({"device", 3});
  const uint32_t name = builder.intern("s");
  for (uint32_t lane = 0; lane < 600; ++lane) {
    builder.add_lane({.name = fmt::format("lane {}", lane)});
    builder.add_span(lane, lane, lane + 1, name);
  }
  const Decoder decoded = write_and_decode(builder.finish());
  ASSERT_EQ(decoded.events.size(), 600u);
  for (uint32_t lane = 0; lane < 600; ++lane) {
    EXPECT_EQ(decoded.events[lane],
              fmt::format("{} device/lane {} slice s {}", lane, lane, lane + 1));
  }
}

// Goal: texts are given out again, and every event still has its own.
// Method: twice as many names as there are numbers, each used twice with all of them in between.
TEST(Fxt, MoreNamesThanTheStringTableHolds) {
  TraceBuilder builder("test");
  builder.add_device({"device", 3});
  builder.add_lane({.name = "a"});
  constexpr int kNames = 70'000;
  for (int i = 0; i < 2 * kNames; ++i) {
    builder.add_span(0, i, i + 1, builder.intern(fmt::format("name {}", i % kNames)));
  }
  const Decoder decoded = write_and_decode(builder.finish());
  ASSERT_EQ(decoded.events.size(), size_t{2} * kNames);
  for (int i = 0; i < 2 * kNames; ++i) {
    ASSERT_EQ(decoded.events[static_cast<size_t>(i)],
              fmt::format("{} device/a slice name {} {}", i, i % kNames, i + 1));
  }
  EXPECT_GT(decoded.string_records, size_t{2} * kNames);
}

TEST(Fxt, CutsTextsThatAreTooLongBetweenCharacters) {
  TraceBuilder builder("test");
  builder.add_device({"device", 3});
  builder.add_lane({.name = "a"});
  std::string long_name = "x";
  for (int i = 0; i < 20'000; ++i) long_name += "ö";
  builder.add_span(0, 0, 1, builder.intern(long_name));
  const Decoder decoded = write_and_decode(builder.finish());
  ASSERT_EQ(decoded.events.size(), 1u);
  EXPECT_EQ(decoded.events[0], "0 device/a slice " + long_name.substr(0, 31'999) + " 1");
}

TEST(Fxt, AnEmptyTraceIsAValidFile) {
  const Decoder decoded = write_and_decode({});
  EXPECT_TRUE(decoded.events.empty());
  EXPECT_EQ(decoded.ticks_per_second, 1'000'000'000u);
}

TEST(Fxt, APathThatCannotBeWrittenIsAnError) {
  const std::string path = testing::TempDir() + "no such folder/x.fxt";
  const Result<void> written = write_fxt(make_synthetic_trace({}), path, {});
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().message.find("no such folder"), std::string::npos);
}

}  // namespace
}  // namespace gapless
