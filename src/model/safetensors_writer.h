// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsWriter: a *.safetensors file of any size, written from front to back.
//
// The header stands first, so names, types and shapes are given to create(); then the data follows
// in the same order, in pieces as they are made. The file is there completely after commit(), or
// not at all. The format allows no gaps, so data is aligned only when tensors with wide elements
// come first (or when sizes happen to fit): create() refuses an order that would break alignment.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/result.h"

namespace gapless {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorSpec> tensors,
                                          const std::map<std::string, std::string>& metadata = {});

  // The next bytes of tensor `name`, little-endian. Tensors come in the order given to create();
  // one is begun when those before it have all their bytes. Errors of the disk wait for commit().
  Result<void> append(std::string_view name, std::span<const std::byte> bytes);
  // Puts the file in place. Error when data is missing.
  Result<void> commit();

  uint64_t bytes_written() const { return file_.bytes_written(); }

 private:
  struct Pending {
    std::string name;
    int64_t bytes = 0;
  };
  SafetensorsWriter(std::string path, OutputFile file, std::vector<Pending> tensors);
  // Steps over tensors that have all their bytes, empty ones too.
  void skip_finished();

  std::string path_;
  OutputFile file_;
  std::vector<Pending> tensors_;
  size_t current_ = 0;
  int64_t current_bytes_ = 0;  // of the current tensor, written so far
};

}  // namespace gapless
