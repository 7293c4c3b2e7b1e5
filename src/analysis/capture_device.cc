// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_device.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace gapless {
namespace {

constexpr uint32_t kTaskNumbers = 1 << 16;
constexpr uint32_t kFirstStep = 10;
// A collective's kernel begins and ends so far from its summary at most.
constexpr int64_t kFragmentShiftNs = 400;
// A collective begins before the kernel above it has quite ended.
constexpr int64_t kCollectiveLeadNs = 1'500;
constexpr int64_t kWrapperLeadNs = 2'000;
constexpr int64_t kLoneFragmentNs = 4'000;
constexpr int64_t kGapSpreadPermille = 250;

}  // namespace

DeviceCapture::DeviceCapture(const CaptureModel& model, const CaptureOptions& options,
                             int32_t device, NameTable& names)
    : model_(model),
      options_(options),
      names_(names),
      draws_(options.seed, static_cast<uint64_t>(device), options.noise_permille),
      device_(device),
      now_ns_(grid(options.first_start_ns)) {
  for (uint32_t& task : tasks_) task = static_cast<uint32_t>(draws_.below(kTaskNumbers));
}

MadeRow DeviceCapture::make_row(const PlannedKernel& kernel, int64_t start_ns,
                                int64_t duration_ns) {
  MadeRow made;
  made.row = kernel.row;
  made.row.start_ns = start_ns;
  made.row.duration_ns = duration_ns;
  made.row.device = device_;
  made.row.step = step_;
  made.pass = pass_;
  made.draft = static_cast<uint8_t>(kernel.draft);
  made.is_anchor = kernel.is_anchor;
  return made;
}

// Numbers of tasks have 16 bits.
uint32_t DeviceCapture::next_task(KernelPlace place) {
  uint32_t& next = tasks_[static_cast<size_t>(place)];
  const uint32_t task = next;
  next = (next + 1) % kTaskNumbers;
  return task;
}

uint32_t DeviceCapture::add_row(const MadeRow& row) {
  rows_.push_back(row);
  return static_cast<uint32_t>(rows_.size() - 1);
}

int64_t DeviceCapture::gap_before(const PlannedKernel& kernel) {
  const int64_t mean_ns =
      kernel.place == KernelPlace::kGraph ? model_.graph_gap_ns : model_.eager_gap_ns;
  return length(draws_.bell(mean_ns, kGapSpreadPermille));
}

int DeviceCapture::count_of(int32_t permille) {
  return permille / 1000 + (draws_.one_in_thousand(permille % 1000) ? 1 : 0);
}

void DeviceCapture::add_compute(const PlannedKernel& kernel) {
  const int64_t start_ns = now_ns_ + gap_before(kernel);
  MadeRow made =
      make_row(kernel, start_ns, length(draws_.bell(kernel.mean_ns, kernel.spread_permille)));
  made.row.task = next_task(kernel.place);
  add_row(made);
  last_start_ns_ = start_ns;
  now_ns_ = start_ns + made.row.duration_ns;
}

void DeviceCapture::add_collective(const PlannedKernel& kernel, int fragment_count) {
  const int64_t lead_ns = grid(draws_.between(0, kCollectiveLeadNs));
  const int64_t start_ns = std::max(now_ns_ - lead_ns, last_start_ns_ + options_.tick_ns);
  const int64_t moving_ns = draws_.bell(kernel.mean_ns, kernel.spread_permille);
  const int64_t waiting_ns = draws_.uneven(kernel.wait_ns);
  MadeRow made = make_row(kernel, start_ns, length(moving_ns + waiting_ns));
  const std::string_view type = names_[kernel.row.type];
  made.row.name = names_.intern(
      fmt::format("{}_{}_{}_1", type, names_[kernel.group], collective_counts_[kernel.group]++));
  made.row.stream = CaptureTable::kNoStream;
  const uint32_t summary = add_row(made);
  if (kernel.companion != kNoIndex) {
    if (kernel.companion_ns > 0) {
      add_wrapper(kernel, summary);
    } else {
      add_fragments(kernel, summary, fragment_count);
    }
  }
  last_start_ns_ = start_ns;
  now_ns_ = std::max(now_ns_, start_ns + made.row.duration_ns);
}

