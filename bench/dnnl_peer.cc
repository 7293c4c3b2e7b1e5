// SPDX-License-Identifier: Apache-2.0

#include "bench/dnnl_peer.h"

#include <cstring>
#include <utility>

#include <dnnl.hpp>
#include <fmt/core.h>
#include <omp.h>

#include "base/check.h"
#include "base/half.h"
#include "base/huge_buffer.h"
#include "bench/measurement.h"

namespace gapless {
namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

constexpr size_t kPageBytes = 4096;

// Small whole numbers, whose sums are exact in every type: of x and of W by row and k.
int x_value(int64_t row, int64_t k) { return static_cast<int>((row * 5 + k * 3) % 4); }
int w_value(int64_t n, int64_t k) { return static_cast<int>((n * 7 + k) % 5) - 2; }

class Matmul final : public DnnlMatmul {
 public:
  static Result<std::unique_ptr<DnnlMatmul>> make(const DnnlMatmulArgs& args) {
    std::unique_ptr<Matmul> matmul(new Matmul(args));
    matmul->prepare();  // the library asks for the number of threads when it makes a primitive
    try {
      matmul->create_primitive();
    } catch (const dnnl::error& error) {
      return fail(ErrorCode::kSystem, "oneDNN: {} x {} x {} {}: {}", args.m, args.k, args.n,
                  dtype_name(args.weights), error.what());
    }
    GAPLESS_TRY(matmul->check_memory());
    matmul->fill_x();
    return std::unique_ptr<DnnlMatmul>(std::move(matmul));
  }

  std::string name() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{} {} {}", version->major, version->minor, version->patch,
                       args_.weights == DType::kS8 ? "u8s8" : "bf16",
                       primitive_description_.impl_info_str());
  }

  int64_t weight_bytes() const override {
    return static_cast<int64_t>(primitive_description_.weights_desc().get_size());
  }

  void prepare() override {
    const int count = static_cast<int>(args_.cores.size());
    omp_set_dynamic(0);
    omp_set_num_threads(count);
    const std::vector<int>& cores = args_.cores;
#pragma omp parallel num_threads(count)
    pin_thread(cores[static_cast<size_t>(omp_get_thread_num())]);
  }

  double run() override {
    take_memory();
    const int64_t begin_ns = wall_ns();
    primitive_.execute(stream_,
                       {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weights_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
    return static_cast<double>(wall_ns() - begin_ns);
  }

  int64_t count_errors() override {
    fill_x();
    fill_weights();
    run();
    int64_t error_count = 0;
    for (int64_t row = 0; row < args_.m; ++row) {
      for (int64_t n = 0; n < args_.n; ++n) error_count += is_right(row, n) ? 0 : 1;
    }
    return error_count;
  }

 private:
  explicit Matmul(const DnnlMatmulArgs& args)
      : args_(args),
        x_type_(args.weights == DType::kS8 ? Type::u8 : Type::bf16),
        w_type_(args.weights == DType::kS8 ? Type::s8 : Type::bf16),
        y_type_(args.weights == DType::kS8 ? Type::s32 : Type::f32),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {}

  void create_primitive() {
    const dnnl::memory::desc x({args_.m, args_.k}, x_type_, Tag::ab);
    const dnnl::memory::desc w({args_.k, args_.n}, w_type_, Tag::any);
    const dnnl::memory::desc y({args_.m, args_.n}, y_type_, Tag::ab);
    primitive_description_ =
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, w, y), dnnl::primitive_attr(), engine_);
    primitive_ = dnnl::matmul(primitive_description_);
    x_ = dnnl::memory(x, engine_);
    y_ = dnnl::memory(y, engine_);
    weights_ = dnnl::memory(primitive_description_.weights_desc(), engine_, nullptr);
  }

  Result<void> check_memory() const {
    if (stride() <= args_.memory->buffer.size()) return {};
    return fail(ErrorCode::kInvalidInput, "oneDNN: weights of {} bytes in {}", stride(),
                args_.memory->buffer.size());
  }

  size_t stride() const {
    return (static_cast<size_t>(weight_bytes()) + kPageBytes - 1) & ~(kPageBytes - 1);
  }

  void take_memory() {
    DnnlWeights& memory = *args_.memory;
    if (memory.next_offset + stride() > memory.buffer.size()) memory.next_offset = 0;
    weights_.set_data_handle(memory.buffer.data() + memory.next_offset);
    memory.next_offset += stride();
  }

  void fill_x() {
    for (int64_t row = 0; row < args_.m; ++row) {
      for (int64_t k = 0; k < args_.k; ++k) {
        const int value = x_value(row, k);
        const int64_t index = row * args_.k + k;
        if (args_.weights == DType::kS8) {
          static_cast<uint8_t*>(x_.get_data_handle())[index] = static_cast<uint8_t>(value);
        } else {
          static_cast<Bf16*>(x_.get_data_handle())[index] = to_bf16(static_cast<float>(value));
        }
      }
    }
  }

  void fill_weights() {
    const dnnl::memory::desc plain_description({args_.k, args_.n}, w_type_, Tag::ba);
    dnnl::memory plain(plain_description, engine_);
    for (int64_t n = 0; n < args_.n; ++n) {
      for (int64_t k = 0; k < args_.k; ++k) {
        const int value = w_value(n, k);
        const int64_t index = n * args_.k + k;
        if (args_.weights == DType::kS8) {
          static_cast<int8_t*>(plain.get_data_handle())[index] = static_cast<int8_t>(value);
        } else {
          static_cast<Bf16*>(plain.get_data_handle())[index] = to_bf16(static_cast<float>(value));
        }
      }
    }
    args_.memory->next_offset = 0;
    take_memory();
    dnnl::reorder(plain, weights_).execute(stream_, plain, weights_);
    stream_.wait();
    args_.memory->next_offset = 0;  // the next run takes just these
  }

  bool is_right(int64_t row, int64_t n) const {
    int64_t expected = 0;
    for (int64_t k = 0; k < args_.k; ++k) expected += x_value(row, k) * w_value(n, k);
    const int64_t index = row * args_.n + n;
    if (args_.weights == DType::kS8) {
      return static_cast<const int32_t*>(y_.get_data_handle())[index] == expected;
    }
    return static_cast<const float*>(y_.get_data_handle())[index] == static_cast<float>(expected);
  }

  DnnlMatmulArgs args_;
  Type x_type_;
  Type w_type_;
  Type y_type_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc primitive_description_;
  dnnl::matmul primitive_;
  dnnl::memory x_;
  dnnl::memory y_;
  dnnl::memory weights_;
};

}  // namespace

Result<DnnlWeights> make_dnnl_weights(size_t bytes) {
  DnnlWeights weights = {GAPLESS_TRY(HugeBuffer::allocate(bytes)), 0};
  // Ones of bf16: arbitrary bytes could be denormal, which is slow. As s8 any bytes will do.
  const Bf16 one = to_bf16(1.0f);
  for (size_t i = 0; i + sizeof(one) <= bytes; i += sizeof(one)) {
    std::memcpy(weights.buffer.data() + i, &one, sizeof(one));
  }
  return weights;
}

Result<std::unique_ptr<DnnlMatmul>> make_dnnl_matmul(const DnnlMatmulArgs& args) {
  GAPLESS_CHECK(!args.cores.empty());
  GAPLESS_CHECK(args.memory != nullptr);
  return Matmul::make(args);
}

}  // namespace gapless
