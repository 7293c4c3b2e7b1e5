// SPDX-License-Identifier: Apache-2.0

#include "formats/database_rows.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "formats/ascend_kinds.h"

namespace gapless {

void IdIndex::add(int64_t id, uint32_t value) { entries_.push_back({id, value}); }

uint64_t IdIndex::finish() {
  const auto is_before = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  const auto is_same = [](const Entry& a, const Entry& b) { return a.id == b.id; };
  if (!std::is_sorted(entries_.begin(), entries_.end(), is_before)) {
    std::stable_sort(entries_.begin(), entries_.end(), is_before);
  }
  const auto end = std::unique(entries_.begin(), entries_.end(), is_same);
  const uint64_t repeated_count = static_cast<uint64_t>(entries_.end() - end);
  entries_.erase(end, entries_.end());
  return repeated_count;
}

uint32_t IdIndex::find(int64_t id) const {
  for (size_t i = last_; i < std::min(last_ + 2, entries_.size()); ++i) {
    if (entries_[i].id != id) continue;
    last_ = i;
    return entries_[i].value;
  }
  // Identifiers without gaps lie where they say.
  if (!entries_.empty() && id >= entries_.front().id) {
    const uint64_t place = static_cast<uint64_t>(id) - static_cast<uint64_t>(entries_.front().id);
    if (place < entries_.size() && entries_[place].id == id) {
      last_ = place;
      return entries_[place].value;
    }
  }
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), id,
                                      [](const Entry& a, int64_t b) { return a.id < b; });
  if (found == entries_.end() || found->id != id) return kNoIndex;
  last_ = static_cast<size_t>(found - entries_.begin());
  return found->value;
}

void TextIds::add(int64_t id, std::string_view text) {
  if (ends_.size() >= kNoIndex) return;
  index_.add(id, static_cast<uint32_t>(ends_.size()));
  bytes_ += text;
  ends_.push_back(bytes_.size());
  names_of_.push_back(kNoIndex);
}

std::string_view TextIds::text(int64_t id) const {
  const uint32_t entry = index_.find(id);
  if (entry == kNoIndex) return {};
  const size_t begin = entry == 0 ? 0 : ends_[entry - 1];
  return std::string_view(bytes_).substr(begin, ends_[entry] - begin);
}

uint32_t TextIds::intern(int64_t id) {
  const uint32_t entry = index_.find(id);
  if (entry == kNoIndex) return kNoIndex;
  if (names_of_[entry] == kNoIndex) names_of_[entry] = names_.intern(text(id));
  return names_of_[entry];
}

uint32_t TextIds::intern_cell(const Query& row, int column) {
  if (const std::optional<int64_t> id = row.integer(column)) {
    const uint32_t name = intern(*id);
    return name == kNoIndex || is_missing_cell(names_[name]) ? kNoIndex : name;
  }
  const std::string_view text = row.text(column);
  return is_missing_cell(text) ? kNoIndex : names_.intern(text);
}

DatabaseRows::DatabaseRows(const Database& database, CaptureTable& table,
                           const CaptureReadOptions& options)
    : database_(database), table_(table), options_(options), texts_(table.names) {
  KernelSource source;
  source.path = database.path();
  table.sources.push_back(std::move(source));
  for (const std::string& trouble : database.troubles()) {
    add_finding(Severity::kWarning, database.is_cut_short() ? "cut-short" : "damaged", 1, trouble);
  }
}

void DatabaseRows::scan(std::string_view table, const std::vector<ColumnNames>& columns,
                        const Visit& visit) {
  constexpr uint64_t kRowsPerCall = 1 << 16;
  latest_start_ns_.clear();
  if (!database_.has_table(table)) return;
  place_ = fmt::format("{} of {}", table, database_.path());
  record_ = 0;
  const auto damaged = [this, table](const Error& error) {
    is_damaged_ = true;
    add_finding(Severity::kWarning, database_.is_cut_short() ? "cut-short" : "damaged", 1,
                fmt::format("table {} was read up to row {}: {}", table, record_, error.message));
  };
  Result<Query> query = Query::scan(database_, table, columns);
  if (!query) return damaged(query.error());
  while (true) {
    const Result<bool> more = query->next();
    if (!more) return damaged(more.error());
    if (!*more) return;
    ++record_;
    if (options_.progress && ++scanned_count_ % kRowsPerCall == 0) {
      options_.progress(scanned_count_, 0);
    }
    visit(*query);
  }
}

