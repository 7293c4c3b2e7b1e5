// SPDX-License-Identifier: Apache-2.0

#include "sim/fluid.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr int64_t kGB = 1'000'000'000;

struct End {
  int64_t time_ns;
  uint32_t tag;
  bool operator==(const End&) const = default;
};

std::vector<End> take_all(FluidMemory& memory) {
  std::vector<End> ends;
  while (memory.next_end_ns() != kNever) {
    const int64_t time_ns = memory.next_end_ns();
    ends.push_back({time_ns, memory.take_next()});
  }
  return ends;
}

TEST(FluidMemory, GivesOneFlowItsCap) {
  const std::vector<int64_t> caps = {10 * kGB};
  FluidMemory memory(100 * kGB, caps);
  EXPECT_EQ(memory.next_end_ns(), kNever);
  memory.start(5, 0, 1000, 7);
  EXPECT_EQ(memory.rate(0), 10 * kGB);
  EXPECT_EQ(take_all(memory), (std::vector<End>{{105, 7}}));  // 1000 B at 10 B/ns
}

TEST(FluidMemory, SharesEquallyWhatTheCapsLeave) {
  // 100 B/ns: two flows are capped at 10, two others share the 80 that are left.
  const std::vector<int64_t> caps = {1000 * kGB, 10 * kGB};
  FluidMemory memory(100 * kGB, caps);
  memory.start(0, 0, 4000, 0);
  memory.start(0, 0, 4000, 1);
  memory.start(0, 1, 1000, 2);
  memory.start(0, 1, 500, 3);
  EXPECT_EQ(memory.rate(0), 40 * kGB);
  EXPECT_EQ(memory.rate(1), 10 * kGB);
  // Flow 3 ends at 50; the others then have 2000, 2000, 500 left and get 45, 45, 10: flows 0 and 1
  // end after 2000 / 45 = 44.4 ns, at 95, and flow 2 at 100.
  EXPECT_EQ(take_all(memory), (std::vector<End>{{50, 3}, {95, 0}, {95, 1}, {100, 2}}));
}

TEST(FluidMemory, SlowsDownForAFlowThatArrivesInTheMiddle) {
  const std::vector<int64_t> caps = {10 * kGB};
  FluidMemory memory(10 * kGB, caps);
  memory.start(0, 0, 1000, 0);   // alone until 40: 400 B are there
  memory.start(40, 0, 1000, 1);  // then 5 B/ns each: 600 B take until 160
  // Flow 1 has 600 B at 160 and gets the other 400 at 10 B/ns.
  EXPECT_EQ(take_all(memory), (std::vector<End>{{160, 0}, {200, 1}}));
}

TEST(FluidMemory, EndsAtTheFirstWholeNanosecond) {
  const std::vector<int64_t> caps = {3 * kGB};
  FluidMemory memory(3 * kGB, caps);
  memory.start(0, 0, 1, 0);
  EXPECT_EQ(memory.next_end_ns(), 1) << "a third of a nanosecond";
  memory.start(0, 0, 3, 1);
  EXPECT_EQ(take_all(memory), (std::vector<End>{{1, 0}, {2, 1}}));
}

TEST(FluidMemory, CountsOnWhereTheCountsWrap) {
  // 4 GiB at 1 TB/s are 4.3e18 units: after five of them the count has passed 2^64.
  const std::vector<int64_t> caps = {1000 * kGB};
  FluidMemory memory(1000 * kGB, caps);
  int64_t now_ns = 0;
  for (uint32_t tag = 0; tag < 9; ++tag) {
    memory.start(now_ns, 0, kMaxFlowBytes, tag);
    memory.start(now_ns, 0, kMaxFlowBytes / 2, tag + 100);
    const std::vector<End> ends = take_all(memory);
    const int64_t half_ns = (kMaxFlowBytes + 999) / 1000;
    const int64_t both_ns = (3 * kMaxFlowBytes / 2 + 999) / 1000;
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_EQ(ends[0], (End{now_ns + half_ns, tag + 100}));
    EXPECT_NEAR(static_cast<double>(ends[1].time_ns - now_ns), static_cast<double>(both_ns), 1.0);
    now_ns = ends[1].time_ns;
  }
}

// ---- Against the plain rule: every flow on its own, every rate found anew.

struct PlainFlow {
  int64_t begin_ns;
  int64_t bytes;
  size_t flow_class;
  uint32_t tag;
};

class PlainMemory {
 public:
  PlainMemory(int64_t bytes_per_s, std::vector<int64_t> caps)
      : bytes_per_s_(bytes_per_s), caps_(std::move(caps)) {}

  // `flows` in the order of their begin.
  std::vector<End> run(const std::vector<PlainFlow>& flows) {
    std::vector<End> ends;
    size_t next = 0;
    int64_t now_ns = 0;
    while (next < flows.size() || !active_.empty()) {
      const int64_t arrival_ns = next < flows.size() ? flows[next].begin_ns : kNever;
      const int64_t time_ns = std::min(arrival_ns, next_end(now_ns));
      for (Active& one : active_) one.missing -= static_cast<Units>(one.rate) * (time_ns - now_ns);
      now_ns = time_ns;
      collect_ended(now_ns, ends);
      while (next < flows.size() && flows[next].begin_ns == now_ns) {
        const PlainFlow& flow = flows[next++];
        active_.push_back({flow, static_cast<Units>(flow.bytes) * kGB, 0});
      }
      fill();
    }
    return ends;
  }

  // The sum over all time of the rates, in bytes.
  double moved_bytes() const { return moved_bytes_; }
  double largest_rate_sum() const { return largest_rate_sum_; }

