// SPDX-License-Identifier: Apache-2.0
//
// Decimal text to integers and back, without a double in between: traces hold times with 16 digits
// before the point and three after it.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gapless {

// "1730000000000000.123" with scale_digits = 3 is 1730000000000000123: the number times 10^scale,
// rounded half away from zero. Accepts a sign and an exponent. Nothing when the text is not a
// number or does not fit.
std::optional<int64_t> parse_decimal(std::string_view text, int scale_digits);

// Writes `value` as digits; returns one past the last. Needs up to 20 bytes.
char* write_integer(char* out, int64_t value);
char* write_unsigned(char* out, uint64_t value);
// Writes nanoseconds as microseconds with three decimals ("12.345"). Needs up to 24 bytes.
char* write_microseconds(char* out, int64_t nanoseconds);

}  // namespace gapless