void DatabaseRows::read_texts(std::string_view table) {
  scan(table, {{"id"}, {"value"}}, [this](const Query& row) {
    if (const std::optional<int64_t> id = row.integer(0)) texts_.add(*id, row.text(1));
  });
  texts_.finish();
}

bool DatabaseRows::set_times(const Query& row, int first, int64_t earliest_ns, KernelRow& kernel) {
  const auto dropped = [this](RowEvent event) {
    note(event);
    return false;
  };
  ++table_.sources.front().row_count;
  if (row.is_null(first)) return dropped(RowEvent::kNoStart);
  if (row.is_null(first + 1)) return dropped(RowEvent::kNoDuration);
  const std::optional<int64_t> start = row.integer(first);
  const std::optional<int64_t> end = row.integer(first + 1);
  if (!start || !end) return dropped(RowEvent::kNotANumber);
  // A kernel that was not timed is from zero to zero.
  if (*start < earliest_ns || (*start == 0 && *end == 0)) {
    return dropped(RowEvent::kStartNotPositive);
  }
  if (*end < *start) return dropped(RowEvent::kDurationNegative);
  if (*end > kMaxTimeNs) return dropped(RowEvent::kTimeOutOfRange);
  kernel.start_ns = *start;
  kernel.duration_ns = *end - *start;
  return true;
}

uint32_t DatabaseRows::number(const Query& row, int column) {
  constexpr int64_t kInvalid = 4294967295;
  if (row.is_null(column)) return kNoIndex;
  const std::optional<int64_t> value = row.integer(column);
  if (value && (*value == -1 || *value == kInvalid)) return kNoIndex;
  if (value && *value >= 0 && *value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<uint32_t>(*value);
  }
  note(RowEvent::kOddNumber);
  return kNoIndex;
}

void DatabaseRows::set_name(const Query& row, int column, KernelRow& kernel) {
  kernel.name = texts_.intern_cell(row, column);
  if (kernel.name == kNoIndex) set_no_name(kernel);
}

void DatabaseRows::set_no_name(KernelRow& kernel) {
  ++unnamed_count_;
  kernel.name = table_.names.intern("N/A");
}

uint32_t DatabaseRows::derived_type_of(uint32_t name) {
  if (is_missing_cell(table_.names[name])) return kNoIndex;
  if (name >= derived_types_.size()) derived_types_.resize(table_.names.size(), kNoIndex);
  uint32_t& type = derived_types_[name];
  if (type == kNoIndex) type = table_.names.intern(derived_kernel_type(table_.names[name]));
  ++table_.derived_type_count;
  note(RowEvent::kTypeDerived);
  return type;
}

void DatabaseRows::append(const KernelRow& kernel, uint32_t context) {
  const auto [latest, is_first] = latest_start_ns_.try_emplace(kernel.device, kernel.start_ns);
  if (!is_first && kernel.start_ns < latest->second) ++table_.order_break_count;
  latest->second = kernel.start_ns;
  table_.append(kernel);
  contexts_.push_back(context);
}

void DatabaseRows::count_other(std::string_view what) {
  ++table_.sources.front().row_count;
  ++other_count_;
  const auto entry = others_.find(what);
  if (entry != others_.end()) {
    ++entry->second;
  } else {
    others_.emplace(what, 1);
  }
}

void DatabaseRows::add_host(const Query& row, int64_t process, int64_t thread, uint32_t name,
                            std::string_view category) {
  const std::optional<int64_t> begin = row.integer(0);
  const std::optional<int64_t> end = row.integer(1);
  if (!begin || !end || *begin < 0 || *end < *begin || *end > kMaxTimeNs) {
    ++bad_host_count_;
    return;
  }
  HostSpan span;
  span.begin_ns = *begin;
  span.end_ns = *end;
  span.process = process;
  span.thread = thread;
  span.name = name == kNoIndex ? table_.names.intern("N/A") : name;
  span.category = table_.names.intern(category);
  table_.host.push_back(span);
}

void DatabaseRows::note(RowEvent event) { events_.count(event, place_, record_); }

void DatabaseRows::add_finding(Severity severity, std::string_view code, uint64_t count,
                               std::string text) {
  table_.findings.push_back({severity, std::string(code), std::move(text), kNoIndex, count});
}

void DatabaseRows::add_property(std::string_view key, std::string_view value) {
  const auto is_same = [key](const Property& property) { return property.key == key; };
  if (value.empty()) return;
  if (std::any_of(table_.properties.begin(), table_.properties.end(), is_same)) return;
  table_.properties.push_back({std::string(key), std::string(value)});
}

