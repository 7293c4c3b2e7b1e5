// SPDX-License-Identifier: Apache-2.0
//
// A small decoder of protobuf's wire format reads back what the writer made. That Perfetto itself
// understands it is proven by tests/perfetto.

#include "formats/perfetto.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct Field {
  uint64_t number = 0;
  std::string_view bytes;
};
using Message = std::multimap<uint32_t, Field>;

uint64_t read_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (in.empty()) break;
    const uint8_t byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "a varint does not end";
  return 0;
}

Message decode(std::string_view in) {
  Message message;
  while (!in.empty()) {
    const uint64_t tag = read_varint(in);
    Field field;
    if ((tag & 7) == 0) {
      field.number = read_varint(in);
    } else if ((tag & 7) == 1 && in.size() >= 8) {
      std::memcpy(&field.number, in.data(), 8);
      in.remove_prefix(8);
    } else if ((tag & 7) == 2) {
      const uint64_t size = read_varint(in);
      if (size > in.size()) {
        ADD_FAILURE() << "field " << (tag >> 3) << " of " << size << " bytes has " << in.size();
        return message;
      }
      field.bytes = in.substr(0, size);
      in.remove_prefix(size);
    } else {
      ADD_FAILURE() << "tag " << tag;
      return message;
    }
    message.emplace(static_cast<uint32_t>(tag >> 3), field);
  }
  return message;
}

uint64_t number(const Message& message, uint32_t field, uint64_t absent = 0) {
  const auto found = message.find(field);
  return found == message.end() ? absent : found->second.number;
}
std::string_view bytes(const Message& message, uint32_t field) {
  const auto found = message.find(field);
  return found == message.end() ? std::string_view() : found->second.bytes;
}

// A file as lines that a person can check: tracks by name, events in the order of the file.
struct Decoded {
  std::string file;
  std::map<uint64_t, std::string> tracks;  // by uuid
  std::map<uint64_t, uint64_t> parents;
  std::map<uint64_t, uint64_t> ranks;
  std::map<uint32_t, std::map<uint64_t, std::string>> interned;  // by table
  std::vector<std::string> events;
  size_t packet_count = 0;
};

std::string annotation_text(const Decoded& decoded, std::string_view encoded) {
  const Message annotation = decode(encoded);
  const std::string& name = decoded.interned.at(3).at(number(annotation, 1));
  if (annotation.contains(17)) {
    return name + "=" + decoded.interned.at(29).at(number(annotation, 17));
  }
  return fmt::format("{}={}", name, number(annotation, 3));
}

std::string event_text(const Decoded& decoded, uint64_t time, const Message& event) {
  constexpr std::string_view kTypes[] = {"?", "begin", "end", "instant", "counter"};
  std::string text =
      fmt::format("{} {} {}", time, decoded.tracks.at(number(event, 11)), kTypes[number(event, 9)]);
  if (event.contains(10)) text += " " + decoded.interned.at(2).at(number(event, 10));
  if (event.contains(3)) text += " cat=" + decoded.interned.at(1).at(number(event, 3));
  const auto [first, last] = event.equal_range(4);
  for (auto field = first; field != last; ++field) {
    text += " " + annotation_text(decoded, field->second.bytes);
  }
  if (event.contains(44)) {
    text += fmt::format(" {}", std::bit_cast<double>(number(event, 44)));
  }
  const auto [first_flow, last_flow] = event.equal_range(47);
  for (auto field = first_flow; field != last_flow; ++field) {
    text += fmt::format(" flow={}", field->second.number);
  }
  const auto [first_end, last_end] = event.equal_range(48);
  for (auto field = first_end; field != last_end; ++field) {
    text += fmt::format(" flow_end={}", field->second.number);
  }
  return text;
}

void add_track(Decoded& decoded, const Message& track) {
  const uint64_t uuid = number(track, 1);
  std::string name(bytes(track, 2));
  if (track.contains(3)) {
    const Message process = decode(bytes(track, 3));
    name = fmt::format("{}:{}", bytes(process, 6), number(process, 1));
  }
  EXPECT_TRUE(decoded.tracks.emplace(uuid, name).second) << "two tracks are " << uuid;
  decoded.parents[uuid] = number(track, 5);
  decoded.ranks[uuid] = number(track, 12);
}

