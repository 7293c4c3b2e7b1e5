// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_signature.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>

#include "base/mix_bits.h"

namespace gapless {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return lower;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [text](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

// Small numbers for those of the table's names that occur, given as they are met.
class SmallNumbers {
 public:
  explicit SmallNumbers(size_t name_count) : numbers_(name_count, kNoIndex) {}
  uint32_t operator[](uint32_t name) {
    if (numbers_[name] == kNoIndex) numbers_[name] = count_++;
    return numbers_[name];
  }
  uint32_t count() const { return count_; }

 private:
  std::vector<uint32_t> numbers_;
  uint32_t count_ = 0;
};

constexpr uint8_t kUnknownHint = 0xff;

KernelHint hint_of(const NameTable& names, uint32_t name, std::vector<uint8_t>& hints) {
  if (name == kNoIndex) return KernelHint::kNone;
  if (hints[name] == kUnknownHint) hints[name] = static_cast<uint8_t>(kernel_hint(names[name]));
  return static_cast<KernelHint>(hints[name]);
}

}  // namespace

KernelHint kernel_hint(std::string_view name) {
  const std::string lower = lower_case(name);
  // Of training: their backward kernels lie in other places.
  if (has_any(lower, {"grad", "backward", "_bwd"})) return KernelHint::kNone;
  if (has_any(lower, {"argmax", "topktopp", "top_k_top_p", "topp_", "multinomial", "dsarandom",
                      "rejection", "gumbel", "exponential"})) {
    return KernelHint::kSampling;
  }
  const bool changes_rate = has_any(
      lower, {"upsampl", "downsampl", "resampl", "gridsampl", "grid_sampl", "samplingoffset"});
  if (!changes_rate && has_any(lower, {"sampling", "sample_"})) return KernelHint::kSampling;
  // Rotary embeddings are in every layer.
  if (has_any(lower, {"embed"}) && !has_any(lower, {"rotary", "rope", "position"})) {
    return KernelHint::kEmbedding;
  }
  return KernelHint::kNone;
}

KernelKeys make_kernel_keys(const CaptureTable& table) {
  KernelKeys keys;
  keys.key.assign(table.size(), kNoIndex);
  keys.hint.assign(table.size(), KernelHint::kNone);
  SmallNumbers numbers(table.names.size());
  std::vector<uint8_t> hints(table.names.size(), kUnknownHint);
  for (size_t row = 0; row < table.size(); ++row) {
    const KernelKind kind = table.kind[row];
    if (kind != KernelKind::kCompute && kind != KernelKind::kAiCpu) continue;
    const uint32_t type = table.type[row] != kNoIndex ? table.type[row] : table.name[row];
    if (type == kNoIndex) continue;
    keys.key[row] = numbers[type];
    KernelHint hint = hint_of(table.names, type, hints);
    if (hint == KernelHint::kNone) hint = hint_of(table.names, table.name[row], hints);
    keys.hint[row] = hint;
  }
  keys.key_count = numbers.count();
  return keys;
}

KernelKeys keys_on_anchor_streams(const CaptureTable& table, const KernelKeys& keys,
                                  const std::vector<uint8_t>& is_anchor) {
  KernelKeys kept;
  kept.key.assign(table.size(), kNoIndex);
  kept.hint.assign(table.size(), KernelHint::kNone);
  kept.key_count = keys.key_count;
  // Rows [begin, stop) lie between two anchors, or between one and the end of a device.
  const auto keep = [&](size_t begin, size_t stop, size_t before, size_t behind) {
    for (size_t row = begin; row < stop; ++row) {
      const int32_t stream = table.stream[row];
      if (stream != table.stream[before] && stream != table.stream[behind]) continue;
      kept.key[row] = keys.key[row];
      kept.hint[row] = keys.hint[row];
    }
  };
  size_t begin = 0;
  size_t before = kNoIndex;
  for (size_t row = 0; row < table.size(); ++row) {
    if (is_anchor[row] != 0) {
      keep(begin, row + 1, before == kNoIndex ? row : before, row);
      before = row;
      begin = row + 1;
    }
    if (row + 1 < table.size() && table.device[row + 1] == table.device[row]) continue;
    if (before != kNoIndex) keep(begin, row + 1, before, before);
    before = kNoIndex;
    begin = row + 1;
  }
  return kept;
}

AnchorIntervals make_anchor_intervals(const KernelKeys& keys, const std::vector<uint8_t>& is_anchor,
                                      uint32_t first_row, uint32_t end_row) {
  AnchorIntervals intervals;
  intervals.first_row = first_row;
  intervals.end_row = end_row;
  uint64_t signature = 0;
  uint32_t row_count = 0;
  for (uint32_t row = first_row; row <= end_row; ++row) {
    if (row == end_row || is_anchor[row] != 0) {
      if (row < end_row) intervals.anchors.push_back(row);
      intervals.signatures.push_back(signature);
      intervals.row_counts.push_back(row_count);
      signature = 0;
      row_count = 0;
    } else if (keys.key[row] != kNoIndex) {
      // A sum: in any order the same.
      signature += mix_bits(keys.key[row]);
      ++row_count;
    }
  }
  return intervals;
}

}  // namespace gapless
