// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/half.h"

namespace gapless {

namespace {

// The cast of an operand before it is multiplied with a page's element.
double cast_operand(DType kv_dtype, double value) {
  if (kv_dtype != DType::kBf16) return value;
  return cast_through(DType::kBf16, static_cast<float>(value));
}

std::vector<double> scores_of(const AttentionReferenceArgs& args, int head) {
  std::vector<double> q(static_cast<size_t>(args.head_dim));
  for (size_t dim = 0; dim < q.size(); ++dim) {
    q[dim] = cast_operand(args.kv_dtype, args.q[static_cast<size_t>(head) * q.size() + dim]);
  }
  std::vector<double> scores(static_cast<size_t>(args.length));
  for (size_t token = 0; token < scores.size(); ++token) {
    double sum = 0.0;
    for (size_t dim = 0; dim < q.size(); ++dim) sum += q[dim] * args.keys[token * q.size() + dim];
    scores[token] = sum * args.scale;
  }
  return scores;
}

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// What each score is taken relative to when its probability is cast.
std::vector<double> bases_of(const AttentionReferenceArgs& args, std::span<const double> scores) {
  std::vector<double> bases(scores.size());
  double largest = kLowest;
  for (int64_t begin = 0; begin < args.length;) {
    if (begin % args.chunk_tokens == 0) largest = kLowest;
    const int64_t chunk_left = args.chunk_tokens - begin % args.chunk_tokens;
    const int64_t end = std::min({args.length, begin + chunk_left, begin + kAttentionBlockTokens});
    for (int64_t i = begin; i < end; ++i)
      largest = std::fmax(largest, scores[static_cast<size_t>(i)]);
    std::fill(bases.begin() + begin, bases.begin() + end, largest);
    begin = end;
  }
  return bases;
}

void attend(const AttentionReferenceArgs& args, int head, double* output) {
  const std::vector<double> scores = scores_of(args, head);
  const std::vector<double> bases = bases_of(args, scores);
  const double largest = *std::max_element(bases.begin(), bases.end());
  std::vector<double> probabilities(scores.size());
  double sum = 0.0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double base = std::isinf(bases[i]) ? largest : bases[i];
    probabilities[i] =
        cast_operand(args.kv_dtype, std::exp(scores[i] - base)) * std::exp(base - largest);
    sum += probabilities[i];
  }
  for (int dim = 0; dim < args.head_dim; ++dim) output[dim] = 0.0;
  for (size_t token = 0; token < probabilities.size(); ++token) {
    const float* value = args.values + static_cast<int64_t>(token) * args.head_dim;
    for (int dim = 0; dim < args.head_dim; ++dim) output[dim] += probabilities[token] * value[dim];
  }
  for (int dim = 0; dim < args.head_dim; ++dim) output[dim] /= sum;
}

}  // namespace

void attention_reference(const AttentionReferenceArgs& args) {
  for (int head = 0; head < args.group_heads; ++head) {
    double* output = args.output + int64_t{head} * args.head_dim;
    if (args.length == 0) {
      for (int dim = 0; dim < args.head_dim; ++dim) output[dim] = 0.0;
    } else {
      attend(args, head, output);
    }
  }
}

}  // namespace gapless
