// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_anchors.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

constexpr size_t kMaxCandidates = 12;
constexpr size_t kNamedInErrors = 8;

// How good a kernel is as an anchor by its name alone. Higher is better.
enum class Rank : uint8_t { kNone = 0, kAny = 1, kBlock = 2, kLinear = 3, kAttention = 4 };

std::string plain_text(std::string_view text) {
  std::string plain;
  for (const char letter : text) {
    const unsigned char byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) plain += static_cast<char>(std::tolower(byte));
  }
  return plain;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [text](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

Rank rank_of(std::string_view type) {
  const std::string name = plain_text(type);
  if (name.empty()) return Rank::kNone;
  if (has_any(name, {"grad", "backward", "bwd", "bprop"})) return Rank::kNone;
  const bool is_part = has_any(name, {"indexer", "combine", "merge", "reduce", "mask", "metadata",
                                      "update", "tiling", "reshape", "cache"}) &&
                       !has_any(name, {"kvcache", "ffncombine"});
  if (!is_part && !has_any(name, {"gateddelta"}) &&
      has_any(name, {"attention", "ringmla", "infermla", "flashmla", "flashfwd", "flashattn",
                     "fmha", "fafused", "batchdecodewithpagedkvcache", "batchprefillwith",
                     "multiheadlatent", "pagedattn", "mlafwd", "attnfwd", "sdpa", "flashfprop"})) {
    return Rank::kAttention;
  }
  if (has_any(name, {"gateddeltarulefwd", "recurrentgateddelta", "gateddelta", "selectivescan"})) {
    return Rank::kLinear;
  }
  if (has_any(name, {"swiglu", "siluandmul", "actandmul", "dispatchffncombine", "moegatingtopk",
                     "topkgating", "addrmsnormbias", "addrmsnorm"})) {
    return Rank::kBlock;
  }
  return Rank::kAny;
}

std::string_view rank_name(Rank rank) {
  constexpr std::string_view kNames[] = {"no kernel of a layer", "a kernel that recurs",
                                         "a kernel of the feed-forward block",
                                         "a linear attention kernel", "an attention kernel"};
  return kNames[static_cast<size_t>(rank)];
}

// Within the third rank: what a layer has exactly once comes first.
double order_in_rank(std::string_view type) {
  const std::string name = plain_text(type);
  if (has_any(name, {"swiglu", "siluandmul", "actandmul"})) return 0.4;
  if (has_any(name, {"dispatchffncombine"})) return 0.3;
  if (has_any(name, {"moegatingtopk", "topkgating"})) return 0.2;
  return 0.0;
}

struct TypeUse {
  uint32_t type = kNoIndex;
  Rank rank = Rank::kNone;
  std::vector<uint32_t> rows;
};

bool can_be_anchor(const CaptureTable& table, size_t row) {
  const KernelKind kind = table.kind[row];
  return kind == KernelKind::kCompute || kind == KernelKind::kAiCpu;
}

uint32_t type_or_name(const CaptureTable& table, size_t row) {
  return table.type[row] != kNoIndex ? table.type[row] : table.name[row];
}

// The types of the highest rank that occurs, each with its rows.
std::vector<TypeUse> types_of_best_rank(const CaptureTable& table) {
  std::vector<uint32_t> counts(table.names.size(), 0);
  for (size_t row = 0; row < table.size(); ++row) {
    const uint32_t type = type_or_name(table, row);
    if (can_be_anchor(table, row) && type != kNoIndex) ++counts[type];
  }
  std::vector<Rank> ranks(table.names.size(), Rank::kNone);
  Rank best = Rank::kNone;
  for (uint32_t type = 0; type < counts.size(); ++type) {
    if (counts[type] == 0) continue;
    ranks[type] = rank_of(table.names[type]);
    // What comes once can recur only if its name says so.
    if (ranks[type] == Rank::kAny && counts[type] < 2) ranks[type] = Rank::kNone;
    best = std::max(best, ranks[type]);
  }
  std::vector<TypeUse> uses;
  if (best == Rank::kNone) return uses;
  std::vector<uint32_t> use_of(table.names.size(), kNoIndex);
  for (uint32_t type = 0; type < counts.size(); ++type) {
    if (ranks[type] != best) continue;
    use_of[type] = static_cast<uint32_t>(uses.size());
    uses.push_back({.type = type, .rank = best, .rows = {}});
    uses.back().rows.reserve(counts[type]);
  }
  for (uint32_t row = 0; row < table.size(); ++row) {
    const uint32_t type = type_or_name(table, row);
    if (!can_be_anchor(table, row) || type == kNoIndex || use_of[type] == kNoIndex) continue;
    uses[use_of[type]].rows.push_back(row);
  }
  return uses;
}

struct Evenness {
  double share = 0.0;  // of the distances: within a fifth of the median
  uint32_t median = 0;
};

Evenness evenness_of(const std::vector<uint32_t>& rows) {
  if (rows.size() < 2) return {};
  std::vector<uint32_t> distances;
  distances.reserve(rows.size() - 1);
  for (size_t i = 1; i < rows.size(); ++i) distances.push_back(rows[i] - rows[i - 1]);
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  const uint32_t median = *middle;
  const auto is_near = [median](uint32_t distance) {
    return distance * 5ull >= median * 4ull && distance * 5ull <= median * 6ull;
  };
  const auto near = std::count_if(distances.begin(), distances.end(), is_near);
  return {static_cast<double>(near) / static_cast<double>(distances.size()), median};
}

AnchorCandidate make_candidate(const CaptureTable& table, const TypeUse& use, size_t most_rows) {
  const Evenness evenness = evenness_of(use.rows);
  const double part = static_cast<double>(use.rows.size()) / static_cast<double>(most_rows);
  AnchorCandidate candidate;
  candidate.type = use.type;
  candidate.count = use.rows.size();
  // Between 0 and 1 within a rank.
  candidate.score = static_cast<double>(use.rank) + 0.3 * evenness.share + 0.2 * part;
  if (use.rank == Rank::kBlock) candidate.score += order_in_rank(table.names[use.type]);
  candidate.reason =
      fmt::format("{}, {} rows, {:.0f}% of them about {} rows apart", rank_name(use.rank),
                  use.rows.size(), 100.0 * evenness.share, evenness.median);
  return candidate;
}

// So many times fewer are no second kernel of every layer: of drafts, or of few layers.
constexpr size_t kFewTimes = 4;

// Whether `other` is mostly in places where there are none of `best`: not in the same layers.
bool is_apart(const std::vector<uint32_t>& best, const std::vector<uint32_t>& other) {
  if (other.size() * kFewTimes <= best.size()) return true;
  size_t beside = 0;
  for (size_t i = 0; i < other.size(); ++i) {
    const auto next = std::lower_bound(best.begin(), best.end(), other[i]);
    const bool after = next != best.end() && (i + 1 == other.size() || *next < other[i + 1]);
    const bool before = next != best.begin() && (i == 0 || *(next - 1) > other[i - 1]);
    if (after || before) ++beside;
  }
  return beside * 4 <= other.size();
}

void mark_rows(const std::vector<uint32_t>& rows, std::vector<uint8_t>& is_anchor) {
  for (const uint32_t row : rows) is_anchor[row] = 1;
}

std::string candidate_names(const CaptureTable& table,
                            const std::vector<AnchorCandidate>& candidates) {
  std::string text;
  for (size_t i = 0; i < candidates.size() && i < kNamedInErrors; ++i) {
    text += fmt::format("{}{} ({} rows)", i == 0 ? "" : ", ", table.names[candidates[i].type],
                        candidates[i].count);
  }
  return text;
}

// How well a row fits the name that was asked for: 4 its type, 3 its name, 2 and 1 the same without
// regard to case and punctuation.
class WantedNames {
 public:
  WantedNames(const CaptureTable& table, const std::string& wanted)
      : table_(table), wanted_(wanted), plain_(plain_text(wanted)) {
    fits_.assign(table.names.size(), kUnknown);
  }
  int fit(size_t row) {
    const int type = fit_of(table_.type[row]);
    const int name = fit_of(table_.name[row]);
    if (type == 2) return 4;
    if (name == 2) return 3;
    return type == 1 ? 2 : name == 1 ? 1 : 0;
  }

 private:
  static constexpr uint8_t kUnknown = 0xff;
  int fit_of(uint32_t name) {
    if (name == kNoIndex) return 0;
    uint8_t& fit = fits_[name];
    if (fit == kUnknown) {
      const std::string_view text = table_.names[name];
      const bool is_alike = !plain_.empty() && plain_text(text) == plain_;
      fit = text == wanted_ ? 2 : is_alike ? 1 : 0;
    }
    return fit;
  }

  const CaptureTable& table_;
  const std::string& wanted_;
  std::string plain_;
  std::vector<uint8_t> fits_;
};

Result<void> take_wanted(const CaptureTable& table, const std::string& wanted,
                         AnchorChoice& choice) {
  WantedNames names(table, wanted);
  std::vector<uint8_t> fits(table.size(), 0);
  int best = 0;
  for (size_t row = 0; row < table.size(); ++row) {
    if (!can_be_anchor(table, row)) continue;
    fits[row] = static_cast<uint8_t>(names.fit(row));
    best = std::max<int>(best, fits[row]);
  }
  if (best == 0) {
    return fail(
        ErrorCode::kInvalidInput, "no kernel of type or name {} among {} rows; there is {}", wanted,
        table.size(),
        choice.candidates.empty() ? "none that recurs" : candidate_names(table, choice.candidates));
  }
  for (uint32_t row = 0; row < table.size(); ++row) {
    if (fits[row] != best) continue;
    choice.is_anchor[row] = 1;
    if (choice.types.empty()) choice.types.push_back(type_or_name(table, row));
  }
  choice.type = choice.types.front();
  return {};
}

void take_best(const std::vector<TypeUse>& uses, AnchorChoice& choice) {
  const auto use_of = [&uses](uint32_t type) -> const TypeUse& {
    return *std::find_if(uses.begin(), uses.end(),
                         [type](const TypeUse& use) { return use.type == type; });
  };
  choice.type = choice.candidates.front().type;
  choice.types = {choice.type};
  choice.is_guess = use_of(choice.type).rank == Rank::kAny;
  std::vector<uint32_t> rows = use_of(choice.type).rows;
  for (size_t i = 1; i < choice.candidates.size(); ++i) {
    const TypeUse& use = use_of(choice.candidates[i].type);
    if (use.rank < Rank::kLinear || !is_apart(rows, use.rows)) continue;
    choice.types.push_back(use.type);
    const std::ptrdiff_t middle = static_cast<std::ptrdiff_t>(rows.size());
    rows.insert(rows.end(), use.rows.begin(), use.rows.end());
    std::inplace_merge(rows.begin(), rows.begin() + middle, rows.end());
  }
  mark_rows(rows, choice.is_anchor);
}

}  // namespace

Result<AnchorChoice> choose_anchors(const CaptureTable& table, const std::string& wanted) {
  AnchorChoice choice;
  choice.is_anchor.assign(table.size(), 0);
  const std::vector<TypeUse> uses = types_of_best_rank(table);
  size_t most_rows = 0;
  for (const TypeUse& use : uses) most_rows = std::max(most_rows, use.rows.size());
  for (const TypeUse& use : uses)
    choice.candidates.push_back(make_candidate(table, use, most_rows));
  std::stable_sort(
      choice.candidates.begin(), choice.candidates.end(),
      [](const AnchorCandidate& a, const AnchorCandidate& b) { return a.score > b.score; });
  if (!wanted.empty()) {
    GAPLESS_TRY(take_wanted(table, wanted, choice));
  } else if (choice.candidates.empty()) {
    return fail(ErrorCode::kInvalidInput, "no kernel among {} rows comes more than once",
                table.size());
  } else {
    take_best(uses, choice);
  }
  if (choice.candidates.size() > kMaxCandidates) choice.candidates.resize(kMaxCandidates);
  return choice;
}

}  // namespace gapless
