// SPDX-License-Identifier: Apache-2.0

#include "trace/synthetic.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/mix_bits.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

// SplitMix64: the distributions of <random> differ between libraries, this does not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Less than `bound`, which must not be zero.
  uint64_t below(uint64_t bound) { return next() % bound; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t next() {
    const uint64_t bits = mix_bits(state_);
    state_ += kMixIncrement;
    return bits;
  }

  uint64_t state_;
};

// One random number a statement: the order in which arguments are evaluated is the compiler's.
class Generator {
 public:
  explicit Generator(const SyntheticOptions& options)
      : options_(options), random_(options.seed), builder_("synthetic") {}

  Trace generate() {
    add_devices_and_lanes();
    add_names();
    for (uint32_t lane = 0; lane < options_.lane_count; ++lane) {
      if (options_.overlapping) {
        add_overlapping_spans(lane);
      } else {
        add_nested_spans(lane);
      }
    }
    decorate_spans();
    add_flows();
    add_points();
    add_tasks();
    builder_.trace().clock.wall_minus_time_ns = 5'000'000'000;
    builder_.trace().properties.push_back({"seed", fmt::format("{}", options_.seed)});
    return builder_.finish();
  }

 private:
  void add_devices_and_lanes() {
    const uint32_t device_count = std::max(1u, options_.device_count);
    for (uint32_t device = 0; device < device_count; ++device) {
      builder_.add_device({fmt::format("device {}", device), device});
    }
    const uint32_t total = options_.lane_count + options_.task_lane_count;
    for (uint32_t lane = 0; lane < total; ++lane) {
      const bool runs_tasks = lane >= options_.lane_count;
      const uint32_t device = static_cast<uint32_t>(uint64_t{lane} * device_count / total);
      const uint32_t number = runs_tasks ? lane - options_.lane_count : lane;
      builder_.add_lane({.name = fmt::format("{} {}", runs_tasks ? "worker" : "lane", number),
                         .kind = runs_tasks ? LaneKind::kWorker : LaneKind::kThread,
                         .device = device,
                         .number = number});
    }
  }

  void add_names() {
    constexpr std::array<const char*, 4> kWords = {"矩阵乘法", "größe", "σ(x)·y",
                                                   "🚀 decode \"q\"\\"};
    for (uint32_t i = 0; i < std::max(1u, options_.name_count); ++i) {
      const std::string word = options_.unicode_names ? kWords[i % kWords.size()] : "kernel";
      names_.push_back(builder_.intern(fmt::format("{} {}", word, i)));
    }
  }

  uint32_t any_name() { return names_[random_.below(names_.size())]; }
  uint32_t any_value() {
    return options_.values ? static_cast<uint32_t>(random_.below(1'000'000)) : kNoValue;
  }
  // How far the clock of a lane moves to the next event.
  int64_t any_step_ns() {
    if (options_.ties && random_.one_in(2)) return 0;
    return random_.between(1, 2000);
  }

  void add_nested_spans(uint32_t lane) {
    int64_t now_ns = options_.first_time_ns + random_.between(0, 1000);
    uint32_t depth = 0;
    for (uint32_t made = 0; made < options_.spans_per_lane; ++made) {
      while (depth > 0 && (depth >= std::max(1u, options_.nesting_depth) || random_.one_in(2))) {
        builder_.end(lane, now_ns);
        --depth;
        now_ns += any_step_ns();
      }
      const uint32_t name = any_name();
      builder_.begin(lane, now_ns, name, any_value());
      ++depth;
      now_ns += any_step_ns();
    }
    for (; depth > 0; --depth) {
      builder_.end(lane, now_ns);
      now_ns += any_step_ns();
    }
  }

  void add_overlapping_spans(uint32_t lane) {
    int64_t begin_ns = options_.first_time_ns;
    for (uint32_t made = 0; made < options_.spans_per_lane; ++made) {
      begin_ns += any_step_ns();
      const int64_t length_ns = options_.ties && random_.one_in(4) ? 0 : random_.between(1, 6000);
      const uint32_t name = any_name();
      builder_.add_span(lane, begin_ns, begin_ns + length_ns, name, any_value());
    }
  }

  void decorate_spans() {
    if (!options_.categories && !options_.args) return;
    const uint32_t span_count = static_cast<uint32_t>(builder_.trace().spans.size());
    const std::array<uint32_t, 2> categories = {builder_.intern("compute"), builder_.intern("io")};
    for (uint32_t span = 0; span < span_count; ++span) {
      if (options_.categories) builder_.set_category(span, categories[random_.below(2)]);
      if (!options_.args || random_.one_in(2)) continue;
      const uint64_t shape = random_.below(32);
      builder_.set_args(span, builder_.intern(fmt::format("{{\"shape\":[{},128]}}", shape)));
    }
  }

  uint32_t any_span() {
    return static_cast<uint32_t>(random_.below(builder_.trace().spans.size()));
  }

  void add_flow_point(uint32_t span, int64_t time_ns, uint64_t id, FlowPhase phase) {
    builder_.flow(builder_.trace().spans.lane[span], time_ns, id, phase, span);
  }

