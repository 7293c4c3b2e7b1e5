// SPDX-License-Identifier: Apache-2.0

#include "cli/nearest_name.h"

#include <algorithm>
#include <vector>

namespace gapless {

// Three rows of the classic table: a swap looks back two.
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> before_last(to.size() + 1);
  std::vector<size_t> last(to.size() + 1);
  std::vector<size_t> current(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      current[j] = std::min({replace, last[j] + 1, current[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(current);
  }
  return last[to.size()];
}

std::optional<std::string> nearest_name(std::string_view typed,
                                        std::span<const std::string> names) {
  std::optional<std::string> nearest;
  size_t nearest_distance = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    // A beginning that was not finished is no typing error, but the intent is clear.
    const bool is_beginning = typed.size() > 2 && name.starts_with(typed);
    const size_t distance = is_beginning ? 1 : edit_distance(typed, name);
    if (distance >= nearest_distance) continue;
    nearest_distance = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace gapless
