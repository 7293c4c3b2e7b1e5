// SPDX-License-Identifier: Apache-2.0
//
// For the tests of TraCR: procs made by hand, in memory or as a directory.

#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "formats/tracr.h"

namespace gapless {

inline TracrRecord set(uint16_t channel, uint16_t event, uint64_t time_ns,
                       uint32_t extra = kNoValue) {
  return {channel, event, extra, time_ns};
}

inline TracrRecord reset(uint16_t channel, uint64_t time_ns) {
  return {channel, kTracrReset, kNoValue, time_ns};
}

// One proc whose records live here; threads are called thread.1, thread.2, ...
struct TestProc {
  std::string name = "proc.7";
  std::optional<std::string> metadata;
  std::vector<std::vector<TracrRecord>> threads;

  TracrProc view() const {
    TracrProc proc{name, metadata, {}};
    for (const std::vector<TracrRecord>& records : threads) {
      proc.threads.push_back(
          {"thread." + std::to_string(proc.threads.size() + 1), std::as_bytes(std::span(records))});
    }
    return proc;
  }
};

inline Result<Trace> read_procs(const std::vector<TestProc>& procs,
                                const ReadOptions& options = {}) {
  std::vector<TracrProc> views;
  for (const TestProc& proc : procs) views.push_back(proc.view());
  return read_tracr_procs(views, "test", options);
}

inline Trace must_read(const TestProc& proc, const ReadOptions& options = {}) {
  Result<Trace> trace = read_procs({proc}, options);
  EXPECT_TRUE(trace) << trace.error().message;
  return trace ? std::move(trace).value() : Trace{};
}

inline const Finding* finding(const Trace& trace, std::string_view code) {
  const auto found = std::find_if(trace.findings.begin(), trace.findings.end(),
                                  [&](const Finding& f) { return f.code == code; });
  return found == trace.findings.end() ? nullptr : &*found;
}

// "name@lane begin-end" for each span, with "#value" when it has one.
inline std::vector<std::string> span_texts(const Trace& trace) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    std::string text = fmt::format("{}@{} {}-{}", trace.names[trace.spans.name[i]],
                                   trace.lanes[trace.spans.lane[i]].name, trace.spans.begin_ns[i],
                                   trace.spans.end_ns[i]);
    if (trace.spans.value[i] != kNoValue) text += fmt::format("#{}", trace.spans.value[i]);
    texts.push_back(std::move(text));
  }
  return texts;
}

// A folder of its own for each test, removed afterwards.
class TracrDirectory : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            fmt::format("gapless_{}_{}_{}", info->test_suite_name(), info->name(), ::getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string path(std::string_view name) const { return (root_ / name).string(); }

  void put(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream file(root_ / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  // As TraCR leaves it, in the folder `tracr`.
  void put_proc(std::string_view tracr, const TestProc& proc) const {
    const std::string folder = fmt::format("{}/{}", tracr, proc.name);
    if (proc.metadata) put(folder + "/metadata.json", *proc.metadata);
    for (const TracrThread& thread : proc.view().threads) {
      put(fmt::format("{}/{}/traces.bts", folder, thread.name),
          {reinterpret_cast<const char*>(thread.bytes.data()), thread.bytes.size()});
    }
  }

  std::filesystem::path root_;
};

}  // namespace gapless
