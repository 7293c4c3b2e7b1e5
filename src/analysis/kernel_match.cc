// SPDX-License-Identifier: Apache-2.0

#include "analysis/kernel_match.h"

#include <algorithm>
#include <utility>

#include "trace/trace.h"

namespace gapless {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Without what is in <> and (). Where they do not pair up, as in operator<, the text stays.
std::string without_brackets(std::string_view text) {
  std::string outside;
  std::string open;
  for (const char c : text) {
    if (c == '<' || c == '(') {
      open += c == '<' ? '>' : ')';
    } else if (!open.empty() && c == open.back()) {
      open.pop_back();
    } else if (c == '>' || c == ')') {
      return std::string(text);
    } else if (open.empty()) {
      outside += c;
    }
  }
  return open.empty() ? outside : std::string(text);
}

std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool has_letter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (static_cast<uint8_t>(c) & 0x80) != 0;
  });
}

// Where the name begins without one more beginning; 0 when it has none.
size_t kept_begin(std::string_view name) {
  for (const std::string_view beginning : {"void ", "aic_", "aiv_"}) {
    if (name.starts_with(beginning)) return beginning.size();
  }
  return 0;
}

// Where it ends without one more ending; its size when it has none, or would have no letter left.
size_t kept_end(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && is_digit(name[end - 1])) --end;
  const bool has_number = end < name.size() && end > 0 && name[end - 1] == '_';
  end = has_number ? end - 1 : name.size();
  for (const std::string_view ending : {"_kernel", "_incore", "_aic", "_aiv"}) {
    if (name.ends_with(ending)) end = name.size() - ending.size();
  }
  return has_letter(name.substr(0, end)) ? end : name.size();
}

using PlaceByName = std::map<std::string_view, uint32_t>;

PlaceByName places_of_names(std::span<const std::string> names) {
  PlaceByName places;
  for (uint32_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  return places;
}

// Pairs are made around a name of the second, or a normalised name; kNoIndex: not paired yet.
class Matcher {
 public:
  Matcher(std::span<const std::string> first, std::span<const std::string> second)
      : first_(first),
        second_(second),
        pair_of_first_(first.size(), kNoIndex),
        pair_of_second_(second.size(), kNoIndex),
        first_places_(places_of_names(first)),
        second_places_(places_of_names(second)) {}

  void match_names() {
    for (uint32_t i = 0; i < first_.size(); ++i) {
      if (pair_of_first_[i] != kNoIndex) continue;
      const auto found = second_places_.find(first_[i]);
      if (found != second_places_.end()) join_first(i, pair_with(found->second));
    }
  }

  Result<void> match_map(const KernelMap& map) {
    for (const auto& [from, to] : map) {
      const auto first = first_places_.find(from);
      const auto second = second_places_.find(to);
      if (first == first_places_.end())
        return fail(ErrorCode::kInvalidInput,
                    "the map says {} = {}, but the first step has no kernel {}", from, to, from);
      if (second == second_places_.end())
        return fail(ErrorCode::kInvalidInput,
                    "the map says {} = {}, but the second step has no kernel {}", from, to, to);
      const uint32_t pair = pair_with(second->second);
      join_first(first->second, pair);
      if (from != to) pairs_[pair].match = KernelMatch::kMap;
    }
    return {};
  }

  void match_normalised() {
    std::map<std::string, std::vector<uint32_t>> seconds;
    for (uint32_t i = 0; i < second_.size(); ++i) {
      if (pair_of_second_[i] == kNoIndex) seconds[normalised_kernel_name(second_[i])].push_back(i);
    }
    for (uint32_t i = 0; i < first_.size(); ++i) {
      if (pair_of_first_[i] != kNoIndex) continue;
      const auto found = seconds.find(normalised_kernel_name(first_[i]));
      if (found == seconds.end()) continue;
      const uint32_t pair = pair_with(found->second.front());
      for (const uint32_t second : found->second) join_second(second, pair);
      join_first(i, pair);
      pairs_[pair].match = KernelMatch::kNormalised;
    }
  }

  std::vector<KernelPair> take_pairs() {
    for (uint32_t i = 0; i < first_.size(); ++i) {
      if (pair_of_first_[i] != kNoIndex) continue;
      pairs_.push_back({.first = {i}, .second = {}, .match = KernelMatch::kOnlyFirst});
    }
    for (uint32_t i = 0; i < second_.size(); ++i) {
      if (pair_of_second_[i] != kNoIndex) continue;
      pairs_.push_back({.first = {}, .second = {i}, .match = KernelMatch::kOnlySecond});
    }
    for (KernelPair& pair : pairs_) {
      std::sort(pair.first.begin(), pair.first.end());
      std::sort(pair.second.begin(), pair.second.end());
    }
    std::sort(pairs_.begin(), pairs_.end(), [](const KernelPair& a, const KernelPair& b) {
      if (a.first.empty() || b.first.empty())
        return a.first.empty() == b.first.empty() ? a.second < b.second : b.first.empty();
      return a.first < b.first;
    });
    return std::move(pairs_);
  }

 private:
  uint32_t pair_with(uint32_t second) {
    if (pair_of_second_[second] == kNoIndex) {
      pairs_.push_back({.first = {}, .second = {}, .match = KernelMatch::kName});
      join_second(second, static_cast<uint32_t>(pairs_.size() - 1));
    }
    return pair_of_second_[second];
  }
  void join_first(uint32_t first, uint32_t pair) {
    pair_of_first_[first] = pair;
    pairs_[pair].first.push_back(first);
  }
  void join_second(uint32_t second, uint32_t pair) {
    if (pair_of_second_[second] == pair) return;
    pair_of_second_[second] = pair;
    pairs_[pair].second.push_back(second);
  }

  std::span<const std::string> first_;
  std::span<const std::string> second_;
  std::vector<uint32_t> pair_of_first_;
  std::vector<uint32_t> pair_of_second_;
  PlaceByName first_places_;
  PlaceByName second_places_;
  std::vector<KernelPair> pairs_;
};

}  // namespace