// One covers about what its summary covers. Several lie in it one after the other.
void DeviceCapture::add_fragments(const PlannedKernel& kernel, uint32_t summary, int count) {
  const int64_t begin_ns = rows_[summary].row.start_ns;
  const int64_t end_ns = begin_ns + rows_[summary].row.duration_ns;
  for (int i = 0; i < count; ++i) {
    const int64_t from_ns = begin_ns + grid((end_ns - begin_ns) * i / count);
    const int64_t to_ns = begin_ns + grid((end_ns - begin_ns) * (i + 1) / count);
    const int64_t shift_ns = count == 1 ? kFragmentShiftNs : 0;
    const int64_t start_ns = from_ns + grid(draws_.between(-shift_ns, shift_ns));
    const int64_t stop_ns = to_ns + grid(draws_.between(-shift_ns, shift_ns));
    MadeRow made = make_row(kernel, start_ns, length(stop_ns - start_ns));
    made.row.kind = KernelKind::kFragment;
    made.row.name = kernel.companion;
    made.row.task = next_task(kernel.place);
    made.summary = summary;
    add_row(made);
  }
}

void DeviceCapture::add_wrapper(const PlannedKernel& kernel, uint32_t summary) {
  const int64_t start_ns = grid(rows_[summary].row.start_ns - kWrapperLeadNs);
  if (last_wrapper_ != kNoIndex) {
    KernelRow& last = rows_[last_wrapper_].row;
    last.duration_ns = std::min(last.duration_ns, start_ns - last.start_ns);
  }
  const int64_t duration_ns = length(draws_.bell(kernel.companion_ns, kernel.spread_permille));
  MadeRow made = make_row(kernel, start_ns, duration_ns);
  made.row.kind = KernelKind::kAiCpuCollective;
  made.row.name = kernel.companion;
  made.row.type = kernel.companion;
  made.row.core = names_.intern("AI_CPU");
  made.row.stream = model_.streams[static_cast<size_t>(KernelPlace::kAiCpu)];
  made.row.task = next_task(KernelPlace::kAiCpu);
  made.summary = summary;
  last_wrapper_ = add_row(made);
}

// A kernel of a collective that has no summary.
void DeviceCapture::add_lone_fragment(const PlannedKernel& collective) {
  const int64_t start_ns = now_ns_ + length(model_.graph_gap_ns);
  MadeRow made = make_row(collective, start_ns, length(draws_.bell(kLoneFragmentNs, 100)));
  made.row.kind = KernelKind::kFragment;
  made.row.name = collective.companion;
  made.row.task = next_task(collective.place);
  add_row(made);
  last_start_ns_ = start_ns;
  now_ns_ = start_ns + made.row.duration_ns;
}

void DeviceCapture::add_pass(const PassPlan& plan, uint32_t pass) {
  pass_ = pass;
  if (options_.passes_per_step > 0) {
    step_ = names_.intern(std::to_string(kFirstStep + pass / options_.passes_per_step));
  }
  // Which collectives have one kernel more, and before which anchors there is one without any.
  std::map<uint32_t, int> more_fragments;
  std::map<uint32_t, uint32_t> lone_fragments;
  if (!plan.aiv_collectives.empty()) {
    const std::vector<uint32_t>& collectives = plan.aiv_collectives;
    for (int i = count_of(model_.split_permille); i > 0; --i) {
      ++more_fragments[collectives[draws_.below(collectives.size())]];
    }
    for (int i = count_of(model_.lone_permille); i > 0; --i) {
      lone_fragments[plan.anchors[draws_.below(plan.anchors.size())]] = collectives.front();
    }
  }
  for (uint32_t place = 0; place < plan.kernels.size(); ++place) {
    const PlannedKernel& kernel = plan.kernels[place];
    if (kernel.is_collective) {
      const auto more = more_fragments.find(place);
      add_collective(kernel, more == more_fragments.end() ? 1 : 1 + more->second);
      continue;
    }
    const auto lone = lone_fragments.find(place);
    if (lone != lone_fragments.end()) {
      PlannedKernel fragment = plan.kernels[lone->second];
      fragment.draft = kernel.draft;
      add_lone_fragment(fragment);
    }
    add_compute(kernel);
  }
  if (last_wrapper_ != kNoIndex) {
    KernelRow& last = rows_[last_wrapper_].row;
    last.duration_ns = std::min(last.duration_ns, now_ns_ - last.start_ns);
    last_wrapper_ = kNoIndex;
  }
  const int64_t gap_ns = options_.pass_gap_ns >= 0 ? options_.pass_gap_ns : model_.pass_gap_ns;
  now_ns_ = grid(now_ns_ + std::max<int64_t>(draws_.bell(gap_ns, kGapSpreadPermille), 0));
}

}  // namespace gapless
