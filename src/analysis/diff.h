// SPDX-License-Identifier: Apache-2.0
//
// Diff: why one step takes longer than another, kernel by kernel and cause by cause.
//
// Two accounts, both of which add up to the difference of the makespans:
//   core time   (busy by kernel + idle by cause) / cores is the makespan, on each side;
//   the path    run by kernel + gaps by part along the observed critical path is the makespan.
// The first says what the cores did, the second what the wall clock waited for. A kernel whose core
// time falls and whose share of the path does not was hidden behind others, and is hidden still.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/bootstrap.h"
#include "analysis/bubbles.h"
#include "analysis/critical_path.h"
#include "analysis/focus_times.h"
#include "analysis/kernel_match.h"
#include "analysis/step_tasks.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

// Drawn from fewer, an interval of 95 % holds the true ratio too seldom: measured, of 2 steps a
// side in 67 % of all cases, of 3 in 90 %, of 4 in 93 %, from 5 on in 95 %.
inline constexpr size_t kMinIntervalSteps = 5;

// One side: the step that is compared, and the lengths of all steps of its trace. What is pointed
// at must live as long as the input.
struct DiffSide {
  const Trace* trace = nullptr;
  const StepTasks* tasks = nullptr;
  const BubblePartition* bubbles = nullptr;
  const CriticalPath* path = nullptr;
  std::vector<int64_t> step_lengths_ns;  // empty: only the step that is compared
};

// A pair of numbers: of the first trace and of the second.
template <typename T>
struct Both {
  T first = {};
  T second = {};
};

// One pair of kernel_match.h. Several of the first that became one have the second's name; several
// on both sides have their normalised name.
struct KernelDiff {
  std::string name;         // in the first trace; of kernels that only the second has, there
  std::string second_name;  // where it is another; several with a '+' between them
  std::vector<std::string> first_names;
  std::vector<std::string> second_names;
  KernelMatch match = KernelMatch::kName;
  Both<int64_t> count;
  Both<int64_t> run_ns;   // core time
  Both<int64_t> path_ns;  // on the observed path
  Both<double> mean_ns() const;
  // run_ns.second - run_ns.first = count_effect_ns + mean_effect_ns, exactly up to rounding of
  // doubles: more or fewer tasks at the first's mean, and each of the second's longer or shorter.
  // What only the second has is all count.
  double count_effect_ns() const;
  double mean_effect_ns() const;
  // Core time over cores: what it adds to the difference of the makespans.
  double wall_effect_ns(const Both<uint32_t>& cores) const;
};

// What named kernels cost on the cores, by themselves and among others.
struct FocusDiff {
  std::string name;
  std::vector<std::string> kernels;
  Both<FocusTimes> times;
  Both<uint32_t> cores;
  // Of the idle core time per core that the first has in its episodes and the second has not:
  // filled by other kernels (hidden), or no longer there (gone). Both may be negative.
  double filled_ns = 0.0;
  double gone_ns = 0.0;
};

struct StepDiff {
  Both<int64_t> makespan_ns;
  Both<uint32_t> core_count;
  Both<int64_t> busy_ns;
  Both<std::array<int64_t, kBubbleCauseCount>> cause_ns;
  Both<std::array<int64_t, kPathPartCount>> path_part_ns;  // kRun included
  std::vector<KernelDiff> kernels;  // the largest |wall effect| first, then by name
  std::vector<FocusDiff> focuses;
  Both<size_t> step_count;
  // Second over first: of the medians of all steps' lengths. Without kMinIntervalSteps on both
  // sides only a value.
  Interval ratio;
  bool has_interval = false;
  std::vector<std::string> warnings;

  int64_t difference_ns() const { return makespan_ns.second - makespan_ns.first; }
  double cause_effect_ns(BubbleCause cause) const;  // core time over cores, as wall_effect_ns
};

// Whatever is paired with one of the kernels is in the focus too.
struct FocusSpec {
  std::string name;
  std::vector<std::string> kernels;  // by name in either trace, else normalised
};
// "attention=fa_fused+online_softmax".
Result<FocusSpec> parse_focus(std::string_view text);

struct DiffOptions {
  KernelMap map = {};
  std::vector<FocusSpec> focuses = {};
  BootstrapOptions bootstrap = {};
};

// Error when a focus names a kernel that neither trace has, the map one that its side has not, or a
// side has no cores.
Result<StepDiff> diff_steps(const DiffSide& first, const DiffSide& second,
                            const DiffOptions& options = {});

}  // namespace gapless
