// SPDX-License-Identifier: Apache-2.0
//
// What the metadata chunks of a trace file say.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/chunk_reader.h"
#include "trace/trace.h"

namespace gapless {

// By the numbers used in the file. A later entry replaces an earlier one of the same number.
struct Metadata {
  std::map<uint32_t, std::string> names;
  std::map<uint32_t, Lane> lanes;
  std::map<uint32_t, Device> devices;
  TraceClock clock;
  std::vector<Property> properties;
  std::vector<Finding> findings;
  std::optional<EndBody> end;
};

// Entries with a wrong checksum are passed over; how many there were is added to `findings`.
Metadata read_metadata(const std::vector<FoundChunk>& chunks);

}  // namespace gapless
