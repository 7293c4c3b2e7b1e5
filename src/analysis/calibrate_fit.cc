// SPDX-License-Identifier: Apache-2.0

#include "analysis/calibrate_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"

namespace gapless {
namespace {

constexpr size_t kMostUnknowns = 3;

// y = sum of x[i] times the i-th unknown, by least squares; nothing when they cannot be told apart.
struct Equation {
  std::array<double, kMostUnknowns> x = {};
  double y = 0.0;
  double weight = 1.0;
};

std::optional<std::array<double, kMostUnknowns>> least_squares(
    const std::vector<Equation>& equations, size_t unknowns) {
  std::array<std::array<double, kMostUnknowns + 1>, kMostUnknowns> rows = {};
  for (const Equation& one : equations) {
    for (size_t i = 0; i < unknowns; ++i) {
      for (size_t j = 0; j < unknowns; ++j) rows[i][j] += one.weight * one.x[i] * one.x[j];
      rows[i][kMostUnknowns] += one.weight * one.x[i] * one.y;
    }
  }
  for (size_t i = 0; i < unknowns; ++i) {
    const double scale = rows[i][i];
    for (size_t before = 0; before < i; ++before) {
      const double factor = rows[i][before];
      for (size_t j = 0; j <= kMostUnknowns; ++j) rows[i][j] -= factor * rows[before][j];
    }
    // What is left of a column when those before it are taken out.
    if (!(rows[i][i] > 1e-9 * scale)) return std::nullopt;
    const double pivot = rows[i][i];
    for (double& value : rows[i]) value /= pivot;
  }
  std::array<double, kMostUnknowns> found = {};
  for (size_t i = unknowns; i-- > 0;) {
    found[i] = rows[i][kMostUnknowns];
    for (size_t j = i + 1; j < unknowns; ++j) found[i] -= rows[i][j] * found[j];
  }
  return found;
}

class Fitter {
 public:
  Fitter(const CalibrationArgs& args, const CalibrationSamples& samples)
      : base_(args.base), samples_(samples), tick_ns_(samples.tick_ns) {}

  ParameterFits fit() {
    fit_tick();
    fit_handoff();
    fit_slots();
    fit_submit();
    fit_polls();
    fit_completion();
    fit_dispatch();
    fit_loop();
    return std::move(fits_);
  }

 private:
  void set(std::string_view key, int64_t value, std::string note, const Spread& spread = {}) {
    fits_.values.push_back({key, value, std::move(note), spread});
  }
  void keep(std::string_view key, std::string note, const Spread& spread = {}) {
    fits_.kept.push_back({key, std::move(note), spread});
  }
  void keep_few(std::string_view key, uint64_t count, std::string_view what) {
    keep(key, count == 0 ? fmt::format("no {}", what) : fmt::format("only {} of: {}", count, what));
  }

  void set_middle(std::string_view key, const Samples& samples, std::string_view what) {
    if (!samples.has_enough()) return keep_few(key, samples.count(), what);
    set(key, samples.middle(tick_ns_), fmt::format("median of {}: {}", samples.count(), what),
        samples.spread());
  }

  void fit_tick() {
    uint64_t run_count = 0;
    for (const auto& [name, runs] : samples_.kernels) run_count += runs.count();
    if (run_count < kFewestSamples || tick_ns_ == 0) {
      return keep_few("clock.tick_ns", run_count, "runs, whose times could share a divisor");
    }
    if (tick_ns_ == 1) return set("clock.tick_ns", 0, "times share no divisor");
    set("clock.tick_ns", tick_ns_, "greatest common divisor of all times");
  }

  void fit_handoff() {
    set_middle("core.propagation_ns", samples_.propagation, "receive - dispatch on an idle core");
    set_middle("core.first_setup_ns", samples_.first_setup,
               "start - receive of a core's first task");
    set_middle("core.switch_ns", samples_.switches,
               "start - the end before it, of tasks that waited on the core");
    if (samples_.setup.count() > 0 || !samples_.handoff.has_enough()) {
      return set_middle("core.setup_ns", samples_.setup, "start - receive on an idle core");
    }
    set("core.setup_ns", samples_.handoff.middle(tick_ns_) - base_.propagation_ns,
        fmt::format("median of {}: start - dispatch on an idle core, less propagation_ns",
                    samples_.handoff.count()),
        samples_.handoff.spread());
  }

