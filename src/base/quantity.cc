// SPDX-License-Identifier: Apache-2.0

#include "base/quantity.h"

#include <array>
#include <cmath>
#include <ctime>
#include <string_view>

#include <fmt/core.h>

namespace gapless {

std::string format_duration(int64_t nanoseconds) {
  const double magnitude = std::abs(static_cast<double>(nanoseconds));
  const std::string_view sign = nanoseconds < 0 ? "-" : "";
  if (magnitude < 1e3) return fmt::format("{} ns", nanoseconds);
  // The limits are where three decimals would round up to 1000 of the unit.
  if (magnitude < 999'999.5) return fmt::format("{}{:.3f} us", sign, magnitude * 1e-3);
  if (magnitude < 999'999'500) return fmt::format("{}{:.3f} ms", sign, magnitude * 1e-6);
  return fmt::format("{}{:.3f} s", sign, magnitude * 1e-9);
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string counted(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 4> kUnits = {"k", "M", "G", "T"};
  if (!(count >= 999.5)) return fmt::format("{:.0f}", count);
  double value = count / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string format_share(double share) {
  const double percent = share * 100;
  const double magnitude = std::abs(percent);
  if (magnitude == 0) return "0.0 %";
  if (magnitude >= 0.95) return fmt::format("{:.1f} %", percent);
  if (magnitude < 0.0001) return "<0.0001 %";
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(magnitude)));
  return fmt::format("{:.{}f} %", percent, decimals);
}

std::string format_utc(int64_t nanoseconds_since_1970) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  int64_t fraction = nanoseconds_since_1970 % kPerSecond;
  if (fraction < 0) fraction += kPerSecond;
  const time_t seconds = static_cast<time_t>((nanoseconds_since_1970 - fraction) / kPerSecond);
  std::tm parts = {};
  if (::gmtime_r(&seconds, &parts) == nullptr) return fmt::format("{} s", seconds);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     fraction);
}

}  // namespace gapless