Decoded decode_file(const std::string& path) {
  Decoded decoded;
  Result<std::string> text = read_text_file(path);
  EXPECT_TRUE(text.has_value());
  decoded.file = std::move(*text);
  for (const auto& [field, packet_field] : decode(decoded.file)) {
    EXPECT_EQ(field, 1u);
    const Message packet = decode(packet_field.bytes);
    ++decoded.packet_count;
    EXPECT_EQ(number(packet, 10), 1u) << "one sequence";
    for (const auto& [table, entry] : decode(bytes(packet, 12))) {
      const Message interned = decode(entry.bytes);
      decoded.interned[table][number(interned, 1)] = std::string(bytes(interned, 2));
    }
    if (packet.contains(60)) add_track(decoded, decode(bytes(packet, 60)));
    if (!packet.contains(11)) continue;
    decoded.events.push_back(event_text(decoded, number(packet, 8), decode(bytes(packet, 11))));
  }
  return decoded;
}

Decoded write_and_decode(const Trace& trace) {
  const std::string path =
      testing::TempDir() + "gapless_perfetto_" + std::to_string(::getpid()) + ".pftrace";
  const Result<void> written = write_perfetto(trace, path, {});
  EXPECT_TRUE(written.has_value());
  Decoded decoded = decode_file(path);
  std::remove(path.c_str());
  return decoded;
}

using Lines = std::vector<std::string>;

TEST(Perfetto, WritesSlicesInTheOrderThatNests) {
  TraceBuilder builder("test");
  builder.add_device({"host", 42});
  builder.add_lane({.name = "main"});
  const uint32_t a = builder.intern("a");
  const uint32_t b = builder.intern("b");
  builder.add_span(0, 1000, 1100, a, 7);
  builder.add_span(0, 1000, 1040, b);
  builder.add_span(0, 1040, 1100, b);
  builder.add_span(0, 1100, 1100, a);
  const Decoded decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.events,
            (Lines{"0 main begin a value=7", "0 main begin b", "40 main end", "40 main begin b",
                   "100 main end", "100 main end", "100 main begin a", "100 main end"}));
}

TEST(Perfetto, DescribesDevicesLanesAndSubLanesInOrder) {
  TraceBuilder builder("test");
  builder.add_device({"host", 0});
  builder.add_device({"gpu", 1});
  builder.add_lane({.name = "z first"});
  builder.add_lane({.name = "a second", .device = 1});
  const uint32_t name = builder.intern("span");
  builder.add_span(0, 0, 10, name);
  builder.add_span(0, 5, 15, name);
  builder.add_span(1, 0, 10, name);
  const Decoded decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.tracks, (std::map<uint64_t, std::string>{{1, "host:1"},
                                                             {2, "lanes"},
                                                             {3, "gpu:2"},
                                                             {4, "lanes"},
                                                             {5, "z first"},
                                                             {6, "z first (2)"},
                                                             {7, "a second"}}));
  EXPECT_EQ(decoded.parents,
            (std::map<uint64_t, uint64_t>{{1, 0}, {2, 1}, {3, 0}, {4, 3}, {5, 2}, {6, 2}, {7, 4}}));
  EXPECT_LT(decoded.ranks.at(5), decoded.ranks.at(6));
  EXPECT_LT(decoded.ranks.at(6), decoded.ranks.at(7));
}