  void fit_slots() {
    const std::string_view pending = "core.has_pending_slot";
    if (samples_.pending_count > 0) {
      set(pending, 1,
          fmt::format("{} of {} tasks were dispatched before the end before them",
                      samples_.pending_count, samples_.dispatched_count));
    } else if (samples_.held_back_count >= kFewestSamples) {
      set(pending, 0,
          fmt::format("{} tasks were ready before the one before them started, and none was "
                      "dispatched before that ended",
                      samples_.held_back_count));
    } else {
      keep(pending, samples_.dispatched_count == 0
                        ? "no dispatch of a task that follows another on its core"
                        : fmt::format("of {} tasks none had a reason to wait on a core",
                                      samples_.dispatched_count));
    }
    const std::string_view early = "scheduler.has_early_dispatch";
    if (samples_.early_count > 0) {
      set(early, 1,
          fmt::format("{} tasks were dispatched before they were ready", samples_.early_count));
    } else {
      keep(early, "no task was dispatched before it was ready, which has other reasons too");
    }
  }

  // Gaps that reach the greatest depth are those of a full window, when they are longer.
  std::optional<int64_t> full_window() const {
    int64_t deepest = 0;
    Samples gaps;
    for (const SubmitSample& one : samples_.submits) {
      deepest = std::max(deepest, one.depth);
      gaps.add(one.gap_ns);
    }
    if (deepest < 2) return std::nullopt;
    Samples full_gaps;
    Samples other_gaps;
    for (const SubmitSample& one : samples_.submits) {
      (one.depth == deepest ? full_gaps : other_gaps).add(one.gap_ns);
    }
    const bool is_full = full_gaps.has_enough() && other_gaps.has_enough() &&
                         full_gaps.spread().lower > other_gaps.spread().upper;
    return is_full ? std::optional<int64_t>(deepest) : std::nullopt;
  }

  void fit_submit() {
    const std::optional<int64_t> window = full_window();
    std::map<int64_t, Samples> gaps;  // by the number of producers
    Samples all;
    for (const SubmitSample& one : samples_.submits) {
      if (window && one.depth == *window) continue;
      gaps[one.producer_count].add(one.gap_ns);
      all.add(one.gap_ns);
    }
    if (window) {
      const auto full = static_cast<int64_t>(samples_.submits.size() - all.count());
      set("orchestrator.task_window", *window,
          fmt::format("{} submits waited with so many tasks from the oldest that was not complete",
                      full));
    } else {
      keep("orchestrator.task_window",
           samples_.submits.empty() ? "submits are not recorded" : "was never seen to be full");
    }
    if (!all.has_enough()) {
      keep_few("orchestrator.submit_ns", all.count(), "gaps between two submits");
      return keep_few("orchestrator.edge_ns", all.count(), "gaps between two submits");
    }
    if (!fit_submit_edges(gaps, all)) set_submit(gaps, all);
  }

  // Whether the number of producers can be told to cost something.
  bool fit_submit_edges(const std::map<int64_t, Samples>& gaps, const Samples& all) {
    std::vector<Equation> equations;
    for (const auto& [producers, samples] : gaps) {
      if (!samples.has_enough()) continue;
      equations.push_back({.x = {1.0, static_cast<double>(producers)},
                           .y = static_cast<double>(samples.middle(tick_ns_)),
                           .weight = static_cast<double>(samples.count())});
    }
    const auto found = least_squares(equations, 2);
    if (!found || (*found)[0] < 0.0) return false;
    // The clock's ticks can go with the number of producers: what they add up to is no cost.
    const double reach = equations.back().x[1] - equations.front().x[1];
    if ((*found)[1] * reach <= static_cast<double>(std::max(tick_ns_, int64_t{1}))) return false;
    const std::string note = fmt::format("{} gaps between two submits, by {} numbers of producers",
                                         all.count(), equations.size());
    set("orchestrator.submit_ns", std::llround((*found)[0]), "line through medians of " + note,
        all.spread());
    set("orchestrator.edge_ns", std::llround((*found)[1]), "slope of medians of " + note,
        all.spread());
    return true;
  }

