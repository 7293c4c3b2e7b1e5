// SPDX-License-Identifier: Apache-2.0

#include "analysis/align.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

// What rounding makes of counts that are averages over passes.
constexpr double kRounding = 1e-9;

struct Totals {
  double count = 0.0;
  double ns = 0.0;
  double collective_ns = 0.0;

  void add(const Totals& other) {
    count += other.count;
    ns += other.ns;
    collective_ns += other.collective_ns;
  }
};
using TotalsByShape = std::map<std::string, Totals>;

// One side by type, in the order in which its types appear; everything a pass.
struct TypeList {
  std::vector<std::string> types;
  std::vector<TotalsByShape> totals;  // by type
};

Result<TypeList> types_of(const AlignSide& side, bool by_shape) {
  if (!(side.pass_count > 0.0) || !std::isfinite(side.pass_count))
    return fail(ErrorCode::kInvalidInput, "{}: {} passes; must be more than 0", side.source,
                side.pass_count);
  TypeList list;
  std::unordered_map<std::string, size_t> places;
  for (const AlignEntry& entry : side.entries) {
    const auto [place, is_new] = places.emplace(entry.type, list.types.size());
    if (is_new) {
      list.types.push_back(entry.type);
      list.totals.emplace_back();
    }
    const double ns = static_cast<double>(entry.total_ns) / side.pass_count;
    list.totals[place->second][by_shape ? entry.shape : std::string()].add(
        {entry.count / side.pass_count, ns, entry.is_collective ? ns : 0.0});
  }
  return list;
}

TotalsByShape joined(const TypeList& list, const std::vector<uint32_t>& places) {
  TotalsByShape all;
  for (const uint32_t place : places) {
    for (const auto& [shape, totals] : list.totals[place]) all[shape].add(totals);
  }
  return all;
}

TotalsByShape without_shapes(const TotalsByShape& by_shape) {
  TotalsByShape all;
  for (const auto& [shape, totals] : by_shape) all[""].add(totals);
  return all;
}

bool has_shapes(const TotalsByShape& by_shape) {
  return std::any_of(by_shape.begin(), by_shape.end(),
                     [](const auto& entry) { return !entry.first.empty(); });
}

std::string joined_names(const TypeList& list, const std::vector<uint32_t>& places) {
  std::string text;
  for (const uint32_t place : places) text += (text.empty() ? "" : "+") + list.types[place];
  return text;
}

// Names that differ in more than a number or a suffix are different work, and their counts add up
// to nothing that another kernel's could be held against.
bool are_different(const TypeList& list, const std::vector<uint32_t>& places) {
  std::set<std::string> names;
  for (const uint32_t place : places) names.insert(normalised_kernel_name(list.types[place]));
  return names.size() > 1;
}

double error_of(double model, double measured) {
  return measured > 0.0 && model > 0.0 ? model / measured - 1.0 : 0.0;
}

// Whether `model` is `measured`, give or take the tolerance.
bool agrees(double model, double measured, double tolerance) {
  return std::abs(model - measured) <= (tolerance + kRounding) * measured;
}

void judge(AlignRow& row, const AlignOptions& options) {
  row.time_error = error_of(row.model_ns, row.measured_ns);
  if (!row.has_counts) {
    const bool is_hit = agrees(row.model_ns, row.measured_ns, options.time_tolerance);
    row.status = is_hit ? AlignStatus::kHit : AlignStatus::kPartial;
    return;
  }
  const auto mean = [](double ns, double count) { return count > 0.0 ? ns / count : 0.0; };
  const double measured_mean = mean(row.measured_ns, row.measured_count);
  const double model_mean = mean(row.model_ns, row.model_count);
  row.mean_error = error_of(model_mean, measured_mean);
  if (!agrees(row.model_count, row.measured_count, 0.0))
    row.count_error = error_of(row.model_count, row.measured_count);
  const bool is_hit = agrees(row.model_count, row.measured_count, options.count_tolerance) &&
                      agrees(model_mean, measured_mean, options.time_tolerance);
  row.status = is_hit ? AlignStatus::kHit : AlignStatus::kPartial;
}

// Makes the rows of the pairs, one after the other.
class RowMaker {
 public:
  RowMaker(const AlignSide& measured, const AlignSide& model, const AlignOptions& options)
      : measured_side_(measured), model_side_(model), options_(options) {}

