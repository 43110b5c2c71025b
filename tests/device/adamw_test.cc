#include "device/ops/adamw.h"

#include "device/adamw_update.h"
#include "device/cpu/kernels/adamw.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

const AdamW kRule{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};

StepScalars scalars_of(int t, float factor = 1.0f) {
  StepScalars s{};
  s.learning_rate = 3e-4f;
  s.bias_correction1 = static_cast<float>(1 - std::pow(kRule.beta1, t));
  s.bias_correction2 = static_cast<float>(1 - std::pow(kRule.beta2, t));
  s.gradient_factor = factor;
  return s;
}

struct State {
  Array master, moment1, moment2, parameter;
  State(std::size_t n, DType dtype)
      : master(Array::random(DType::fp32, n, 1)),
        moment1(DType::fp32, n),
        moment2(DType::fp32, n),
        parameter(dtype, n) {}
  void update(Lane& lane, const StepScalars& s, Array& first, Array* second = nullptr, bool with_parameter = true) {
    adamw(lane, kRule, &s, first.view(), second ? second->view() : View{}, master.view(), moment1.view(),
          moment2.view(), with_parameter ? parameter.view() : View{});
  }
  std::vector<Array> outputs() const { return {master, moment1, moment2, parameter}; }
};

// Ten steps against torch.optim.AdamW's own order of operations in fp64. Weights are of size 1 and move by about lr
// a step, so fp32 may be off by a few units of 2^-24 a step; moments relative to their size.
TEST(AdamW, AgreesWithTorch) {
  const std::size_t n = 999;
  State state(n, DType::bf16);
  auto p = state.master.doubles(0, n);
  std::vector<double> m(n, 0.0), v(n, 0.0);
  for (int t = 1; t <= 10; ++t) {
    Array g = Array::random(DType::fp32, n, 10 + static_cast<unsigned>(t), t % 2 ? 1.0f : 1e-4f);
    const StepScalars s = scalars_of(t);
    in_lane(1, [&](Lane& lane) { state.update(lane, s, g); });
    const double lr = s.learning_rate, correction1 = 1 - std::pow(0.9, t), correction2 = 1 - std::pow(0.999, t);
    for (std::size_t i = 0; i < n; ++i) {
      const double gi = g[i];
      p[i] *= 1 - lr * 0.1;
      m[i] += (gi - m[i]) * (1 - 0.9);
      v[i] = v[i] * 0.999 + gi * gi * (1 - 0.999);
      p[i] -= lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + 1e-8);
      ASSERT_NEAR(state.master[i], p[i], t * 4 * 0x1p-24) << "step " << t;
      ASSERT_NEAR(state.moment1[i], m[i], t * 2 * 0x1p-24);
      ASSERT_NEAR(state.moment2[i], v[i], 10 * 0x1p-24 * v[i]);
    }
  }
}

// The contract's order of roundings, written a second time: the kernels and CUDA share device/adamw_update.h.
void scalar_update(float g, float& p, float& m, float& v, const AdamWFactors& f) {
  g *= f.gradient_factor;
  m = std::fma(f.beta1, m, f.rest1 * g);
  v = std::fma(f.beta2, v, (f.rest2 * g) * g);
  const float denominator = std::fma(std::sqrt(v), f.inverse_sqrt_correction, f.eps);
  p = std::fma(-f.step, m / denominator, p * f.decay);
}

// The contract: exactly the scalar formula, for every dtype, with and without a second gradient, in tails too.
TEST(AdamW, IsTheScalarFormulaToTheBit) {
  const std::size_t n = 2 * 65536 + 21;
  for (const DType gradient : kDTypes)
    for (const DType parameter : kDTypes)
      for (const bool tied : {false, true}) {
        Array first = Array::random(gradient, n, 3), second = Array::random(gradient, n, 4);
        first.set(5, -0.0f);
        const StepScalars s1 = scalars_of(1, 0.37f), s2 = scalars_of(2, 0.81f);
        const auto run = [&](int threads) {
          State state(n, parameter);
          in_lane(threads, [&](Lane& lane) {
            state.update(lane, s1, first, tied ? &second : nullptr);
            state.update(lane, s2, second, tied ? &first : nullptr);
          });
          return state.outputs();
        };
        testing::expect_same_bits_on_any_threads(run);
        const auto out = run(1);
        State expected(n, parameter);
        for (std::size_t i = 0; i < n; ++i) {
          float p = expected.master[i], m = 0, v = 0;
          for (const bool again : {false, true}) {
            const Array &a = again ? second : first, &b = again ? first : second;
            float g = 0.0f + a[i];
            if (tied) g = g + b[i];
            scalar_update(g, p, m, v, adamw_factors(kRule, again ? s2 : s1));
          }
          expected.master.floats()[i] = p;
          expected.moment1.floats()[i] = m;
          expected.moment2.floats()[i] = v;
          expected.parameter.set(i, p);
        }
        for (std::size_t k = 0; k < 4; ++k)
          EXPECT_TRUE(out[k] == expected.outputs()[k]) << name_of(gradient) << " " << name_of(parameter) << " " << k;
      }
}

TEST(AdamW, WhereTheMasterIsTheParameter) {
  Array g = Array::random(DType::fp32, 100, 3);
  State with(100, DType::fp32), without(100, DType::fp32);
  const StepScalars s = scalars_of(1);
  in_lane(1, [&](Lane& lane) {
    with.update(lane, s, g);
    without.update(lane, s, g, nullptr, false);
  });
  EXPECT_TRUE(with.master == without.master);
  EXPECT_TRUE(with.parameter == with.master);
}

// Decided when it runs, not when it is issued.
TEST(AdamW, SkipsWhenToldInTime) {
  Array g = Array::random(DType::fp32, 100, 3);
  State state(100, DType::bf16);
  const State before = state;
  StepScalars s = scalars_of(1);
  in_lane(1, [&](Lane& lane) {
    s.skip = 1;
    state.update(lane, s, g);
  });
  for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(state.outputs()[k] == before.outputs()[k]);
}

TEST(AdamWKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 4096 + 11;
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::adamw_kernels_table, cpu::avx512::adamw_kernels_table, [&](const cpu::AdamWKernels& k) {
        std::vector<Array> out;
        for (std::size_t t = 0; t < 3; ++t)
          for (const float size : {1.0f, 1e-20f, 1e-30f}) {  // squares become subnormal, then 0
            State state(n, kDTypes[t]);
            const Array first = Array::random(kDTypes[t], n, 3, size), second = Array::random(kDTypes[t], n, 4, size);
            k.update[t][t]({first.data(), second.data(), state.master.floats(), state.moment1.floats(),
                            state.moment2.floats(), state.parameter.data()},
                           n, adamw_factors(kRule, scalars_of(3, 0.5f)));
            for (const Array& a : state.outputs()) out.push_back(a);
          }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
