// SPDX-License-Identifier: Apache-2.0

#include "cli/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/quantity.h"

namespace gapless {
namespace {

constexpr std::chrono::milliseconds kDrawInterval(100);
constexpr std::string_view kEraseLine = "\r\x1b[K";

size_t terminal_width() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void write_to_terminal(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string eta_text(double seconds) {
  const long whole = std::lround(std::min(seconds, 1e6));
  if (whole < 60) return fmt::format("ETA {} s", whole);
  return fmt::format("ETA {} min {} s", whole / 60, whole % 60);
}

}  // namespace

std::string render_progress(const ProgressState& state) {
  constexpr size_t kBarCells = 24;
  const double done = static_cast<double>(state.done);
  std::string line(state.what);
  if (state.total > 0) {
    const double share = std::min(done / static_cast<double>(state.total), 1.0);
    const size_t cells = static_cast<size_t>(share * kBarCells);
    line += fmt::format("  [{}{}]  {:3.0f} %", std::string(cells, '#'),
                        std::string(kBarCells - cells, '-'), std::floor(share * 100));
  } else if (state.unit == ProgressUnit::kBytes) {
    line += fmt::format("  {}", format_bytes(state.done));
  }
  if (state.elapsed_s > 0 && state.done > 0) {
    const double rate = done / state.elapsed_s;
    if (state.unit == ProgressUnit::kBytes) line += fmt::format("  {:.1f} MB/s", rate * 1e-6);
    if (state.total > state.done) {
      line += "  " + eta_text(static_cast<double>(state.total - state.done) / rate);
    }
  }
  return line.substr(0, state.width > 0 ? state.width - 1 : 0);
}

ProgressBar::ProgressBar(std::string what, ProgressUnit unit)
    : what_(std::move(what)), unit_(unit) {}

Progress ProgressBar::callback() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  return [this](uint64_t done, uint64_t total) { update(done, total); };
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kDrawInterval;
  is_drawn_ = true;
  const std::string line =
      render_progress({.what = what_,
                       .unit = unit_,
                       .done = done,
                       .total = total,
                       .elapsed_s = std::chrono::duration<double>(now - begin_).count(),
                       .width = terminal_width()});
  write_to_terminal(std::string(kEraseLine) + line);
}

void ProgressBar::erase() {
  if (std::exchange(is_drawn_, false)) write_to_terminal(kEraseLine);
}

void StatusLine::show(std::string_view what) {
  if (::isatty(STDERR_FILENO) == 0) return;
  const bool was_drawn = std::exchange(is_drawn_, !what.empty());
  if (!was_drawn && !is_drawn_) return;
  const std::string line = render_progress({.what = what, .width = terminal_width()});
  write_to_terminal(std::string(kEraseLine) + line);
}

}  // namespace gapless