 private:
  __extension__ typedef __int128 Units;  // NOLINT(modernize-use-using)
  struct Active {
    PlainFlow flow;
    Units missing;
    int64_t rate;
  };

  // Raises all rates together; who reaches its cap stays there.
  void fill() {
    std::vector<Active*> open;
    for (Active& one : active_) open.push_back(&one);
    int64_t left = bytes_per_s_;
    while (!open.empty()) {
      const int64_t equal = std::max(left / static_cast<int64_t>(open.size()), int64_t{1});
      std::vector<Active*> above;
      for (Active* one : open) {
        one->rate = std::min(caps_[one->flow.flow_class], equal);
        if (one->rate < equal) {
          left -= one->rate;
        } else {
          above.push_back(one);
        }
      }
      if (above.size() == open.size()) break;
      open = above;
    }
    double sum = 0.0;
    for (const Active& one : active_) sum += static_cast<double>(one.rate);
    largest_rate_sum_ = std::max(largest_rate_sum_, sum);
  }

  int64_t next_end(int64_t now_ns) const {
    int64_t earliest = kNever;
    for (const Active& one : active_) {
      const Units wait = (std::max(one.missing, Units{0}) + one.rate - 1) / one.rate;
      earliest = std::min(earliest, now_ns + static_cast<int64_t>(wait));
    }
    return earliest;
  }

  void collect_ended(int64_t now_ns, std::vector<End>& ends) {
    for (const Active& one : active_) {
      if (one.missing > 0) continue;
      ends.push_back({now_ns, one.flow.tag});
      moved_bytes_ += static_cast<double>(one.flow.bytes) - static_cast<double>(one.missing) * 1e-9;
    }
    std::erase_if(active_, [](const Active& one) { return one.missing <= 0; });
  }

  int64_t bytes_per_s_;
  std::vector<int64_t> caps_;
  std::vector<Active> active_;
  double moved_bytes_ = 0.0;
  double largest_rate_sum_ = 0.0;
};

std::vector<PlainFlow> random_flows(std::mt19937_64& random, size_t class_count) {
  std::vector<PlainFlow> flows;
  int64_t now_ns = 0;
  const uint32_t count = 1 + static_cast<uint32_t>(random() % 120);
  for (uint32_t tag = 0; tag < count; ++tag) {
    now_ns += random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 4000);
    flows.push_back(
        {now_ns, 1 + static_cast<int64_t>(random() % 3'000'000), random() % class_count, tag});
  }
  return flows;
}

std::vector<End> run_fluid(FluidMemory& memory, const std::vector<PlainFlow>& flows) {
  std::vector<End> ends;
  for (const PlainFlow& flow : flows) {
    while (memory.next_end_ns() <= flow.begin_ns) {
      const int64_t time_ns = memory.next_end_ns();
      ends.push_back({time_ns, memory.take_next()});
    }
    memory.start(flow.begin_ns, flow.flow_class, flow.bytes, flow.tag);
  }
  const std::vector<End> rest = take_all(memory);
  ends.insert(ends.end(), rest.begin(), rest.end());
  return ends;
}

// Goal: classes and marks give what the plain rule gives, to the nanosecond.
// Method: random arrivals against a reference that keeps every flow apart.
TEST(FluidMemory, AgreesWithThePlainRuleOnRandomFlows) {
  std::mt19937_64 random(20261116);
  for (int round = 0; round < 200; ++round) {
    const std::vector<int64_t> caps = {static_cast<int64_t>(10 + random() % 200) * kGB + 7,
                                       static_cast<int64_t>(10 + random() % 200) * kGB,
                                       static_cast<int64_t>(1 + random() % 20) * kGB + 1};
    const int64_t total = static_cast<int64_t>(50 + random() % 2000) * kGB + 3;
    const std::vector<PlainFlow> flows = random_flows(random, caps.size());
    FluidMemory memory(total, caps);
    std::vector<End> ours = run_fluid(memory, flows);
    PlainMemory plain(total, caps);
    std::vector<End> expected = plain.run(flows);
    const auto is_before = [](const End& a, const End& b) {
      return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.tag < b.tag;
    };
    std::sort(ours.begin(), ours.end(), is_before);
    std::sort(expected.begin(), expected.end(), is_before);
    ASSERT_EQ(ours.size(), flows.size());
    ASSERT_TRUE(ours == expected) << "round " << round;
  }
}

// Rounding up to whole nanoseconds moves at most one nanosecond of a flow's rate too much.
TEST(FluidMemory, MovesEachByteOnceAndNeverMoreThanTheTotal) {
  std::mt19937_64 random(5);
  const std::vector<int64_t> caps = {100 * kGB, 50 * kGB};
  const int64_t total = 1200 * kGB;
  const std::vector<PlainFlow> flows = random_flows(random, caps.size());
  double bytes = 0.0;
  for (const PlainFlow& flow : flows) bytes += static_cast<double>(flow.bytes);
  PlainMemory plain(total, caps);
  const std::vector<End> ends = plain.run(flows);
  FluidMemory memory(total, caps);
  ASSERT_EQ(run_fluid(memory, flows).size(), ends.size());
  EXPECT_GE(plain.moved_bytes(), bytes);
  EXPECT_LE(plain.moved_bytes(), bytes + 100.0 * static_cast<double>(flows.size()));
  EXPECT_LE(plain.largest_rate_sum(), static_cast<double>(total));
  EXPECT_EQ(memory.active_count(), 0u);
}

}  // namespace
}  // namespace gapless
