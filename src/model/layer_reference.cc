// SPDX-License-Identifier: Apache-2.0

#include "model/layer_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "kernels/attention_reference.h"
#include "kernels/elementwise_reference.h"
#include "kernels/matmul_reference.h"
#include "kernels/norm_reference.h"

namespace gapless {
namespace {

constexpr int kS8Bias = 128;  // packed_matrix.h
// Rows of x that go over a row of the weights together, each with its own sum.
constexpr int kRowsTogether = 8;

// Runs work(begin, end) for parts of [0, count), each on a thread of its own.
void run_in_parts(int thread_count, int64_t count,
                  const std::function<void(int64_t, int64_t)>& work) {
  const int64_t part_count = std::clamp<int64_t>(thread_count, 1, std::max<int64_t>(count, 1));
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < part_count; ++part) {
    threads.emplace_back(work, count * part / part_count, count * (part + 1) / part_count);
  }
  work(0, count / part_count);
  for (std::thread& thread : threads) thread.join();
}

// Elements [0, k) of one row of a panel; `row` is the row's first element. kTogether of them lie
// side by side, the next ones behind those of the panel's other rows.
template <int kTogether, typename Element, typename ToDouble>
void unpack_row(const std::byte* row, int64_t k, double* values, ToDouble to_double) {
  const Element* elements = reinterpret_cast<const Element*>(row);
  for (int64_t i = 0; i < k; i += kTogether, elements += kTogether * kPanelRows) {
    const int64_t count = std::min<int64_t>(kTogether, k - i);
    for (int64_t j = 0; j < count; ++j) values[i + j] = to_double(elements[j]);
  }
}

// What goes into a projection. Each row's values are of the weights' type, or integers for s8.
struct Operand {
  int64_t row_count = 0;
  int64_t k = 0;
  std::vector<double> values;  // [rows / kRowsTogether][k][kRowsTogether], zeros behind the last
  std::vector<double> scales;  // [rows]: the quantisation's, times the 1 / rms that was deferred
};

Operand make_operand(DType weights, std::span<const float> rows, int64_t k) {
  GAPLESS_CHECK(k > 0);
  Operand operand;
  operand.row_count = static_cast<int64_t>(rows.size()) / k;
  operand.k = k;
  const int64_t group_count = (operand.row_count + kRowsTogether - 1) / kRowsTogether;
  operand.values.assign(static_cast<size_t>(group_count * k * kRowsTogether), 0.0);
  for (int64_t row = 0; row < operand.row_count; ++row) {
    const std::span<const float> from =
        rows.subspan(static_cast<size_t>(row * k), static_cast<size_t>(k));
    double* const to =
        operand.values.data() + row / kRowsTogether * k * kRowsTogether + row % kRowsTogether;
    const bool is_s8 = weights == DType::kS8;
    const QuantizedRow quantized = is_s8 ? quantize_row_reference(from) : QuantizedRow{};
    for (size_t i = 0; i < from.size(); ++i) {
      to[i * kRowsTogether] = is_s8 ? static_cast<double>(quantized.values[i])
                                    : static_cast<double>(cast_through(weights, from[i]));
    }
    operand.scales.push_back(is_s8 ? static_cast<double>(quantized.scale) : 1.0);
  }
  return operand;
}

// RMS norm on the way into a projection. Deferred: x * gamma is what is cast.
Operand make_normed_operand(DType weights, std::span<const float> x, std::span<const float> gamma,
                            float eps, bool deferred) {
  const size_t k = gamma.size();
  std::vector<float> rows;
  std::vector<double> factors;
  for (size_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    if (deferred) {
      for (size_t i = 0; i < k; ++i) rows.push_back(row[i] * gamma[i]);
      factors.push_back(inverse_rms_reference(row, eps));
    } else {
      for (const double value : rms_norm_reference(row, gamma, eps)) {
        rows.push_back(static_cast<float>(value));
      }
      factors.push_back(1.0);
    }
  }
  Operand operand = make_operand(weights, rows, static_cast<int64_t>(k));
  for (size_t row = 0; row < factors.size(); ++row) operand.scales[row] *= factors[row];
  return operand;
}

// Sums of products of one weight row with the rows of x. Each row has one sum, from the first k to
// the last; for s8 all of them are integers below 2^53 and exact.
void multiply_row(const Operand& operand, const double* weights, double* sums) {
  const int64_t group_count = (operand.row_count + kRowsTogether - 1) / kRowsTogether;
  for (int64_t group = 0; group < group_count; ++group) {
    const double* x = operand.values.data() + group * operand.k * kRowsTogether;
    double group_sums[kRowsTogether] = {};
    for (int64_t i = 0; i < operand.k; ++i, x += kRowsTogether) {
#pragma GCC unroll 8  // the sums stay in registers: three times the speed
      for (int row = 0; row < kRowsTogether; ++row) group_sums[row] += weights[i] * x[row];
    }
    std::copy(group_sums, group_sums + kRowsTogether, sums + group * kRowsTogether);
  }
}

// y = x W^T: [rows][n].
std::vector<double> project(const Operand& operand, const PackedMatrix& weights, int which,
                            int thread_count) {
  GAPLESS_CHECK(weights.k() == operand.k);
  const int64_t n = weights.n();
  std::vector<double> y(static_cast<size_t>(operand.row_count * n));
  run_in_parts(thread_count, n, [&](int64_t begin, int64_t end) {
    std::vector<double> values(static_cast<size_t>(operand.k));
    std::vector<double> sums(static_cast<size_t>(operand.row_count + kRowsTogether));
    for (int64_t column = begin; column < end; ++column) {
      const double scale =
          static_cast<double>(read_packed_row(weights, column, which, values.data()));
      multiply_row(operand, values.data(), sums.data());
      for (int64_t row = 0; row < operand.row_count; ++row) {
        const size_t at = static_cast<size_t>(row);
        y[static_cast<size_t>(row * n + column)] = sums[at] * scale * operand.scales[at];
      }
    }
  });
  return y;
}

std::vector<float> rounded(std::span<const double> values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

std::vector<double> sum_of(std::span<const float> x, std::span<const double> delta) {
  GAPLESS_CHECK(x.size() == delta.size());
  std::vector<double> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(x[i]) + delta[i];
  return y;
}

// NeoX rotary position embedding with its angles from the formula: cos and sin are f32.
TurnHead neox_rope(double theta) {
  return [theta](const HeadPlace& place, std::span<const double> head) {
    const size_t half = head.size() / 2;
    std::vector<float> cos(half);
    std::vector<float> sin(half);
    for (size_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head.size());
      const double angle = place.position * std::pow(theta, exponent);
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
    return rope_reference(head, cos, sin);
  };
}

// The norm of each head, then its turn; in place. [rows][head_count][head_dim]
void norm_and_turn(const LayerReferenceArgs& args, bool is_key, std::vector<float>& heads) {
  const int head_count = is_key ? args.config->kv_heads : args.config->q_heads;
  const int head_dim = args.config->head_dim;
  const TurnHead turn_head = args.turn_head ? args.turn_head : neox_rope(args.config->rope_theta);
  const HeadNorm norm = {
      .head_count = 1,
      .head_dim = head_dim,
      .stride = head_dim,
      .gamma = is_key ? args.weights->k_norm.data() : args.weights->q_norm.data(),
      .eps = static_cast<float>(args.config->rms_eps),
  };
  float* at = heads.data();
  for (const int32_t length : args.lengths) {
    for (int head = 0; head < head_count; ++head, at += head_dim) {
      const HeadPlace place = {.is_key = is_key, .head = head, .position = length - 1};
      const std::vector<double> turned = turn_head(place, norm_heads_reference(norm, at));
      GAPLESS_CHECK(std::ssize(turned) == head_dim);
      std::transform(turned.begin(), turned.end(), at,
                     [](double value) { return static_cast<float>(value); });
    }
  }
}

void store_rows(const LayerReferenceArgs& args, const float* keys, const float* values) {
  for (int row = 0; row < static_cast<int>(args.lengths.size()); ++row) {
    for (int head = 0; head < args.config->kv_heads; ++head) {
      args.cache->store(args.layer, row, head, keys, values);
      keys += args.config->head_dim;
      values += args.config->head_dim;
    }
  }
}

// One row's query heads of one kv head.
void attend(const LayerReferenceArgs& args, int row, int kv_head, const float* q, float* output) {
  const int32_t length = args.lengths[static_cast<size_t>(row)];
  const int head_dim = args.config->head_dim;
  const int group_heads = args.config->q_heads / args.config->kv_heads;
  std::vector<float> keys(static_cast<size_t>(int64_t{length} * head_dim));
  std::vector<float> values(keys.size());
  args.cache->load(args.layer, row, kv_head, keys.data(), values.data());
  std::vector<double> attended(static_cast<size_t>(group_heads * head_dim));
  attention_reference({
      .kv_dtype = args.kv_dtype,
      .group_heads = group_heads,
      .head_dim = head_dim,
      .length = length,
      .chunk_tokens = args.chunk_tokens,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
      .q = q,
      .keys = keys.data(),
      .values = values.data(),
      .output = attended.data(),
  });
  for (size_t i = 0; i < attended.size(); ++i) output[i] = static_cast<float>(attended[i]);
}

// From x to what goes into out_proj: [rows][q_heads][head_dim].
std::vector<float> attention_of(const LayerReferenceArgs& args, std::span<const float> x) {
  const LayerWeights& weights = *args.weights;
  const Operand operand =
      make_normed_operand(weights.q.dtype(), x, weights.input_norm,
                          static_cast<float>(args.config->rms_eps), args.deferred_norm);
  std::vector<float> q = rounded(project(operand, weights.q, 0, args.thread_count));
  std::vector<float> k = rounded(project(operand, weights.k, 0, args.thread_count));
  const std::vector<float> v = rounded(project(operand, weights.v, 0, args.thread_count));
  norm_and_turn(args, false, q);
  norm_and_turn(args, true, k);
  store_rows(args, k.data(), v.data());

  std::vector<float> output(q.size());
  const int kv_heads = args.config->kv_heads;
  const int64_t group_floats = int64_t{args.config->q_heads} / kv_heads * args.config->head_dim;
  const int64_t item_count = std::ssize(args.lengths) * kv_heads;
  run_in_parts(args.thread_count, item_count, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      attend(args, static_cast<int>(item / kv_heads), static_cast<int>(item % kv_heads),
             q.data() + item * group_floats, output.data() + item * group_floats);
    }
  });
  return output;
}

