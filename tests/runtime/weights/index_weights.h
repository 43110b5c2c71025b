#pragma once
#include <cmath>
#include <span>

#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// Weights from a formula, so that elements of different tensors and places differ.
class IndexWeights final : public WeightSource {
 public:
  static float value(std::size_t unit, std::size_t parameter, std::size_t element) {
    return static_cast<float>(
        std::sin(1.0 + static_cast<double>(element) * 0.7 + static_cast<double>(unit * 31 + parameter) * 1.9));
  }
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(unit, parameter, begin + i);
  }
};

}  // namespace strata::runtime
