// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_reference.h"

#include <cmath>
#include <limits>
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

void attend(const AttentionReferenceArgs& args, int head, double* output) {
  std::vector<double> probabilities = scores_of(args, head);
  double largest = -std::numeric_limits<double>::infinity();
  for (const double score : probabilities) largest = std::fmax(largest, score);
  double sum = 0.0;
  for (double& probability : probabilities) {
    probability = cast_operand(args.kv_dtype, std::exp(probability - largest));
    sum += probability;
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