  Result<void> run(const KernelMap& map, Alignment& alignment) {
    measured_ = GAPLESS_TRY(types_of(measured_side_, options_.by_shape));
    model_ = GAPLESS_TRY(types_of(model_side_, options_.by_shape));
    for (const KernelPair& pair : GAPLESS_TRY(match_kernels(measured_.types, model_.types, map))) {
      add_pair(pair, alignment);
    }
    warn(alignment.warnings);
    return {};
  }

 private:
  void add_pair(const KernelPair& pair, Alignment& alignment) {
    AlignRow row;
    const std::string model_type = joined_names(model_, pair.second);
    row.type = pair.first.empty() ? model_type : joined_names(measured_, pair.first);
    if (!pair.second.empty() && model_type != row.type) row.model_type = model_type;
    TotalsByShape measured = joined(measured_, pair.first);
    TotalsByShape model = joined(model_, pair.second);
    const bool is_on_both = !pair.first.empty() && !pair.second.empty();
    row.is_composite =
        is_on_both && (are_different(measured_, pair.first) || are_different(model_, pair.second));
    row.has_counts = !row.is_composite && measured_side_.has_counts && model_side_.has_counts;
    if (row.is_composite) composites_.push_back(fmt::format("{} = {}", row.type, model_type));
    const bool lacks_shapes = is_on_both && has_shapes(measured) != has_shapes(model);
    if (lacks_shapes && !row.is_composite) ++shapeless_count_;
    if (row.is_composite || lacks_shapes) {
      measured = without_shapes(measured);
      model = without_shapes(model);
    }
    add_shapes(row, measured, model, alignment.rows);
  }

  void add_shapes(const AlignRow& base, const TotalsByShape& measured, const TotalsByShape& model,
                  std::vector<AlignRow>& rows) {
    std::set<std::string> shapes;
    for (const auto& [shape, totals] : measured) shapes.insert(shape);
    for (const auto& [shape, totals] : model) shapes.insert(shape);
    for (const std::string& shape : shapes) {
      AlignRow row = base;
      row.shape = shape;
      const auto of_measured = measured.find(shape);
      const auto of_model = model.find(shape);
      const Totals first = of_measured == measured.end() ? Totals() : of_measured->second;
      const Totals second = of_model == model.end() ? Totals() : of_model->second;
      row.measured_count = measured_side_.has_counts ? first.count : 0.0;
      row.measured_ns = first.ns;
      row.model_count = model_side_.has_counts ? second.count : 0.0;
      row.model_ns = second.ns;
      row.is_collective = 2.0 * (first.collective_ns + second.collective_ns) > first.ns + second.ns;
      if (of_model == model.end()) {
        row.status = AlignStatus::kMiss;
      } else if (of_measured == measured.end()) {
        row.status = AlignStatus::kExtra;
      } else {
        judge(row, options_);
      }
      rows.push_back(std::move(row));
    }
  }

  void warn(std::vector<std::string>& warnings) const {
    for (const std::string& composite : composites_)
      warnings.push_back(fmt::format(
          "{}: counts of different types are not comparable; judged by time alone", composite));
    for (const AlignSide* side : {&measured_side_, &model_side_}) {
      if (side->has_counts) continue;
      warnings.push_back(
          fmt::format("{} has no counts: every type is judged by time alone", side->source));
    }
    if (shapeless_count_ > 0)
      warnings.push_back(fmt::format(
          "{} shapes on one side only: compared as a whole",
          shapeless_count_ == 1 ? "1 type has" : fmt::format("{} types have", shapeless_count_)));
  }

  const AlignSide& measured_side_;
  const AlignSide& model_side_;
  const AlignOptions& options_;
  TypeList measured_;
  TypeList model_;
  std::vector<std::string> composites_;
  uint64_t shapeless_count_ = 0;
};

void add_to(AlignSum& sum, const AlignRow& row) {
  ++sum.row_count;
  sum.measured_ns += row.measured_ns;
  sum.model_ns += row.model_ns;
}

void add_up(Alignment& alignment, const AlignOptions& options) {
  AlignSum all;
  for (const AlignRow& row : alignment.rows) {
    add_to(all, row);
    add_to(alignment.by_status[static_cast<size_t>(row.status)], row);
    if (!row.is_collective) add_to(alignment.compute, row);
    if (row.status == AlignStatus::kHit || row.status == AlignStatus::kPartial)
      add_to(alignment.matched, row);
  }
  alignment.measured_ns = all.measured_ns;
  alignment.model_ns = all.model_ns;
  alignment.ratio = all.ratio();
  alignment.is_close = alignment.ratio >= options.low_ratio - kRounding &&
                       alignment.ratio <= options.high_ratio + kRounding;
  if (!(all.measured_ns > 0.0)) return;
  const auto share = [&](AlignStatus status) {
    return alignment.by_status[static_cast<size_t>(status)].measured_ns / all.measured_ns;
  };
  alignment.hit_share = share(AlignStatus::kHit);
  alignment.partial_share = share(AlignStatus::kPartial);
  alignment.miss_share = share(AlignStatus::kMiss);
  for (AlignRow& row : alignment.rows) {
    row.share = row.measured_ns / all.measured_ns;
    alignment.row_error += std::abs(row.difference_ns()) / all.measured_ns;
  }
}