TEST(Perfetto, WritesWhatSlicesCarry) {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_lane({.name = "main"});
  const uint32_t span = builder.add_span(0, 10, 20, builder.intern("größe"), 0);
  builder.set_category(span, builder.intern("io"));
  builder.set_args(span, builder.intern("{\"k\":1}"));
  builder.task_time(9'000'000'000, TaskTime::kStart, 30, 0, builder.intern("matmul"));
  builder.task_time(9'000'000'000, TaskTime::kEnd, 40, 0, kNoIndex);
  builder.task_time(5, TaskTime::kStart, 50, 0, kNoIndex);
  builder.task_time(5, TaskTime::kEnd, 60, 0, kNoIndex);
  builder.instant(0, 15, builder.intern("mark"), 3);
  builder.counter(0, 12, builder.intern("depth"), -1.5);
  const Decoded decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.events,
            (Lines{"0 main begin größe cat=io value=0 args={\"k\":1}", "10 main end",
                   "20 main begin matmul task=9000000000", "30 main end",
                   "40 main begin (unknown kernel) task=5", "50 main end",
                   "5 main instant mark value=3", "2 depth counter -1.5"}));
  EXPECT_EQ(decoded.parents.rbegin()->second, 3u) << "the counter is below its lane";
}

TEST(Perfetto, TiesFlowsAndEdgesToSlices) {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_lane({.name = "a"});
  builder.add_lane({.name = "b"});
  const uint32_t name = builder.intern("s");
  const uint32_t out = builder.add_span(0, 0, 10, name);
  const uint32_t in = builder.add_span(1, 20, 30, name);
  builder.flow(0, 5, 77, FlowPhase::kOut, out);
  builder.flow(1, 25, 77, FlowPhase::kIn, in);
  builder.task_time(1, TaskTime::kStart, 40, 0, name);
  builder.task_time(1, TaskTime::kEnd, 50, 0, name);
  builder.task_time(2, TaskTime::kStart, 60, 1, name);
  builder.task_time(2, TaskTime::kEnd, 70, 1, name);
  builder.edge(1, 2);
  const Decoded decoded = write_and_decode(builder.finish());
  EXPECT_EQ(decoded.events, (Lines{"0 a begin s flow=1", "20 b begin s flow_end=1", "10 a end",
                                   "40 a begin s task=1 flow=2", "30 b end",
                                   "60 b begin s task=2 flow_end=2", "50 a end", "70 b end"}));
}

// Goal: a packet longer than 127 bytes, whose length does not fit where short ones have it.
TEST(Perfetto, ASliceMayHaveThousandsOfArrows) {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_lane({.name = "a"});
  const uint32_t name = builder.intern("s");
  constexpr uint64_t kConsumers = 10'000;
  for (uint64_t task = 0; task <= kConsumers; ++task) {
    const int64_t time_ns = static_cast<int64_t>(10 * task);
    builder.task_time(task, TaskTime::kStart, time_ns, 0, name);
    builder.task_time(task, TaskTime::kEnd, time_ns + 5, 0, name);
    if (task != 0) builder.edge(0, task);
  }
  const Decoded decoded = write_and_decode(builder.finish());
  ASSERT_EQ(decoded.events.size(), 2 * (kConsumers + 1));
  EXPECT_TRUE(decoded.events[0].ends_with(" flow=10000"));
  EXPECT_TRUE(decoded.events[2 * kConsumers].ends_with(" flow_end=10000"));
}

TEST(Perfetto, AnEmptyTraceIsAValidFile) {
  const Decoded decoded = write_and_decode({});
  EXPECT_TRUE(decoded.events.empty());
  EXPECT_GT(decoded.packet_count, 0u);
}

TEST(Perfetto, NamesOfAnyLengthAndNumberComeBack) {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_lane({.name = "a"});
  const std::string long_name(100'000, 'x');
  builder.add_span(0, 0, 1, builder.intern(long_name));
  for (int i = 0; i < 20'000; ++i) {
    builder.add_span(0, 10 + i, 11 + i, builder.intern(fmt::format("name {}", i)));
  }
  const Decoded decoded = write_and_decode(builder.finish());
  ASSERT_EQ(decoded.events.size(), 2u * 20'001);
  EXPECT_EQ(decoded.events[0], "0 a begin " + long_name);
  EXPECT_EQ(decoded.events[decoded.events.size() - 2], "20009 a begin name 19999");
}

TEST(Perfetto, APathThatCannotBeWrittenIsAnError) {
  const std::string path = testing::TempDir() + "no such folder/x.pftrace";
  const Result<void> written = write_perfetto(make_synthetic_trace({}), path, {});
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().message.find("no such folder"), std::string::npos);
}

}  // namespace
}  // namespace gapless
