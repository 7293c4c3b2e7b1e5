// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people read them. Three decimals of a time and one of a size: enough to compare, and
// the exact number is in the --json output.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gapless {

// "999 ns", "12.345 us", "1.500 ms", "62.000 s"; negative times keep their sign.
std::string format_duration(int64_t nanoseconds);
// "512 B", "1.5 KiB", "3.0 GiB".
std::string format_bytes(uint64_t bytes);
// "1 item", "2 items".
std::string counted(uint64_t count, std::string_view noun);
// "999", "12.3 k", "4.84 M": three digits that count.
std::string format_count(double count);
// 0.451 is "45.1 %"; below one percent two digits that count: "0.012 %".
std::string format_share(double share);
// "2026-11-15 08:46:19.123456789 UTC", from nanoseconds since 1970.
std::string format_utc(int64_t nanoseconds_since_1970);

}  // namespace gapless
