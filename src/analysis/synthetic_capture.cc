// SPDX-License-Identifier: Apache-2.0

#include "analysis/synthetic_capture.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "analysis/capture_device.h"
#include "analysis/capture_draws.h"
#include "analysis/capture_plan.h"

namespace gapless {
namespace {

constexpr int64_t kMaxTokens = 1 << 20;
constexpr uint32_t kMaxRows = 1u << 30;  // about; numbers of rows have 32 bits
constexpr uint32_t kMaxDevices = 1024;
constexpr uint32_t kMaxDrafts = 16;
constexpr size_t kPermille = 1000;

struct WantedShapes {
  PassShape decode;
  PassShape prefill;
  PassShape mixed;
  PassShape dummy;
};

WantedShapes wanted_shapes(const CaptureModel& model, const CaptureOptions& options) {
  WantedShapes shapes;
  const int32_t drafts = options.draft_count >= 0 ? options.draft_count : model.draft_count;
  const int64_t sequences = options.sequences > 0 ? options.sequences : model.decode_sequences;
  const int64_t tokens = options.prefill_tokens > 0 ? options.prefill_tokens : model.prefill_tokens;
  shapes.decode = {.phase = drafts > 0 ? PassPhase::kSpeculative : PassPhase::kDecode,
                   .tokens = sequences * (1 + drafts),
                   .sequences = sequences,
                   .draft_count = drafts};
  shapes.prefill = {.phase = PassPhase::kPrefill,
                    .tokens = tokens,
                    .sequences = std::min(model.prefill_sequences, tokens),
                    .draft_count = drafts};
  shapes.mixed = {.phase = PassPhase::kMixed,
                  .tokens = tokens + shapes.decode.tokens,
                  .sequences = shapes.prefill.sequences + sequences,
                  .draft_count = drafts};
  shapes.dummy = {.phase = PassPhase::kDecode,
                  .tokens = 1,
                  .sequences = 1,
                  .draft_count = drafts,
                  .is_dummy = true};
  return shapes;
}

PassShape draw_shape(const CaptureModel& model, const CaptureOptions& options,
                     CaptureDraws& draws) {
  const WantedShapes shapes = wanted_shapes(model, options);
  const int64_t drawn = static_cast<int64_t>(draws.below(kPermille));
  const int64_t chunks = static_cast<int64_t>(draws.below(2));
  if (drawn < options.dummy_permille) return shapes.dummy;
  PassShape shape = options.phase == PassPhase::kPrefill ? shapes.prefill
                    : options.phase == PassPhase::kMixed ? shapes.mixed
                                                         : shapes.decode;
  const int64_t other = drawn - options.dummy_permille;
  if (other < options.prefill_permille) {
    shape = shapes.prefill;
  } else if (other < options.prefill_permille + options.mixed_permille) {
    shape = shapes.mixed;
  }
  if (model.has_context_chunks && shape.phase == PassPhase::kPrefill) {
    shape.context_chunks =
        options.context_chunks >= 0 ? options.context_chunks : static_cast<int32_t>(chunks);
  }
  return shape;
}

// Plans are made once for each shape.
const PassPlan& plan_for(const CaptureModel& model, const PassShape& shape,
                         std::vector<PassPlan>& plans, NameTable& names) {
  for (const PassPlan& plan : plans) {
    if (plan.shape == shape) return plan;
  }
  plans.push_back(make_pass_plan(model, shape, names));
  return plans.back();
}

// The start of a row of the pass between two of its main anchors: behind the anchor `from` at the
// earliest, and `to` at the latest, in thousandths of all.
int64_t cut_time(const std::vector<MadeRow>& rows, uint32_t pass, std::array<size_t, 2> permille,
                 CaptureDraws& draws) {
  std::vector<int64_t> anchors;
  for (const MadeRow& made : rows) {
    if (made.pass == pass && made.is_anchor && made.draft == 0) {
      anchors.push_back(made.row.start_ns);
    }
  }
  const size_t steps = anchors.size() - 1;
  const int64_t from_ns = anchors[steps * permille[0] / kPermille];
  const int64_t to_ns = anchors[steps * permille[1] / kPermille];
  std::vector<int64_t> starts;
  for (const MadeRow& made : rows) {
    const int64_t start_ns = made.row.start_ns;
    if (made.pass == pass && start_ns > from_ns && start_ns <= to_ns) starts.push_back(start_ns);
  }
  return starts[draws.below(starts.size())];
}

struct CutTimes {
  int64_t begin_ns = 0;
  int64_t end_ns = kMaxTimeNs;
};

// Each cut takes at least one anchor, and both together leave at least one.
CutTimes choose_cuts(const CaptureOptions& options, const std::vector<MadeRow>& rows,
                     CaptureDraws& draws) {
  CutTimes cuts;
  if (options.starts_mid_pass) cuts.begin_ns = cut_time(rows, 0, {0, 450}, draws);
  if (options.ends_mid_pass) {
    cuts.end_ns = cut_time(rows, options.pass_count - 1, {550, kPermille}, draws);
  }
  return cuts;
}

// Appends the rows within the cuts to the capture, in order of their starts.
void append_rows(const std::vector<MadeRow>& rows, const CutTimes& cuts, uint32_t first_pass,
                 SyntheticCapture& capture) {
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::erase_if(order, [&](uint32_t at) {
    const int64_t start_ns = rows[at].row.start_ns;
    return start_ns < cuts.begin_ns || start_ns >= cuts.end_ns;
  });
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return rows[a].row.start_ns < rows[b].row.start_ns;
  });
  const uint32_t base = static_cast<uint32_t>(capture.table.size());
  std::vector<uint32_t> table_rows(rows.size(), kNoIndex);
  for (uint32_t at = 0; at < order.size(); ++at) table_rows[order[at]] = base + at;
  for (const uint32_t at : order) {
    const MadeRow& made = rows[at];
    capture.table.append(made.row);
    capture.pass_of_row.push_back(first_pass + made.pass);
    capture.draft_of_row.push_back(made.draft);
    capture.is_anchor.push_back(made.is_anchor ? 1 : 0);
    capture.summary_of_row.push_back(made.summary == kNoIndex ? kNoIndex
                                                              : table_rows[made.summary]);
  }
}