Result<KernelMap> parse_kernel_map(std::string_view text, const std::string& source) {
  KernelMap map;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view whole = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const std::string from(trimmed(line.substr(0, equals)));
    const std::string to(equals == std::string_view::npos ? "" : trimmed(line.substr(equals + 1)));
    if (from.empty() || to.empty())
      return fail(ErrorCode::kInvalidInput,
                  "{}:{}: \"{}\"; must look like NAME IN THE FIRST = NAME IN THE SECOND", source,
                  number, line);
    const auto [entry, is_new] = map.emplace(from, to);
    if (!is_new && entry->second != to)
      return fail(ErrorCode::kInvalidInput, "{}:{}: {} = {}, but an earlier line says {} = {}",
                  source, number, from, to, from, entry->second);
  }
  return map;
}

std::string normalised_kernel_name(std::string_view name) {
  const std::string outside = in_lower_case(without_brackets(name));
  std::string_view rest = trimmed(outside);
  const size_t scope = rest.rfind("::");
  if (scope != std::string_view::npos) rest = trimmed(rest.substr(scope + 2));
  for (size_t begin = kept_begin(rest); begin > 0; begin = kept_begin(rest))
    rest = trimmed(rest.substr(begin));
  for (size_t end = kept_end(rest); end < rest.size(); end = kept_end(rest))
    rest = trimmed(rest.substr(0, end));
  return std::string(has_letter(rest) ? rest : name);
}

std::string_view kernel_match_name(KernelMatch match) {
  switch (match) {
    case KernelMatch::kName:
      return "name";
    case KernelMatch::kMap:
      return "map";
    case KernelMatch::kNormalised:
      return "normalised name";
    case KernelMatch::kOnlyFirst:
      return "only in the first";
    case KernelMatch::kOnlySecond:
      return "only in the second";
  }
  return "unknown";
}

Result<std::vector<KernelPair>> match_kernels(std::span<const std::string> first,
                                              std::span<const std::string> second,
                                              const KernelMap& map) {
  Matcher matcher(first, second);
  GAPLESS_TRY(matcher.match_map(map));
  matcher.match_names();
  matcher.match_normalised();
  return matcher.take_pairs();
}

}  // namespace gapless