// From h1 to what goes into down_proj: [rows][intermediate].
std::vector<float> mlp_of(const LayerReferenceArgs& args, std::span<const float> h1) {
  const LayerWeights& weights = *args.weights;
  const bool is_dual = weights.gate_up.n() > 0;
  const PackedMatrix& gate_weights = is_dual ? weights.gate_up : weights.gate;
  const PackedMatrix& up_weights = is_dual ? weights.gate_up : weights.up;
  const Operand operand =
      make_normed_operand(gate_weights.dtype(), h1, weights.post_norm,
                          static_cast<float>(args.config->rms_eps), args.deferred_norm);
  const std::vector<float> gate = rounded(project(operand, gate_weights, 0, args.thread_count));
  const std::vector<float> up =
      rounded(project(operand, up_weights, is_dual ? 1 : 0, args.thread_count));
  return rounded(silu_multiply_reference(gate, up, 1.0f));
}

// The s8 cache's cast of a key or a value: kv_cache.h.
void quantize_kv(std::span<float> values) {
  float amax = 1e-4f;
  bool is_finite = true;
  for (const float value : values) {
    amax = std::max(amax, std::abs(value));
    is_finite = is_finite && std::isfinite(value);
  }
  const float scale = is_finite ? amax / 127.0f : std::numeric_limits<float>::quiet_NaN();
  for (float& value : values) value = std::nearbyint(value / scale) * scale;
}

