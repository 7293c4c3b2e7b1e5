// SPDX-License-Identifier: Apache-2.0
//
// What Hugging Face transformers made of the small checkpoints in tests/data/qwen3, as plain
// vectors. tests/data/make_checkpoints.py says what each means.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/result.h"
#include "model/safetensors.h"

namespace gapless {

inline const std::vector<std::string>& golden_f32_names() {
  static const std::vector<std::string> names = {"f32-gqa5", "f32-gqa4-tied"};
  return names;
}
inline const std::vector<std::string>& golden_bf16_names() {
  static const std::vector<std::string> names = {"bf16-gqa5-tied", "bf16-gqa4"};
  return names;
}
// tests/data where it lay at build time, or where the environment variable of the same name says.
inline std::string test_data_folder() {
  const char* const variable = std::getenv("GAPLESS_TEST_DATA");  // NOLINT(concurrency-mt-unsafe)
  return variable != nullptr ? variable : GAPLESS_TEST_DATA;
}
inline std::string golden_folder(const std::string& name) {
  return test_data_folder() + "/qwen3/" + name;
}
// False where a test program was taken to another machine without the repository.
inline bool has_golden_data() { return is_directory(golden_folder("bf16-gqa4")); }
inline std::string no_golden_data() {
  return "NO CHECKPOINT WAS READ: " + test_data_folder() +
         "/qwen3 has none; GAPLESS_TEST_DATA names another tests/data";
}

struct GoldenPrompt {
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;  // the tokens that follow it
  std::vector<float> margin;    // of each of them over the next best
  std::vector<float> logits;    // [prompt][vocabulary], computed in the checkpoint's type
  std::vector<float> exact;     // [prompt][vocabulary], computed in f64
};

template <typename T>
std::vector<T> read_golden_tensor(const SafetensorsFile& file, const std::string& name,
                                  DType dtype) {
  const Result<const StoredTensor*> tensor = file.require(name);
  GAPLESS_CHECK(tensor.has_value());
  GAPLESS_CHECK((*tensor)->dtype == dtype);
  std::vector<T> values((*tensor)->bytes.size() / sizeof(T));
  std::memcpy(values.data(), (*tensor)->bytes.data(), values.size() * sizeof(T));
  return values;
}

inline std::vector<GoldenPrompt> read_golden(const std::string& name) {
  const Result<SafetensorsFile> file =
      SafetensorsFile::open(golden_folder(name) + "/golden.safetensors");
  GAPLESS_CHECK(file.has_value());
  std::vector<GoldenPrompt> prompts;
  for (int index = 0; file->find("prompt." + std::to_string(index)) != nullptr; ++index) {
    const std::string suffix = "." + std::to_string(index);
    prompts.push_back({
        .prompt = read_golden_tensor<int32_t>(*file, "prompt" + suffix, DType::kS32),
        .greedy = read_golden_tensor<int32_t>(*file, "greedy" + suffix, DType::kS32),
        .margin = read_golden_tensor<float>(*file, "margin" + suffix, DType::kF32),
        .logits = read_golden_tensor<float>(*file, "logits" + suffix, DType::kF32),
        .exact = read_golden_tensor<float>(*file, "exact" + suffix, DType::kF32),
    });
  }
  GAPLESS_CHECK(prompts.size() == 4);
  return prompts;
}

}  // namespace gapless
