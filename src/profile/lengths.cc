// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "kernels/attention_plan.h"
#include "model/random_values.h"
#include "profile/profile.h"

namespace gapless {
namespace {

std::optional<int32_t> parse_number(std::string_view text) {
  int32_t value = 0;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

Error bad_lengths(std::string_view text) {
  return fail(ErrorCode::kUsage,
              "lengths '{}'; must be numbers with commas between them, one number for all, or a "
              "range like 1..4096, each 1 to {}",
              text, kMaxPlanTokens);
}

bool is_length(const std::optional<int32_t>& value) {
  return value && *value >= 1 && *value <= kMaxPlanTokens;
}

// Evenly from `first` to `last`, so that every seed is the same work in another order.
std::vector<int32_t> spread(int32_t first, int32_t last, int batch, uint64_t seed) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < batch; ++i) {
    const int64_t span = int64_t{last} - first;
    lengths.push_back(batch == 1 ? last : static_cast<int32_t>(first + span * i / (batch - 1)));
  }
  for (size_t i = lengths.size(); i > 1; --i)
    std::swap(lengths[i - 1], lengths[mix_bits(seed + i) % i]);
  return lengths;
}

}  // namespace

Result<std::vector<int32_t>> parse_lengths(std::string_view text, int batch, uint64_t seed) {
  if (batch < 1)
    return fail(ErrorCode::kUsage, "lengths of {} sequences; must be 1 or more", batch);
  const size_t dots = text.find("..");
  if (dots != std::string_view::npos) {
    const std::optional<int32_t> first = parse_number(text.substr(0, dots));
    const std::optional<int32_t> last = parse_number(text.substr(dots + 2));
    if (!is_length(first) || !is_length(last) || *first > *last) return bad_lengths(text);
    return spread(*first, *last, batch, seed);
  }
  std::vector<int32_t> lengths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int32_t> length = parse_number(text.substr(begin, end - begin));
    if (!is_length(length)) return bad_lengths(text);
    lengths.push_back(*length);
    begin = end + 1;
  }
  if (lengths.size() == 1) lengths.assign(static_cast<size_t>(batch), lengths.front());
  if (std::ssize(lengths) != batch)
    return fail(ErrorCode::kUsage, "{} lengths for a batch of {}", lengths.size(), batch);
  return lengths;
}

}  // namespace gapless
