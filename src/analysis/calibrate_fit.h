// SPDX-License-Identifier: Apache-2.0
//
// From samples to parameters: which of them stand for a parameter of the machine, and what is left
// to the base profile because several causes cannot be told apart. No profile is touched here.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/calibrate.h"
#include "analysis/calibrate_samples.h"

namespace gapless {

struct FittedValue {
  std::string_view key;
  int64_t value = 0;
  std::string note = {};
  Spread spread = {};
};

struct KeptValue {
  std::string_view key;
  std::string note;
  Spread spread = {};
};

struct ParameterFits {
  std::vector<FittedValue> values;
  std::vector<KeptValue> kept;     // with a reason of its own
  bool needs_poll_replay = false;  // no phases tell it
};

// All but the number of cores and threads.
ParameterFits fit_parameters(const CalibrationArgs& args, const CalibrationSamples& samples);

// The poll_ns with which a simulated step waits as long for its ends to be seen as was recorded, on
// average of some replays: a round of polls decides that, with whatever else is in a round. Error
// when the step cannot be simulated, or no value up to 100 us is enough.
struct PollReplay {
  const SimGraph& graph;  // its run times vary with the seed
  DeviceProfile profile;  // as far as it is fitted
  double mean_wait_ns = 0.0;
};
Result<int64_t> poll_by_replay(const PollReplay& replay);

}  // namespace gapless
