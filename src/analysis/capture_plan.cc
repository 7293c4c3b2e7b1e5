// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_plan.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/mix_bits.h"

namespace gapless {
namespace {

constexpr int64_t kCachePages = 12307;
constexpr int64_t kSequencePages = 512;

// What the letters in the shapes of a KernelModel stand for; 0: the letter stands for itself.
int64_t letter_value(char letter, const CaptureModel& model, const PassShape& shape) {
  switch (letter) {
    case 'T':
      return shape.tokens;
    case 'S':
      return (shape.tokens + model.tensor_parallel - 1) / model.tensor_parallel;
    case 'B':
      return shape.sequences;
    case 'Q':
      return std::max<int64_t>(shape.tokens / std::max<int64_t>(shape.sequences, 1), 1);
    case 'C':
      return model.prefill_tokens;
    case 'P':
      return kCachePages;
    case 'L':
      return kSequencePages;
    default:
      return 0;
  }
}

std::string shapes_text(std::string_view pattern, const CaptureModel& model,
                        const PassShape& shape) {
  std::string text;
  for (const char letter : pattern) {
    const int64_t value = letter_value(letter, model, shape);
    if (value == 0) {
      text += letter;
    } else {
      text += std::to_string(value);
    }
  }
  return text;
}

uint64_t text_bits(std::string_view text) {
  uint64_t bits = text.size();
  for (const char letter : text) bits = mix_bits(bits ^ static_cast<unsigned char>(letter));
  return bits;
}

// Compiled kernels have a hash of what they were compiled for in their names.
std::string name_text(const KernelModel& kernel) {
  const size_t place = kernel.name.find('#');
  if (place == std::string_view::npos) return std::string(kernel.name);
  const uint64_t bits = text_bits(kernel.name) ^ text_bits(kernel.inputs);
  return fmt::format("{}{:016x}{:016x}{}", kernel.name.substr(0, place), mix_bits(bits),
                     mix_bits(bits + 1), kernel.name.substr(place + 1));
}

uint32_t intern_shapes(std::string_view pattern, const CaptureModel& model, const PassShape& shape,
                       NameTable& names) {
  if (pattern.empty()) return kNoIndex;
  return names.intern(shapes_text(pattern, model, shape));
}

PlannedKernel plan_kernel(const CaptureModel& model, const KernelModel& kernel,
                          const PassShape& shape, NameTable& names) {
  PlannedKernel planned;
  planned.row.type = names.intern(kernel.type);
  planned.row.core = names.intern(kernel.core);
  planned.row.input_shapes = intern_shapes(kernel.inputs, model, shape, names);
  planned.row.output_shapes = intern_shapes(kernel.outputs, model, shape, names);
  planned.row.stream = model.streams[static_cast<size_t>(kernel.place)];
  planned.row.kind = kernel.core == "AI_CPU" ? KernelKind::kAiCpu : KernelKind::kCompute;
  planned.place = kernel.place;
  planned.spread_permille = kernel.spread_permille;
  planned.is_anchor = kernel.is_anchor;
  planned.is_collective = kernel.is_collective();
  if (planned.is_collective) {
    planned.row.kind = KernelKind::kCollective;
    planned.group = names.intern(kernel.name);
    if (!kernel.companion.empty()) planned.companion = names.intern(kernel.companion);
  } else {
    planned.row.name = names.intern(name_text(kernel));
  }
  return planned;
}

// Drafts behind the first one look at one token of each sequence.
PassShape shape_of_part(const PassPart& part, PassShape shape) {
  if (part.draft > 1) shape.tokens = shape.sequences;
  return shape;
}

int64_t scaled_time(int64_t mean_ns, const PassPart& part, const CaptureModel& model,
                    const PassShape& shape) {
  if (part.prefill_permille == 0) return mean_ns;
  const int64_t at_prefill_tokens = mean_ns * part.prefill_permille / 1000;
  return std::max<int64_t>(at_prefill_tokens * shape.tokens / model.prefill_tokens, 2'000);
}

}  // namespace

PassPlan make_pass_plan(const CaptureModel& model, const PassShape& shape, NameTable& names) {
  PassPlan plan;
  plan.shape = shape;
  for (const PassPart& part : pass_parts(model, shape)) {
    const PassShape part_shape = shape_of_part(part, shape);
    for (const KernelModel& kernel : part.kernels) {
      PlannedKernel planned = plan_kernel(model, kernel, part_shape, names);
      planned.mean_ns = scaled_time(kernel.mean_ns, part, model, shape);
      if (kernel.wait_ns > 0) planned.wait_ns = scaled_time(kernel.wait_ns, part, model, shape);
      if (kernel.companion_ns > 0) {
        planned.companion_ns = scaled_time(kernel.companion_ns, part, model, shape);
      }
      planned.draft = part.draft;
      const uint32_t place = static_cast<uint32_t>(plan.kernels.size());
      const bool is_aiv = planned.companion != kNoIndex && planned.companion_ns == 0;
      if (is_aiv) plan.aiv_collectives.push_back(place);
      if (planned.is_anchor) plan.anchors.push_back(place);
      plan.kernels.push_back(planned);
    }
  }
  return plan;
}

}  // namespace gapless