// Takes rows out of `rows` (in the order of device and start) that equal one before them. Only rows
// that start together can.
uint64_t DatabaseRows::drop_duplicates(std::vector<uint32_t>& rows) const {
  const auto key = [this](uint32_t row) {
    return std::make_tuple(table_.device[row], table_.start_ns[row], table_.duration_ns[row],
                           table_.name[row], table_.stream[row], table_.task[row], table_.kind[row],
                           contexts_[row]);
  };
  const auto starts_together = [this](uint32_t a, uint32_t b) {
    return table_.start_ns[a] == table_.start_ns[b] && table_.device[a] == table_.device[b];
  };
  size_t used = 0;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && starts_together(rows[begin], rows[end])) ++end;
    const auto first = rows.begin() + static_cast<ptrdiff_t>(begin);
    auto last = rows.begin() + static_cast<ptrdiff_t>(end);
    if (end - begin > 1) {
      std::stable_sort(first, last, [&key](uint32_t a, uint32_t b) { return key(a) < key(b); });
      last = std::unique(first, last, [&key](uint32_t a, uint32_t b) { return key(a) == key(b); });
      std::sort(first, last);  // rows are numbered as they came
    }
    std::copy(first, last, rows.begin() + static_cast<ptrdiff_t>(used));
    used += static_cast<size_t>(last - first);
    begin = end;
  }
  const uint64_t dropped_count = rows.size() - used;
  rows.resize(used);
  return dropped_count;
}

void DatabaseRows::report_order(uint64_t duplicate_count) {
  if (duplicate_count > 0) {
    add_finding(Severity::kWarning, "duplicate-rows", duplicate_count,
                fmt::format("{} rows equal another one in device, stream, task, start, duration "
                            "and name; dropped",
                            duplicate_count));
  }
  if (table_.order_break_count > 0) {
    add_finding(Severity::kInfo, "order-breaks", table_.order_break_count,
                fmt::format("{} rows start before the row of their device above them; all rows "
                            "were put in order",
                            table_.order_break_count));
  }
}

void DatabaseRows::report_others() {
  if (other_count_ > 0) {
    std::string list;
    for (const auto& [what, count] : others_) {
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, what);
    }
    add_finding(Severity::kInfo, "not-a-kernel", other_count_,
                fmt::format("{} tasks are no kernels and no copies: {}", other_count_, list));
  }
  if (unnamed_count_ > 0) {
    add_finding(Severity::kWarning, "no-names", unnamed_count_,
                fmt::format("{} rows have no name, or one that the table of texts does not have",
                            unnamed_count_));
  }
}

void DatabaseRows::report_launches() {
  leave_out_late_launches(table_);
  if (bad_host_count_ > 0) {
    add_finding(Severity::kWarning, "host-spans-dropped", bad_host_count_,
                fmt::format("{} calls or ranges of the host have no begin or no end, or end before "
                            "they begin; dropped",
                            bad_host_count_));
  }
}

Result<void> DatabaseRows::finish() {
  table_.dropped_count += events_.dropped_count() + other_count_;
  if (table_.size() == 0 && is_damaged_) {
    return fail(ErrorCode::kInvalidInput, "{}: no kernels could be read: {}", database_.path(),
                table_.findings.back().text);
  }
  if (table_.size() == 0 && events_.dropped_count() > 0) {
    const RowEvent reason = events_.main_reason();
    return fail(ErrorCode::kInvalidInput, "{}: none of the {} rows can be used: {} {}",
                database_.path(), table_.dropped_count, events_.count_of(reason),
                row_event_text(reason));
  }
  if (table_.size() == 0) {
    add_finding(Severity::kWarning, "no-rows", 1,
                fmt::format("{}: no kernels, {} other tasks", database_.path(), other_count_));
  }
  table_.types_derived = table_.derived_type_count > 0;
  std::vector<uint32_t> rows = rows_in_order(table_);
  const uint64_t duplicate_count = drop_duplicates(rows);
  table_.dropped_count += duplicate_count;
  if (duplicate_count > 0 || !std::is_sorted(rows.begin(), rows.end())) keep_rows(table_, rows);
  std::stable_sort(table_.host.begin(), table_.host.end(),
                   [](const HostSpan& a, const HostSpan& b) { return a.begin_ns < b.begin_ns; });
  report_order(duplicate_count);
  events_.report(table_);
  report_others();
  report_launches();
  return {};
}

}  // namespace gapless