  // Leaves an arrow's time at any point of its spans, so that the out-span may begin after the
  // in-span, as real ones do.
  void add_flows() {
    const SpanColumns& spans = builder_.trace().spans;
    if (spans.size() < 3) return;
    for (uint32_t id = 1; id <= options_.flow_count; ++id) {
      std::array<uint32_t, 3> row = {any_span(), any_span(), any_span()};
      while (row[1] == row[0]) row[1] = any_span();
      while (row[2] == row[0] || row[2] == row[1]) row[2] = any_span();
      std::sort(row.begin(), row.end(), [&spans](uint32_t a, uint32_t b) {
        return spans.begin_ns[a] != spans.begin_ns[b] ? spans.begin_ns[a] < spans.begin_ns[b]
                                                      : a < b;
      });
      if (id % 4 == 0) {
        add_flow_point(row[0], spans.begin_ns[row[0]], id, FlowPhase::kOut);
        add_flow_point(row[1], spans.begin_ns[row[1]], id, FlowPhase::kStep);
        add_flow_point(row[2], spans.begin_ns[row[2]], id, FlowPhase::kIn);
        continue;
      }
      uint32_t out = row[0];
      uint32_t in = row[2];
      if (spans.end_ns[out] >= spans.begin_ns[in] && random_.one_in(2)) std::swap(out, in);
      const int64_t latest_out_ns = std::min(spans.end_ns[out], spans.end_ns[in]);
      const int64_t out_ns = random_.between(spans.begin_ns[out], latest_out_ns);
      const int64_t earliest_in_ns = std::max(spans.begin_ns[in], out_ns);
      add_flow_point(out, out_ns, id, FlowPhase::kOut);
      add_flow_point(in, random_.between(earliest_in_ns, spans.end_ns[in]), id, FlowPhase::kIn);
    }
  }

  // Counters and instants: spread over the time of the spans.
  void add_points() {
    if (options_.lane_count == 0) return;
    const TimeRange range = time_range(builder_.trace());
    const int64_t begin_ns = std::max(range.begin_ns, options_.first_time_ns);
    const int64_t end_ns = std::max(range.end_ns, begin_ns);
    const std::array<uint32_t, 2> counters = {builder_.intern("queue depth"),
                                              builder_.intern("bytes")};
    for (uint32_t i = 0; i < options_.counter_count; ++i) {
      const uint32_t lane = static_cast<uint32_t>(random_.below(options_.lane_count));
      const double value = static_cast<double>(random_.between(-4000, 40000)) / 4;
      builder_.counter(lane, random_.between(begin_ns, end_ns), counters[i % 2], value);
    }
    for (uint32_t i = 0; i < options_.instant_count; ++i) {
      const uint32_t lane = static_cast<uint32_t>(random_.below(options_.lane_count));
      const int64_t time_ns = random_.between(begin_ns, end_ns);
      const uint32_t name = any_name();
      builder_.instant(lane, time_ns, name, any_value());
    }
  }

  // A list schedule: tasks go round the lanes and start when their lane is free and their producers
  // have ended.
  void add_tasks() {
    if (options_.task_lane_count == 0) return;
    std::vector<int64_t> free_ns(options_.task_lane_count, options_.first_time_ns);
    std::vector<int64_t> end_ns;
    for (uint32_t task = 0; task < options_.task_count; ++task) {
      const uint32_t worker = task % options_.task_lane_count;
      const uint64_t id = uint64_t{1} << 32 | task;
      int64_t ready_ns = options_.first_time_ns;
      const uint32_t wanted = task == 0 ? 0 : options_.edges_per_task;
      for (uint32_t i = 0; i < wanted; ++i) {
        const uint32_t window = std::min(task, 8 * options_.edges_per_task);
        const uint32_t producer = task - 1 - static_cast<uint32_t>(random_.below(window));
        builder_.edge(uint64_t{1} << 32 | producer, id);
        ready_ns = std::max(ready_ns, end_ns[producer]);
      }
      const int64_t dispatch_ns = std::max(ready_ns, free_ns[worker]) + random_.between(10, 300);
      const int64_t start_ns = dispatch_ns + random_.between(20, 200);
      end_ns.push_back(start_ns + random_.between(500, 5000));
      free_ns[worker] = end_ns[task] + random_.between(10, 100);
      const std::array<int64_t, kTaskTimeCount> times = {
          options_.first_time_ns, ready_ns,       dispatch_ns, start_ns - 10, start_ns,
          end_ns[task],           free_ns[worker]};
      const uint32_t kernel = any_name();
      for (size_t time = 0; time < times.size(); ++time) {
        builder_.task_time(id, static_cast<TaskTime>(time), times[time],
                           options_.lane_count + worker, kernel);
      }
    }
  }

  const SyntheticOptions options_;
  Random random_;
  TraceBuilder builder_;
  std::vector<uint32_t> names_;
};

}  // namespace

Trace make_synthetic_trace(const SyntheticOptions& options) {
  return Generator(options).generate();
}

}  // namespace gapless