// One sequence in the memory of a ReferenceModel: row 0 is its newest token.
class SequenceCache : public ReferenceCache {
 public:
  SequenceCache(const ModelConfig& config, DType dtype, std::vector<std::vector<float>>& keys,
                std::vector<std::vector<float>>& values)
      : config_(config), dtype_(dtype), keys_(keys), values_(values) {}

  void store(int layer, int /*row*/, int /*kv_head*/, const float* key,
             const float* value) override {
    append(keys_[static_cast<size_t>(layer)], key);
    append(values_[static_cast<size_t>(layer)], value);
  }

  void load(int layer, int /*row*/, int kv_head, float* keys, float* values) const override {
    copy_head(keys_[static_cast<size_t>(layer)], kv_head, keys);
    copy_head(values_[static_cast<size_t>(layer)], kv_head, values);
  }

 private:
  // Heads come in their order, so the next one belongs at the end.
  void append(std::vector<float>& all, const float* head) const {
    std::vector<float> cast(head, head + config_.head_dim);
    if (dtype_ == DType::kS8) {
      quantize_kv(cast);
    } else {
      for (float& value : cast) value = cast_through(dtype_, value);
    }
    all.insert(all.end(), cast.begin(), cast.end());
  }

  void copy_head(const std::vector<float>& all, int kv_head, float* to) const {
    const int64_t token_floats = int64_t{config_.kv_heads} * config_.head_dim;
    const int64_t first = int64_t{kv_head} * config_.head_dim;
    for (int64_t at = first; at < std::ssize(all); at += token_floats) {
      to = std::copy_n(all.data() + at, config_.head_dim, to);
    }
  }

  const ModelConfig& config_;
  DType dtype_;
  std::vector<std::vector<float>>& keys_;
  std::vector<std::vector<float>>& values_;
};

}  // namespace

