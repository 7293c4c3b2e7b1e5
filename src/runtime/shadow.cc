// SPDX-License-Identifier: Apache-2.0

#include "runtime/shadow.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/core.h>

namespace gapless {
namespace {

// A wild index may give any offset; past this one, ends and bytes are not computed.
constexpr int64_t kLargestNamedOffset = int64_t{1} << 56;

bool is_wild(int64_t offset, int64_t count) {
  if (offset > kLargestNamedOffset || offset < -kLargestNamedOffset) return true;
  return count > kLargestNamedOffset || count < 0;
}

std::string range_text(std::string_view unit, int64_t first, int64_t count) {
  if (count == 1) return fmt::format("{} {}", unit, first);
  if (count == 0) return fmt::format("no {}s", unit);
  if (is_wild(first, count)) return fmt::format("{} {}s from {} on", count, unit, first);
  return fmt::format("{}s {}..{}", unit, first, first + count - 1);
}

std::string bytes_text(const View& view, int64_t offset, int64_t count) {
  if (is_wild(offset, count) || count == 0) return "";
  const int64_t element_bytes = dtype_bytes(view.dtype);
  return fmt::format(
      " ({} of buffer {})",
      range_text("byte", (view.offset + offset) * element_bytes, count * element_bytes),
      view.buffer.index());
}

}  // namespace

// Broadcast dimensions add nothing, and a dimension that runs backwards has the same elements as
// one that runs forwards from the other end.
ElementSet::ElementSet(const View& view) {
  for (size_t i = 0; i < view.rank; ++i) {
    const int64_t count = view.shape[i];
    const int64_t stride = view.strides[i];
    if (count == 0) {
      dimension_count_ = 0;
      first_ = 0;
      return;
    }
    if (count == 1 || stride == 0) continue;
    if (stride < 0) first_ += stride * (count - 1);
    dimensions_[static_cast<size_t>(dimension_count_++)] = {std::max(stride, -stride), count, 0};
  }
  std::sort(dimensions_.begin(), dimensions_.begin() + dimension_count_,
            [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  int64_t reach = 0;
  for (size_t i = static_cast<size_t>(dimension_count_); i-- > 0;) {
    dimensions_[i].reach = reach;
    reach += dimensions_[i].stride * (dimensions_[i].count - 1);
  }
  extent_ = reach + 1;
}

int64_t ElementSet::run_from(int64_t offset) const {
  if (offset < first_ || offset >= first_ + extent_) return 0;
  return run_within(0, offset - first_);
}

// Which indices of this dimension leave an offset that those inside can reach: one at most, unless
// the view overlaps itself.
int64_t ElementSet::run_within(int dimension, int64_t offset) const {
  if (dimension == dimension_count_) return offset == 0 ? 1 : 0;
  const auto [stride, count, reach] = dimensions_[static_cast<size_t>(dimension)];
  if (dimension == dimension_count_ - 1 && stride == 1) return std::max<int64_t>(count - offset, 0);
  const int64_t last = std::min(count - 1, offset / stride);
  for (int64_t index = last; index >= 0 && offset - index * stride <= reach; --index) {
    const int64_t run = run_within(dimension + 1, offset - index * stride);
    if (run > 0) return run;
  }
  return 0;
}

void ShadowChecker::begin_task(std::span<const Argument> arguments, bool is_gang) {
  arguments_ = arguments;
  is_gang_ = is_gang;
  scratch_.clear();
  violation_.clear();
  elements_.clear();
  for (const Argument& argument : arguments) elements_.emplace_back(argument.view);
  written_.resize(std::max(written_.size(), arguments.size()));
  for (std::vector<bool>& written : written_) written.clear();
}

bool ShadowChecker::check(int argument, int64_t element_offset, int64_t count, bool is_write) {
  const Touch touch = {argument, element_offset, count, is_write};
  if (argument < 0 || static_cast<size_t>(argument) >= arguments_.size()) {
    return refuse(touch, fmt::format("the task has {} arguments", arguments_.size()));
  }
  const Access declared = arguments_[static_cast<size_t>(argument)].access;
  if (count < 0) return refuse(touch, fmt::format("{} elements cannot be touched", count));
  if (is_write && !writes(declared)) return refuse(touch, "the argument is only read");
  const int64_t outside = first_outside(touch);
  if (outside - element_offset < count) {
    return refuse(touch, fmt::format("element {} is outside the view", outside));
  }
  if (reads(declared) || is_gang_) return true;
  if (is_write) {
    note_written(touch);
    return true;
  }
  const int64_t unwritten = first_unwritten(touch);
  if (unwritten - element_offset == count) return true;
  return refuse(
      touch, fmt::format("element {} is an output that the task has not written yet", unwritten));
}

void* ShadowChecker::scratch(int64_t bytes) {
  scratch_.emplace_back(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  return scratch_.back().data();
}

int64_t ShadowChecker::first_outside(const Touch& touch) const {
  const ElementSet& elements = elements_[static_cast<size_t>(touch.argument)];
  int64_t done = 0;
  while (done < touch.count) {
    const int64_t run = elements.run_from(touch.offset + done);
    if (run == 0) break;
    done += run;
  }
  return touch.offset + std::min(done, touch.count);
}

int64_t ShadowChecker::first_unwritten(const Touch& touch) const {
  const std::vector<bool>& written = written_[static_cast<size_t>(touch.argument)];
  if (written.empty()) return touch.offset;
  const int64_t first = elements_[static_cast<size_t>(touch.argument)].first();
  int64_t done = 0;
  while (done < touch.count && written[static_cast<size_t>(touch.offset - first + done)]) ++done;
  return touch.offset + done;
}

void ShadowChecker::note_written(const Touch& touch) {
  const ElementSet& elements = elements_[static_cast<size_t>(touch.argument)];
  std::vector<bool>& written = written_[static_cast<size_t>(touch.argument)];
  if (written.empty()) written.resize(static_cast<size_t>(elements.extent()));
  const std::ptrdiff_t begin = touch.offset - elements.first();
  std::fill_n(written.begin() + begin, touch.count, true);
}

// Always false: the access must not be made.
bool ShadowChecker::refuse(const Touch& touch, const std::string& why) {
  if (!violation_.empty()) return false;
  const std::string what = fmt::format("{} {}", touch.is_write ? "wrote" : "read",
                                       range_text("element", touch.offset, touch.count));
  if (touch.argument < 0 || static_cast<size_t>(touch.argument) >= arguments_.size()) {
    violation_ = fmt::format("argument {}: {}: {}", touch.argument, what, why);
    return false;
  }
  const Argument& argument = arguments_[static_cast<size_t>(touch.argument)];
  violation_ = fmt::format("argument {} ({}, {}): {}{}: {}", touch.argument,
                           access_name(argument.access), view_text(argument.view), what,
                           bytes_text(argument.view, touch.offset, touch.count), why);
  return false;
}

}  // namespace gapless