// Adds a row to the sums of its pass. Rows come in order of their starts; `covered_ns` is where the
// union of those that count ends so far.
void add_to_pass(const SyntheticCapture& capture, uint32_t row, MadePass& pass,
                 int64_t& covered_ns) {
  const CaptureTable& table = capture.table;
  if (pass.row_count++ == 0) pass.first_row = row;
  pass.last_row = row;
  if (capture.is_anchor[row] != 0) {
    ++pass.anchor_count;
    if (capture.draft_of_row[row] != 0) ++pass.draft_anchor_count;
  }
  const KernelKind kind = table.kind[row];
  if (kind == KernelKind::kAiCpuCollective) return;
  const int64_t start_ns = table.start_ns[row];
  const int64_t end_ns = table.end_ns(row);
  if (pass.end_ns == 0) pass.begin_ns = start_ns;
  pass.end_ns = std::max(pass.end_ns, end_ns);
  const bool is_lone = kind == KernelKind::kFragment && capture.summary_of_row[row] == kNoIndex;
  if (kind != KernelKind::kFragment || is_lone) {
    pass.union_ns += std::max<int64_t>(end_ns - std::max(covered_ns, start_ns), 0);
    covered_ns = std::max(covered_ns, end_ns);
  }
  if (kind == KernelKind::kCollective || is_lone) {
    ++pass.collective_count;
    pass.collective_ns += end_ns - start_ns;
  } else if (kind != KernelKind::kFragment) {
    pass.compute_ns += end_ns - start_ns;
  }
}

