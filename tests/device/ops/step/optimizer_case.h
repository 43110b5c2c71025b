#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

#include "device/ops/step/optimizer.h"
#include "tests/device/arrays.h"

// An optimizer, its scalars and a state to update.
namespace strata::device::testing {

inline constexpr Algorithm kAlgorithms[] = {Algorithm::adamw, Algorithm::lion, Algorithm::sgd};
inline constexpr StorageFormat kFormats[] = {StorageFormat::fp32, StorageFormat::bf16, StorageFormat::block8};

inline Optimizer optimizer_of(Algorithm algorithm) {
  return {algorithm, 0.9, algorithm == Algorithm::lion ? 0.99 : 0.999, 1e-8, 0.9, 0.1};
}

inline StepScalars scalars_of(int t, float factor = 1.0f) {
  const Optimizer o = optimizer_of(Algorithm::adamw);
  StepScalars s{};
  s.seed = 7;
  s.first_micro_batch = static_cast<std::uint64_t>(t - 1) * 4;
  s.learning_rate = 3e-4f;
  s.bias_correction1 = static_cast<float>(1 - std::pow(o.beta1, t));
  s.bias_correction2 = static_cast<float>(1 - std::pow(o.beta2, t));
  s.gradient_factor = factor;
  return s;
}

// Moments as bytes, in an array for comparisons: moment_bytes is a multiple of 4.
inline Array moment_array(StorageFormat format, std::size_t n) {
  const std::size_t whole_blocks = (n + kMomentBlock - 1) / kMomentBlock * kMomentBlock;
  return {DType::fp32, stored_bytes(format, whole_blocks) / sizeof(float)};
}

// The state of n elements.
struct State {
  Algorithm algorithm;
  StorageFormat format;
  Array master, moment1, moment2, parameter;
  std::uint32_t unit = 3;

  State(std::size_t n, DType dtype, Algorithm a = Algorithm::adamw, StorageFormat f = StorageFormat::fp32)
      : algorithm(a),
        format(f),
        master(Array::random(DType::fp32, n, 1)),
        moment1(moment_array(f, n)),
        moment2(moment_array(f, n)),
        parameter(dtype, n) {}

  // Elements [from, to), from a multiple of 256.
  UpdateOperands operands(std::size_t from, std::size_t to, Array& first, Array* second, bool with_parameter) {
    const std::size_t n = to - from, moments = stored_bytes(format, from);
    return {.first = first.view().sub(from, n),
            .second = second ? ConstView(second->view().sub(from, n)) : ConstView{},
            .master = master.view().sub(from, n),
            .parameter = with_parameter ? parameter.view().sub(from, n) : View{},
            .format = format,
            .moment1 = moment1.data() + moments,
            .moment2 = algorithm == Algorithm::adamw ? moment2.data() + moments : nullptr,
            .unit = unit,
            .begin = from};
  }
  void update(Lane& lane, const StepScalars& s, Array& first, Array* second = nullptr, bool with_parameter = true,
              OnSkip on_skip = OnSkip::leave_parameter) {
    device::update(lane, optimizer_of(algorithm), &s, operands(0, master.size(), first, second, with_parameter),
                   on_skip);
  }
  std::vector<Array> outputs() const { return {master, moment1, moment2, parameter}; }
};

}  // namespace strata::device::testing
