// SPDX-License-Identifier: Apache-2.0
//
// A profile as one screen of text, and as JSON with everything in it.

#pragma once

#include <string>

#include "profile/profile.h"

namespace gapless {

// What the figures are of.
struct ProfileSubject {
  std::string model;  // "qwen3-14b, synthetic weights (seed 1)"
  std::string dtype;  // "a8w8"
  std::string kv_dtype;
  std::string device = "cpu";  // or "cuda"
  std::string machine;         // "AMD EPYC", "NVIDIA H200"
  std::string level = {};      // of the CPU
  int core_count = 1;          // or SMs
  int model_layers = 0;        // that the whole model has
  int page_tokens = 0;
  Fusions fusions;
  std::vector<int32_t> lengths;
  std::string trace_path;     // empty: none
  std::string perfetto_path;  // empty: none
};

std::string profile_text(const ProfileSubject& subject, const ProfileResult& result);
std::string profile_json(const ProfileSubject& subject, const ProfileResult& result);

}  // namespace gapless
