// SPDX-License-Identifier: Apache-2.0
//
// Which kernels of two traces are the same: by name, by a map that somebody wrote, or by the name
// without what compilers and generators add to it.
//
// Each kernel once: what the map names goes where it says, then equal names meet, then what is left
// and has the same normalised name. A line of the map so holds although the second trace has a
// kernel of the first name too: it was written because names alone mislead. Several kernels may
// stand on a side: all that the map gives to one, and all of the same normalised name.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gapless {

// Names of the first trace to names of the second; several may become one.
using KernelMap = std::map<std::string, std::string, std::less<>>;
// Lines "name in the first = name in the second"; '#' begins a comment. `source` is for messages.
Result<KernelMap> parse_kernel_map(std::string_view text, const std::string& source);

// "Fused<bf16>::fa_kernel_12" and "fa" are the same kernel: lower case; without a return type of
// void, namespaces, what is in <> and (), a leading aic_ or aiv_, and at the end _kernel, _incore,
// _aic, _aiv and _NUMBER. Names of which no letter would be left stay as they are.
std::string normalised_kernel_name(std::string_view name);

enum class KernelMatch : uint8_t { kName, kMap, kNormalised, kOnlyFirst, kOnlySecond };
std::string_view kernel_match_name(KernelMatch match);

// Places in the lists of names, ascending. At least one side has some.
struct KernelPair {
  std::vector<uint32_t> first;
  std::vector<uint32_t> second;
  KernelMatch match = KernelMatch::kName;  // the weakest that holds the pair together
};

// Every name of both lists is in exactly one pair. No list names a kernel twice. In the order of
// the first list, then of what only the second has. Error when the map has a name that its side
// does not.
Result<std::vector<KernelPair>> match_kernels(std::span<const std::string> first,
                                              std::span<const std::string> second,
                                              const KernelMap& map = {});

}  // namespace gapless
