#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/ops/losses/losses.h"

// Kernels of both twins call the functions below.
#ifdef __CUDACC__
#define STRATA_ON_BOTH __host__ __device__
#else
#define STRATA_ON_BOTH
#endif

namespace strata::device {

// True if class c is in a set of classes (class_set_words()). `set`: its words; null if the label holds the set. The
// label is passed by value, because a GPU thread would keep it in local memory if its address were taken.
STRATA_ON_BOTH inline bool is_in_set(std::int32_t label, const std::uint32_t* set, std::size_t c) {
  const std::uint32_t word = set != nullptr ? set[c / 32] : static_cast<std::uint32_t>(label);
  return (word >> c % 32 & 1) != 0;
}

// Calls store(c, g) with the gradient of each score in one row, times `scale`, and returns the row's loss. `set`: the
// row's words; null if the label holds the target. Computes in fp64: there are few scores, and all of training depends
// on their sum.
template <typename Store>
STRATA_ON_BOTH inline float class_loss_of_row(const ClassScoreShape& shape, const float* x, std::int32_t label,
                                              const std::uint32_t* set, const float* weights, float scale,
                                              Store&& store) {
  const auto weight = [=](std::size_t c) { return weights != nullptr ? static_cast<double>(weights[c]) : 1.0; };
  const double factor = scale;
  if (label == kIgnoredLabel || shape.target == ClassTarget::none) {
    for (std::size_t c = 0; c < shape.classes; ++c) store(c, 0.0f);
    return 0.0f;
  }
  if (shape.target == ClassTarget::number) {
    float wanted = 0;
    std::memcpy(&wanted, &label, sizeof wanted);
    const double difference = static_cast<double>(x[0]) - static_cast<double>(wanted);
    store(0, static_cast<float>(factor * 2 * difference));
    return static_cast<float>(difference * difference);
  }
  if (shape.target == ClassTarget::many) {
    const double mean = 1.0 / static_cast<double>(shape.classes);
    double loss = 0;
    for (std::size_t c = 0; c < shape.classes; ++c) {
      const double score = x[c], is = is_in_set(label, set, c) ? 1 : 0;
      const double w = weight(c) * mean, e = exp(score < 0 ? score : -score);
      loss += w * ((score > 0 ? score : 0) - score * is + log1p(e));
      const double p = score < 0 ? e / (1 + e) : 1 / (1 + e);
      store(c, static_cast<float>(factor * w * (p - is)));
    }
    return static_cast<float>(loss);
  }
  double most = x[0], sum = 0;
  for (std::size_t c = 1; c < shape.classes; ++c) most = x[c] > most || x[c] != x[c] ? x[c] : most;
  for (std::size_t c = 0; c < shape.classes; ++c) sum += exp(x[c] - most);
  const double w = weight(static_cast<std::size_t>(label));
  for (std::size_t c = 0; c < shape.classes; ++c) {
    const double is = c == static_cast<std::size_t>(label) ? 1 : 0;
    store(c, static_cast<float>(factor * w * (exp(x[c] - most) / sum - is)));
  }
  return static_cast<float>(w * (log(sum) + (most - x[label])));
}

}  // namespace strata::device