float read_packed_row(const PackedMatrix& matrix, int64_t row, int which, double* values) {
  GAPLESS_CHECK(row >= 0);
  GAPLESS_CHECK(row < matrix.n());
  GAPLESS_CHECK(which == 0 || (which == 1 && matrix.interleave() == Interleave::kPairs));
  const int64_t pair = row / kPanelRows;
  const int64_t panel = matrix.interleave() == Interleave::kPairs ? pair * 2 + which : pair;
  const int64_t in_panel = row % kPanelRows;
  const int64_t k = matrix.k();
  const std::byte* const lines = matrix.panel(panel);
  switch (matrix.dtype()) {
    case DType::kS8:
      unpack_row<4, uint8_t>(lines + in_panel * 4, k, values,
                             [](uint8_t value) { return static_cast<double>(value - kS8Bias); });
      return matrix.panel_scales()[panel * kPanelRows + in_panel];
    case DType::kBf16:
      unpack_row<2, Bf16>(lines + in_panel * 4, k, values,
                          [](Bf16 value) { return static_cast<double>(to_float(value)); });
      return 1.0f;
    case DType::kF16:
      unpack_row<1, F16>(lines + in_panel * 2, k, values,
                         [](F16 value) { return static_cast<double>(to_float(value)); });
      return 1.0f;
    default:
      GAPLESS_CHECK(matrix.dtype() == DType::kF32);
      unpack_row<1, float>(lines + in_panel * 4, k, values,
                           [](float value) { return static_cast<double>(value); });
      return 1.0f;
  }
}

std::vector<double> layer_reference(const LayerReferenceArgs& args) {
  const int hidden = args.config->hidden;
  for (const int32_t length : args.lengths) GAPLESS_CHECK(length >= 1);
  const std::span<const float> x(args.x, args.lengths.size() * static_cast<size_t>(hidden));

  const std::vector<float> attended = attention_of(args, x);
  const PackedMatrix& out = args.weights->out;
  const std::vector<float> h1 = rounded(
      sum_of(x, project(make_operand(out.dtype(), attended, out.k()), out, 0, args.thread_count)));

  const std::vector<float> activations = mlp_of(args, h1);
  const PackedMatrix& down = args.weights->down;
  return sum_of(
      h1, project(make_operand(down.dtype(), activations, down.k()), down, 0, args.thread_count));
}

std::vector<double> head_reference(const ModelWeights& weights, std::span<const float> x,
                                   int thread_count, bool deferred_norm) {
  GAPLESS_CHECK(weights.has_head);
  const Operand operand =
      make_normed_operand(weights.head.dtype(), x, weights.final_norm,
                          static_cast<float>(weights.config.rms_eps), deferred_norm);
  return project(operand, weights.head, 0, thread_count);
}

Closeness compare_closely(std::span<const float> actual, std::span<const double> expected,
                          double tolerance) {
  GAPLESS_CHECK(actual.size() == expected.size());
  Closeness closeness = {.count = std::ssize(actual)};
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = static_cast<double>(actual[i]);
    if (value == expected[i] || (std::isnan(value) && std::isnan(expected[i]))) continue;
    if (!std::isfinite(value) && std::isfinite(expected[i])) ++closeness.not_finite_count;
    double difference = std::abs(value - expected[i]);
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    closeness.largest_difference = std::max(closeness.largest_difference, difference);
    // An expected infinity would allow every difference.
    const bool is_outside =
        std::isinf(difference) || difference > tolerance + tolerance * std::abs(expected[i]);
    if (is_outside) ++closeness.outside_count;
  }
  return closeness;
}

ReferenceModel::ReferenceModel(const ModelWeights& weights, DType kv_dtype, bool deferred_norm,
                               int thread_count)
    : weights_(weights),
      kv_dtype_(kv_dtype),
      deferred_norm_(deferred_norm),
      thread_count_(thread_count),
      keys_(weights.layers.size()),
      values_(weights.layers.size()) {
  GAPLESS_CHECK(weights.has_head);
}

std::vector<double> ReferenceModel::step(int32_t token) {
  const ModelConfig& config = weights_.config;
  GAPLESS_CHECK(token >= 0);
  GAPLESS_CHECK(token < config.vocabulary);
  SequenceCache cache(config, kv_dtype_, keys_, values_);
  const int32_t length = ++length_;
  std::vector<float> x(static_cast<size_t>(config.hidden));
  for (int i = 0; i < config.hidden; ++i) {
    x[static_cast<size_t>(i)] = load_as_float(weights_.embedding.dtype, weights_.embedding.rows,
                                              int64_t{token} * config.hidden + i);
  }
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    x = rounded(layer_reference({
        .config = &config,
        .weights = &weights_.layers[layer],
        .layer = static_cast<int>(layer),
        .kv_dtype = kv_dtype_,
        .deferred_norm = deferred_norm_,
        .lengths = std::span(&length, 1),
        .x = x.data(),
        .cache = &cache,
        .thread_count = thread_count_,
    }));
  }
  return head_reference(weights_, x, thread_count_);
}

}  // namespace gapless