Result<void> check_options(const CaptureModel& model, const CaptureOptions& options) {
  const bool wants_mixed = options.phase == PassPhase::kMixed || options.mixed_permille > 0;
  if (wants_mixed && !model.has_mixed) {
    return fail(ErrorCode::kInvalidInput, "{} has no mixed passes", model.name);
  }
  if (options.pass_count == 0 || options.device_count == 0 || options.device_count > kMaxDevices) {
    return fail(ErrorCode::kInvalidInput, "{} passes on {} devices; 1 to {} devices are possible",
                options.pass_count, options.device_count, kMaxDevices);
  }
  const uint64_t layers = static_cast<uint64_t>(model.layer_count);
  if (uint64_t{options.pass_count} * options.device_count * layers * 50 > kMaxRows) {
    return fail(ErrorCode::kInvalidInput, "{} passes on {} devices are too many rows",
                options.pass_count, options.device_count);
  }
  if (options.prefill_tokens > kMaxTokens || options.sequences > kMaxTokens ||
      options.draft_count > static_cast<int32_t>(kMaxDrafts) || options.context_chunks > 64) {
    return fail(ErrorCode::kInvalidInput,
                "{} tokens, {} sequences, {} drafts, {} chunks; {}, {}, {} and 64 are possible",
                options.prefill_tokens, options.sequences, options.draft_count,
                options.context_chunks, kMaxTokens, kMaxTokens, kMaxDrafts);
  }
  for (const int32_t share :
       {options.prefill_permille, options.mixed_permille, options.dummy_permille,
        options.prefill_permille + options.mixed_permille + options.dummy_permille}) {
    if (share < 0 || share > 1000) {
      return fail(ErrorCode::kInvalidInput, "a share of {} thousandths of the passes", share);
    }
  }
  if (options.noise_permille < 0 || options.noise_permille > 10'000 || options.tick_ns < 1 ||
      options.tick_ns > 1000 || options.first_start_ns < 0 || options.first_device < 0) {
    return fail(ErrorCode::kInvalidInput,
                "noise of {} thousandths, a clock of {} ns, from {} ns on, device {}",
                options.noise_permille, options.tick_ns, options.first_start_ns,
                options.first_device);
  }
  return {};
}

}  // namespace

Result<SyntheticCapture> make_synthetic_capture(const CaptureOptions& options) {
  const CaptureModel* model = find_capture_model(options.model);
  if (model == nullptr) {
    return fail(ErrorCode::kInvalidInput, "no model {} to make a capture of", options.model);
  }
  GAPLESS_TRY(check_options(*model, options));
  SyntheticCapture capture;
  capture.table.format = "ascend-csv";
  capture.table.sources.emplace_back().path = "synthetic";
  std::vector<PassPlan> plans;
  for (uint32_t i = 0; i < options.device_count; ++i) {
    DeviceCapture device(*model, options, options.first_device + static_cast<int32_t>(i),
                         capture.table.names);
    if (i > 0) device.delay(1'000'000);
    const uint32_t first_pass = static_cast<uint32_t>(capture.passes.size());
    for (uint32_t pass = 0; pass < options.pass_count; ++pass) {
      const PassShape shape = draw_shape(*model, options, device.draws());
      device.add_pass(plan_for(*model, shape, plans, capture.table.names), pass);
      capture.passes.push_back({.device = options.first_device + static_cast<int32_t>(i),
                                .index = pass,
                                .shape = shape});
    }
    capture.passes[first_pass].is_cut_at_start = options.starts_mid_pass;
    capture.passes.back().is_cut_at_end = options.ends_mid_pass;
    append_rows(device.rows(), choose_cuts(options, device.rows(), device.draws()), first_pass,
                capture);
  }
  capture.table.sources[0].row_count = capture.table.size();
  std::vector<int64_t> covered_ns(capture.passes.size(), 0);
  for (uint32_t row = 0; row < capture.table.size(); ++row) {
    const uint32_t pass = capture.pass_of_row[row];
    add_to_pass(capture, row, capture.passes[pass], covered_ns[pass]);
  }
  return capture;
}

}  // namespace gapless