bool is_before(const AlignRow& a, const AlignRow& b) {
  const double of_a = std::max(a.measured_ns, a.model_ns);
  const double of_b = std::max(b.measured_ns, b.model_ns);
  if (of_a != of_b) return of_a > of_b;
  return a.type != b.type ? a.type < b.type : a.shape < b.shape;
}

constexpr std::string_view kShapeSpace = "\"' \t\r\n";

bool is_missing_shape(std::string_view slot) {
  std::string lower;
  for (const char c : slot) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower.empty() || lower == "n/a" || lower == "na" || lower == "none" || lower == "null";
}

}  // namespace

std::string_view align_status_name(AlignStatus status) {
  constexpr std::string_view kNames[kAlignStatusCount] = {"HIT", "PARTIAL", "MISS", "EXTRA"};
  return kNames[static_cast<size_t>(status)];
}

std::string normalised_shapes(std::string_view text) {
  std::string result;
  std::string slot;
  const auto end_slot = [&] {
    while (slot.ends_with(',')) slot.pop_back();
    if (!is_missing_shape(slot)) result += (result.empty() ? "" : ";") + slot;
    slot.clear();
  };
  int depth = 0;
  for (const char c : text) {
    if (kShapeSpace.find(c) != std::string_view::npos) continue;
    if (c == '[' || c == '(') {
      if (depth++ > 0) end_slot();
    } else if (c == ']' || c == ')') {
      --depth;
      end_slot();
    } else if (c == ';') {
      end_slot();
    } else if (c == ',' || c == 'x' || c == '*') {
      if (!slot.empty()) slot += ',';
    } else {
      slot += c;
    }
  }
  end_slot();
  return result;
}

AlignSide align_side_of(const CaptureTable& table, std::span<const uint32_t> rows,
                        const CollectiveRows& collectives, bool by_shape) {
  AlignSide side;
  if (!table.sources.empty()) side.source = table.sources.front().path;
  NameTable shapes;
  shapes.intern("");
  std::unordered_map<uint32_t, uint32_t> shape_ids = {{kNoIndex, 0}};
  std::map<std::pair<uint32_t, uint64_t>, size_t> places;
  for (const uint32_t row : rows) {
    if (!collectives.counts(row)) {
      ++(collectives.counted_by[row] == kNoIndex ? side.wrapper_count : side.merged_count);
      continue;
    }
    const uint32_t type = table.type[row] != kNoIndex ? table.type[row] : table.name[row];
    uint32_t shape = 0;
    if (by_shape) {
      const auto [known, is_new] = shape_ids.emplace(table.input_shapes[row], 0);
      if (is_new) known->second = shapes.intern(normalised_shapes(table.names[known->first]));
      shape = known->second;
    }
    const bool is_collective =
        table.kind[row] == KernelKind::kCollective || table.kind[row] == KernelKind::kFragment;
    const uint64_t shape_and_kind = uint64_t{shape} * 2 + (is_collective ? 1 : 0);
    const auto [place, is_new] =
        places.emplace(std::pair(type, shape_and_kind), side.entries.size());
    if (is_new)
      side.entries.push_back(
          {.type = type == kNoIndex ? "(no name)" : std::string(table.names[type]),
           .shape = std::string(shapes[shape]),
           .is_collective = is_collective});
    AlignEntry& entry = side.entries[place->second];
    entry.count += 1.0;
    entry.total_ns += table.duration_ns[row];
  }
  return side;
}

Result<Alignment> align(const AlignSide& measured, const AlignSide& model,
                        const AlignOptions& options, const KernelMap& map) {
  Alignment alignment;
  RowMaker maker(measured, model, options);
  GAPLESS_TRY(maker.run(map, alignment));
  std::sort(alignment.rows.begin(), alignment.rows.end(), is_before);
  add_up(alignment, options);
  return alignment;
}

}  // namespace gapless