  // Where producers vary and cost nothing that can be seen, an edge is free. Numbers of producers
  // that hardly a task has say nothing.
  void set_submit(const std::map<int64_t, Samples>& gaps, const Samples& all) {
    auto most = gaps.begin();
    size_t known_count = 0;
    for (auto one = gaps.begin(); one != gaps.end(); ++one) {
      if (one->second.has_enough()) ++known_count;
      if (one->second.count() > most->second.count()) most = one;
    }
    const bool has_several = known_count > 1;
    const Samples& used = has_several ? all : most->second;
    const int64_t edges_ns = has_several ? 0 : most->first * base_.submit_edge_ns;
    if (!used.has_enough()) {
      keep_few("orchestrator.submit_ns", used.count(), "gaps with the same number of producers");
      return keep_few("orchestrator.edge_ns", used.count(),
                      "gaps with the same number of producers");
    }
    set("orchestrator.submit_ns", used.middle(tick_ns_) - edges_ns,
        fmt::format("median of {}: gaps between two submits{}", used.count(),
                    edges_ns == 0 ? "" : ", less edge_ns of their producers"),
        used.spread());
    if (has_several) {
      return set("orchestrator.edge_ns", 0, "gaps between submits do not grow with the producers",
                 used.spread());
    }
    const std::string producers = counted(static_cast<uint64_t>(most->first), "producer");
    keep("orchestrator.edge_ns",
         gaps.size() == 1
             ? fmt::format("every task has {}", producers)
             : fmt::format("only tasks with {} are as many as {}", producers, kFewestSamples),
         used.spread());
  }

  void fit_polls() {
    const std::string_view what = "finish less end, or less the start that shows it";
    if (samples_.wait.has_enough()) {
      const Spread spread = samples_.wait.spread();
      const std::string odd =
          samples_.early_finish_count == 0
              ? std::string()
              : fmt::format("; {} finishes lie before it", samples_.early_finish_count);
      set("scheduler.notice_ns", spread.least,
          fmt::format("least of {}: {}{}", spread.count, what, odd), spread);
    } else {
      keep_few("scheduler.notice_ns", samples_.wait.count(), what);
    }
    if (samples_.poll.has_enough()) {
      return set_middle("scheduler.poll_ns", samples_.poll,
                        "finish - begin of the complete phase, one poll before it");
    }
    fits_.needs_poll_replay = !fit_sweeps();
  }

  // A complete phase is a poll of each running core, and what was done about the ends that it saw.
  bool fit_sweeps() {
    constexpr size_t kFewestSweeps = 30;
    if (samples_.sweeps.size() < kFewestSweeps) return false;
    std::vector<Equation> equations;
    Samples spans;
    bool has_edges = false;
    for (const SweepSample& one : samples_.sweeps) {
      equations.push_back(
          {.x = {static_cast<double>(one.poll_count), static_cast<double>(one.end_count),
                 static_cast<double>(one.edge_count)},
           .y = static_cast<double>(one.span_ns)});
      spans.add(one.span_ns);
      has_edges = has_edges || one.edge_count > 0;
    }
    const auto found = least_squares(equations, has_edges ? 3 : 2);
    const bool is_possible =
        found && (*found)[0] >= 0.0 && (*found)[1] >= 0.0 && (*found)[2] >= 0.0;
    if (!is_possible) return false;
    const std::string note = fmt::format(
        "least squares over {} complete phases: polls of running cores, ends, consumers",
        spans.count());
    set("scheduler.poll_ns", std::llround((*found)[0]), note, spans.spread());
    set("scheduler.complete_ns", std::llround((*found)[1]), note, spans.spread());
    if (has_edges) set("scheduler.resolve_ns", std::llround((*found)[2]), note, spans.spread());
    are_sweeps_fitted_ = true;
    return true;
  }

