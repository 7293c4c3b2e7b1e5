// SPDX-License-Identifier: Apache-2.0
//
// Reads what page_data_json() packs, as the page does, for tests: written from the description in
// page_data.h alone.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "report/page_data.h"

namespace gapless {

inline std::string decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  EXPECT_EQ(text.size() % 4, 0u);
  std::string bytes;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char letter : text.substr(0, text.find('='))) {
    const size_t digit = kDigits.find(letter);
    EXPECT_NE(digit, std::string_view::npos) << letter;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes += static_cast<char>(bits >> bit_count & 0xff);
  }
  return bytes;
}

inline std::string inflate_bytes(std::string_view compressed, size_t size) {
  std::string bytes(size + 1, '\0');
  uLongf used = bytes.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &used,
                       reinterpret_cast<const Bytef*>(compressed.data()), compressed.size()),
            Z_OK);
  EXPECT_EQ(used, size);
  bytes.resize(used);
  return bytes;
}

class ColumnReader {
 public:
  explicit ColumnReader(std::string bytes) : bytes_(std::move(bytes)) {}

  uint64_t next() {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      if (at_ >= bytes_.size()) {
        ADD_FAILURE() << "the columns end too early";
        return 0;
      }
      const uint64_t byte = static_cast<uint8_t>(bytes_[at_++]);
      number |= (byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
  }
  int64_t next_signed() { return signed_of(next()); }
  static int64_t signed_of(uint64_t number) {
    return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
  }
  std::vector<uint64_t> column(uint64_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = next();
    return numbers;
  }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

struct ReadTask {
  uint32_t core = 0;
  uint64_t kernel = 0;
  uint64_t id = 0;
  int64_t start_ns = 0;  // times are since the window's begin
  int64_t end_ns = 0;
  std::array<std::optional<int64_t>, 5> other_ns;  // submit, ready, dispatch, receive, finish
  uint64_t layer = 0;
  uint64_t producer_count = 0;
  std::vector<uint64_t> producers;
};

struct ReadBubble {
  uint32_t core = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t cause = 0;
};

struct ReadSegment {
  uint64_t part = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t task = 0;  // 1 + number; 0: none
};

struct ReadSpan {
  uint32_t lane = 0;  // of `lanes`
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t name = 0;
  uint64_t depth = 0;
};

struct ReadLevel {
  uint64_t bucket_count = 0;
  std::vector<uint64_t> busy;
  std::vector<uint64_t> kernel;
  std::vector<uint64_t> cause;
};

struct ReadStep {
  nlohmann::json json;
  std::vector<ReadTask> tasks;
  std::vector<ReadBubble> bubbles;
  std::vector<ReadSegment> path;
  std::vector<ReadSpan> spans;
  std::vector<ReadLevel> levels;
};

inline void read_tasks(ColumnReader& reader, ReadStep& step) {
  for (uint32_t core = 0; core < step.json["cores"].size(); ++core) {
    const size_t count = step.json["cores"][core]["task_count"];
    step.tasks.insert(step.tasks.end(), count,
                      ReadTask{.core = core, .other_ns = {}, .producers = {}});
  }
  ASSERT_EQ(step.tasks.size(), step.json["task_count"].get<size_t>());
  for (ReadTask& task : step.tasks) task.start_ns = static_cast<int64_t>(reader.next());
  for (ReadTask& task : step.tasks) task.end_ns = static_cast<int64_t>(reader.next());
  for (size_t i = 0; i < step.tasks.size(); ++i) {
    ReadTask& task = step.tasks[i];
    const bool is_first = i == 0 || step.tasks[i - 1].core != task.core;
    task.start_ns += is_first ? 0 : step.tasks[i - 1].end_ns;
    task.end_ns += task.start_ns;
  }
  for (ReadTask& task : step.tasks) task.kernel = reader.next();
  uint64_t id = 0;
  for (ReadTask& task : step.tasks) {
    task.id = id += static_cast<uint64_t>(reader.next_signed());
  }
  for (size_t time = 0; time < 5; ++time) {
    for (ReadTask& task : step.tasks) {
      const uint64_t number = reader.next();
      if (number == 0) continue;
      const int64_t ns = ColumnReader::signed_of(number - 1);
      task.other_ns[time] = time == 4 ? task.end_ns + ns : task.start_ns - ns;
    }
  }
  for (ReadTask& task : step.tasks) task.layer = reader.next();
  for (ReadTask& task : step.tasks) task.producer_count = reader.next();
  if (step.json["edge_count"] == 0) return;
  uint64_t edge_count = 0;
  for (uint64_t i = 0; i < step.tasks.size(); ++i) {
    for (uint64_t edge = 0; edge < step.tasks[i].producer_count; ++edge, ++edge_count) {
      step.tasks[i].producers.push_back(i - static_cast<uint64_t>(reader.next_signed()));
    }
  }
  EXPECT_EQ(step.json["edge_count"], edge_count);
}

inline void read_bubbles(ColumnReader& reader, ReadStep& step) {
  for (uint32_t core = 0; core < step.json["cores"].size(); ++core) {
    const size_t count = step.json["cores"][core]["bubble_count"];
    step.bubbles.insert(step.bubbles.end(), count, ReadBubble{.core = core});
  }
  ASSERT_EQ(step.bubbles.size(), step.json["bubble_count"].get<size_t>());
  for (ReadBubble& bubble : step.bubbles) bubble.begin_ns = static_cast<int64_t>(reader.next());
  for (ReadBubble& bubble : step.bubbles) bubble.end_ns = static_cast<int64_t>(reader.next());
  for (ReadBubble& bubble : step.bubbles) bubble.cause = reader.next();
  for (size_t i = 0; i < step.bubbles.size(); ++i) {
    ReadBubble& bubble = step.bubbles[i];
    const bool is_first = i == 0 || step.bubbles[i - 1].core != bubble.core;
    bubble.begin_ns += is_first ? 0 : step.bubbles[i - 1].end_ns;
    bubble.end_ns += bubble.begin_ns;
  }
}

inline void read_path(ColumnReader& reader, ReadStep& step) {
  step.path.resize(step.json["path_count"]);
  for (ReadSegment& segment : step.path) segment.part = reader.next();
  int64_t now_ns = 0;
  for (ReadSegment& segment : step.path) {
    segment.begin_ns = now_ns;
    segment.end_ns = now_ns += static_cast<int64_t>(reader.next());
  }
  for (ReadSegment& segment : step.path) segment.task = reader.next();
}

inline void read_spans(ColumnReader& reader, ReadStep& step) {
  for (uint32_t lane = 0; lane < step.json["lanes"].size(); ++lane) {
    const size_t count = step.json["lanes"][lane]["span_count"];
    step.spans.insert(step.spans.end(), count, ReadSpan{.lane = lane});
  }
  ASSERT_EQ(step.spans.size(), step.json["span_count"].get<size_t>());
  for (size_t i = 0; i < step.spans.size(); ++i) {
    const bool is_first = i == 0 || step.spans[i - 1].lane != step.spans[i].lane;
    step.spans[i].begin_ns = reader.next_signed() + (is_first ? 0 : step.spans[i - 1].begin_ns);
  }
  for (ReadSpan& span : step.spans) {
    span.end_ns = span.begin_ns + static_cast<int64_t>(reader.next());
  }
  for (ReadSpan& span : step.spans) span.name = reader.next();
  for (ReadSpan& span : step.spans) span.depth = reader.next();
}

inline ReadStep read_step(std::string_view json) {
  ReadStep step;
  step.json = nlohmann::json::parse(json);
  ColumnReader reader(inflate_bytes(decode_base64(step.json["columns"].get<std::string>()),
                                    step.json["bytes"].get<size_t>()));
  read_tasks(reader, step);
  read_bubbles(reader, step);
  read_path(reader, step);
  read_spans(reader, step);
  for (const uint64_t bucket_count : step.json["levels"]) {
    const uint64_t count = bucket_count * step.json["core_count"].get<uint64_t>();
    ReadLevel level = {.bucket_count = bucket_count, .busy = {}, .kernel = {}, .cause = {}};
    level.busy = reader.column(count);
    level.kernel = reader.column(count);
    level.cause = reader.column(count);
    step.levels.push_back(std::move(level));
  }
  EXPECT_TRUE(reader.is_at_end());
  return step;
}

// A report of a part of a trace with what the page draws and nothing else.
inline StepReport drawn_report(const Trace& trace, TimeRange window) {
  Result<StepTasks> tasks = StepTasks::create(trace, window);
  EXPECT_TRUE(tasks.has_value()) << tasks.error().message;
  StepReport report;
  report.source = "hand.gapless";
  report.step_count = 1;
  report.bubbles = partition_bubbles(*tasks);
  report.path = observed_path(*tasks);
  report.groups = group_tasks(*tasks);
  report.tasks = *std::move(tasks);
  return report;
}

inline ReadStep packed_and_read(const Trace& trace, const StepReport& report,
                                const PageDataOptions& options = {}) {
  Result<std::string> json = page_data_json(trace, report, options);
  EXPECT_TRUE(json.has_value()) << json.error().message;
  return read_step(*json);
}

}  // namespace gapless