  // Of phases that do not hold as many times as they say nothing is taken.
  std::string odd_phases() const {
    if (samples_.odd_phase_count == 0) return "";
    return fmt::format(
        "; {} of {} phases left out, which hold other numbers of times than they say",
        samples_.odd_phase_count, samples_.phase_count);
  }

  void fit_completion() {
    if (are_sweeps_fitted_) return;
    const std::string_view complete = "scheduler.complete_ns";
    const std::string_view resolve = "scheduler.resolve_ns";
    const int64_t poll_ns = samples_.poll.has_enough() ? samples_.poll.middle(tick_ns_) : 0;
    Samples alone;  // ends that nobody waited for
    for (const HitSample& hit : samples_.hits) {
      const int64_t cost_ns = hit.cost_ns - (hit.is_followed ? poll_ns : 0);
      if (hit.edge_count == 0) alone.add(cost_ns / hit.end_count);
    }
    if (!alone.has_enough()) {
      const std::string_view what = "complete phases of ends without consumers";
      keep_few(complete, alone.count(), what);
      return keep_few(resolve, alone.count(), what);
    }
    const int64_t complete_ns = alone.middle(tick_ns_);
    set_middle(complete, alone, "an end in a complete phase, without consumers" + odd_phases());
    Samples edges;
    for (const HitSample& hit : samples_.hits) {
      if (hit.edge_count == 0) continue;
      const int64_t cost_ns = hit.cost_ns - (hit.is_followed ? poll_ns : 0);
      edges.add((cost_ns - hit.end_count * complete_ns) / hit.edge_count);
    }
    set_middle(resolve, edges, "a consumer of an end in a complete phase, beside complete_ns");
  }

  // A dispatch is recorded after payload and store, so only their sum is known.
  void fit_dispatch() {
    const std::string_view what = "first dispatch of a task - begin of it in a dispatch phase";
    if (!samples_.first_dispatch.has_enough()) {
      keep_few("scheduler.pop_ns", samples_.first_dispatch.count(), what);
      return keep_few("scheduler.payload_ns", samples_.first_dispatch.count(), what);
    }
    const int64_t first_ns = samples_.first_dispatch.middle(tick_ns_);
    const Spread spread = samples_.first_dispatch.spread();
    if (!samples_.next_dispatch.has_enough()) {
      keep_few("scheduler.pop_ns", samples_.next_dispatch.count(),
               "tasks that were dispatched to several cores");
      return set("scheduler.payload_ns", first_ns - base_.pop_ns - base_.store_ns,
                 fmt::format("median of {}: {}, less pop_ns and store_ns", spread.count, what),
                 spread);
    }
    const int64_t next_ns = samples_.next_dispatch.middle(tick_ns_);
    set("scheduler.pop_ns", first_ns - next_ns,
        fmt::format("median of {}: {}, less that of the next{}", spread.count, what, odd_phases()),
        spread);
    const Spread next_spread = samples_.next_dispatch.spread();
    const std::string note =
        fmt::format("median of {}: from one dispatch of a task to the next", next_spread.count);
    if (next_ns < base_.store_ns) {
      set("scheduler.store_ns", next_ns, note, next_spread);
      return set("scheduler.payload_ns", 0, note + ", less store_ns", next_spread);
    }
    set("scheduler.payload_ns", next_ns - base_.store_ns, note + ", less store_ns", next_spread);
  }

  void fit_loop() {
    const std::string_view key = "scheduler.loop_ns";
    const std::string_view what = "begin of a complete phase - end of the dispatch phase before it";
    const Samples& samples = samples_.loop;
    if (!samples_.has_poll_spans) return set_middle(key, samples, what);
    if (!samples.has_enough()) return keep_few(key, samples.count(), what);
    const Spread spread = samples.spread();
    set(key, spread.least, fmt::format("least of {}: {}", spread.count, what), spread);
  }

  const DeviceProfile& base_;
  const CalibrationSamples& samples_;
  int64_t tick_ns_ = 0;
  ParameterFits fits_;
  bool are_sweeps_fitted_ = false;
};

}  // namespace

ParameterFits fit_parameters(const CalibrationArgs& args, const CalibrationSamples& samples) {
  return Fitter(args, samples).fit();
}

}  // namespace gapless
