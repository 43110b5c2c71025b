#include "device/ops/step/optimizer.h"

#include "device/cpu/kernels/tables.h"
#include "device/numeric/optimizer_update.h"
#include "tests/device/ops/step/optimizer_case.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kAlgorithms;
using testing::kDevice;
using testing::kDTypes;
using testing::kFormats;
using testing::optimizer_of;
using testing::scalars_of;
using testing::State;

// The formulas in fp64, in the order of operations of torch.optim.AdamW, of Lion's paper and of torch.optim.SGD.
void reference_update(Algorithm algorithm, int t, double lr, double g, double& p, double& m, double& v) {
  const Optimizer o = optimizer_of(algorithm);
  switch (algorithm) {
    case Algorithm::adamw:
      p *= 1 - lr * o.weight_decay;
      m += (g - m) * (1 - o.beta1);
      v = v * o.beta2 + g * g * (1 - o.beta2);
      p -= lr / (1 - std::pow(o.beta1, t)) * m / (std::sqrt(v) / std::sqrt(1 - std::pow(o.beta2, t)) + o.eps);
      break;
    case Algorithm::lion: {
      const double c = o.beta1 * m + (1 - o.beta1) * g;
      p -= lr * ((c > 0) - (c < 0) + o.weight_decay * p);
      m = o.beta2 * m + (1 - o.beta2) * g;
      break;
    }
    case Algorithm::sgd:
      g += o.weight_decay * p;
      m = t == 1 ? g : o.momentum * m + g;
      p -= lr * m;
      break;
  }
}

// Runs ten steps. Weights are about 1 and move by about lr per step, so fp32 may be off by a few units of 2^-24 per
// step; moments relative to their size, sgd's sum of ten gradients being the largest.
TEST(Optimizer, AgreesWithTorchAndPaper) {
  for (const Algorithm algorithm : kAlgorithms) {
    const std::size_t n = 999;
    State state(n, DType::bf16, algorithm);
    auto p = state.master.doubles(0, n);
    std::vector<double> m(n, 0.0), v(n, 0.0);
    for (int t = 1; t <= 10; ++t) {
      Array g = Array::random(DType::fp32, n, 10 + static_cast<unsigned>(t), t % 2 ? 1.0f : 1e-4f);
      const StepScalars s = scalars_of(t);
      in_lane(1, [&](Lane& lane) { state.update(lane, s, g); });
      for (std::size_t i = 0; i < n; ++i) {
        reference_update(algorithm, t, s.learning_rate, g[i], p[i], m[i], v[i]);
        ASSERT_NEAR(state.master[i], p[i], t * 4 * 0x1p-24) << "step " << t;
        ASSERT_NEAR(state.moment1[i], m[i], t * (algorithm == Algorithm::sgd ? 16 : 2) * 0x1p-24);
        if (algorithm == Algorithm::adamw) {
          ASSERT_NEAR(state.moment2[i], v[i], 10 * 0x1p-24 * v[i]);
        }
      }
    }
  }
}

TEST(Optimizer, LionMovesByTheSign) {
  State state(4, DType::fp32, Algorithm::lion);
  Array g(DType::fp32, 4);
  g.set(0, 1e-30f), g.set(1, -1e30f), g.set(2, 0), g.set(3, -0.0f);
  const Array before = state.master;
  StepScalars s = scalars_of(1);
  s.learning_rate = 0.25f;
  Optimizer o = optimizer_of(Algorithm::lion);
  o.weight_decay = 0;
  in_lane(1, [&](Lane& lane) { device::update(lane, o, &s, state.operands(0, 4, g, nullptr, true)); });
  const float expected[] = {before[0] - 0.25f, before[1] + 0.25f, before[2], before[3]};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(state.master[i], expected[i]) << i;
}

// The contract's order of roundings, written independently: the kernels and CUDA share
// device/numeric/optimizer_update.h.
void scalar_update(Algorithm algorithm, float g, float& p, float& m, float& v, const StepScalars& s) {
  const Optimizer o = optimizer_of(algorithm);
  switch (algorithm) {
    case Algorithm::adamw: {
      const UpdateFactors f = adamw_factors(o, s);
      g *= f.gradient_factor;
      m = std::fma(f.beta1, m, f.rest1 * g);
      v = std::fma(f.beta2, v, (f.rest2 * g) * g);
      const float denominator = std::fma(std::sqrt(v), f.inverse_sqrt_correction, f.eps);
      p = std::fma(-f.step, m / denominator, p * f.decay);
      break;
    }
    case Algorithm::lion: {
      const UpdateFactors f = lion_factors(o, s);
      g *= f.gradient_factor;
      const float c = std::fma(f.beta1, m, f.rest1 * g);
      m = std::fma(f.beta2, m, f.rest2 * g);
      p = std::fma(-f.step, c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f, p * f.decay);
      break;
    }
    case Algorithm::sgd: {
      const UpdateFactors f = sgd_factors(o, s);
      g = std::fma(f.decay, p, g * f.gradient_factor);
      m = std::fma(f.beta1, m, g);
      p = std::fma(-f.step, m, p);
      break;
    }
  }
}

// The contract is exactly the scalar formula, for every dtype, with and without a second gradient, and in tails.
TEST(Optimizer, MatchesTheScalarFormulaToTheBit) {
  const std::size_t n = 2 * 65536 + 21;
  for (const Algorithm algorithm : kAlgorithms)
    for (const DType gradient : kDTypes)
      for (const DType parameter : kDTypes)
        for (const bool tied : {false, true}) {
          if (algorithm != Algorithm::adamw && gradient != parameter) continue;
          Array first = Array::random(gradient, n, 3), second = Array::random(gradient, n, 4);
          first.set(5, -0.0f);
          const StepScalars s1 = scalars_of(1, 0.37f), s2 = scalars_of(2, 0.81f);
          const auto run = [&](int threads) {
            State state(n, parameter, algorithm);
            in_lane(threads, [&](Lane& lane) {
              state.update(lane, s1, first, tied ? &second : nullptr);
              state.update(lane, s2, second, tied ? &first : nullptr);
            });
            return state.outputs();
          };
          testing::expect_same_bits_on_any_threads(run);
          const auto out = run(1);
          State expected(n, parameter, algorithm);
          for (std::size_t i = 0; i < n; ++i) {
            float p = expected.master[i], m = 0, v = 0;
            for (const bool again : {false, true}) {
              const Array &a = again ? second : first, &b = again ? first : second;
              float g = 0.0f + a[i];
              if (tied) g = g + b[i];
              scalar_update(algorithm, g, p, m, v, again ? s2 : s1);
            }
            expected.master.floats()[i] = p;
            expected.moment1.floats()[i] = m;
            expected.moment2.floats()[i] = v;
            expected.parameter.set(i, p);
          }
          for (std::size_t k = 0; k < 4; ++k)
            EXPECT_TRUE(out[k] == expected.outputs()[k])
                << static_cast<int>(algorithm) << name_of(gradient) << " " << name_of(parameter) << " " << k;
        }
}

TEST(Optimizer, UpdatesAMasterThatIsTheParameter) {
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

// The update decides when it runs, not when it is issued.
TEST(Optimizer, DecidesToSkipWhenItRuns) {
  for (const StorageFormat format : kFormats) {
    Array g = Array::random(DType::fp32, 300, 3);
    State state(300, DType::bf16, Algorithm::adamw, format);
    StepScalars s = scalars_of(1);
    in_lane(1, [&](Lane& lane) { state.update(lane, s, g); });
    const State before = state;
    in_lane(1, [&](Lane& lane) {
      s.skip = 1;
      state.update(lane, s, g);
    });
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(state.outputs()[k] == before.outputs()[k]);
    // An offloaded parameter is only written again from the master.
    state.parameter = Array(DType::bf16, 300);
    in_lane(2, [&](Lane& lane) { state.update(lane, s, g, nullptr, true, OnSkip::rewrite_parameter); });
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(state.outputs()[k] == before.outputs()[k]) << k;
    // If the master is the parameter, there is nothing to write.
    in_lane(1, [&](Lane& lane) { state.update(lane, s, g, nullptr, false, OnSkip::rewrite_parameter); });
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(state.outputs()[k] == before.outputs()[k]) << k;
  }
}

// Every format gives the same bits in one piece, in parts that are issued in any order, and on one thread or three.
TEST(Optimizer, SameBitsHoweverItIsCut) {
  const std::size_t n = 3 * 65536 + 256 * 7 + 21;
  Array first = Array::random(DType::bf16, n, 3), second = Array::random(DType::bf16, n, 4);
  const StepScalars s1 = scalars_of(1), s2 = scalars_of(2);
  for (const Algorithm algorithm : kAlgorithms)
    for (const StorageFormat format : kFormats) {
      State whole(n, DType::bf16, algorithm, format), cut = whole;
      in_lane(1, [&](Lane& lane) {
        whole.update(lane, s1, first, &second);
        whole.update(lane, s2, second, &first);
      });
      in_lane(3, [&](Lane& lane) {
        const std::size_t boundaries[] = {n, 2 * 65536 + 4096, 65536, 4096 + 256, 4096, 0};
        for (const bool again : {false, true})
          for (std::size_t k = 0; k + 1 < std::size(boundaries); ++k)
            device::update(
                lane, optimizer_of(algorithm), again ? &s2 : &s1,
                cut.operands(boundaries[k + 1], boundaries[k], again ? second : first, again ? &first : &second, true));
      });
      for (std::size_t k = 0; k < 4; ++k)
        EXPECT_TRUE(whole.outputs()[k] == cut.outputs()[k])
            << static_cast<int>(algorithm) << static_cast<int>(format) << k;
    }
}

// Every format with every dtype, aligned or not, over moments large and small; a second step reads what the first kept.
TEST(Optimizer, GivesTheBitsOfTheCpu) {
  if (kDevice.kind == Kind::cpu) GTEST_SKIP() << "this program tests the CPU";
  const StepScalars s1 = scalars_of(1, 0.37f), s2 = scalars_of(2, 0.81f);
  for (const Algorithm algorithm : kAlgorithms)
    for (const StorageFormat format : kFormats)
      for (const DType gradient : kDTypes)
        for (const std::size_t offset : {0, 1}) {
          const std::size_t n = 256 * 9 + 84;
          const DType parameter = kDTypes[(static_cast<std::size_t>(gradient) + offset) % 3];
          Array first = Array::random(gradient, n + offset, 3, 100.0f), second = Array::random(gradient, n + offset, 4);
          for (std::size_t i = 0; i < 256; ++i) {
            first.set(512 + i, first[512 + i] * 1e-6f);  // blocks that quantise to little,
            first.set(768 + i, 0);                       // to nothing
            first.set(1024 + i, first[1024 + i] * 500);
          }
          testing::expect_bits_of_the_cpu([&](Device device) {
            State state(n + offset, parameter, algorithm, format);
            const auto update = [&](Lane& lane, const StepScalars& s, Array& a, Array* b, OnSkip on_skip) {
              UpdateOperands all = state.operands(0, n + offset, a, b, true);
              for (ConstView* view : {&all.first, &all.second})
                if (*view) *view = view->sub(offset, n);
              for (View* view : {&all.master, &all.parameter}) *view = view->sub(offset, n);
              device::update(lane, optimizer_of(algorithm), &s, all, on_skip);
            };
            StepScalars skipped = scalars_of(2);
            skipped.skip = 1;
            testing::in_lane(
                2,
                [&](Lane& lane) {
                  update(lane, s1, first, nullptr, OnSkip::leave_parameter);
                  update(lane, s2, second, &first, OnSkip::leave_parameter);
                  update(lane, skipped, second, &first, OnSkip::rewrite_parameter);
                },
                device);
            return state.outputs();
          });
        }
}

TEST(OptimizerKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 4096 + 11;
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t f = 0; f < 3; ++f)
      testing::expect_same_bits_on_both_isas(
          cpu::avx2::optimizer_kernels_table, cpu::avx512::optimizer_kernels_table,
          [&](const cpu::OptimizerKernels& k) {
            std::vector<Array> out;
            for (std::size_t t = 0; t < 3; ++t)
              for (const float size : {1.0f, 1e-20f, 1e-30f}) {  // squares become subnormal, then 0
                State state(n, kDTypes[t], kAlgorithms[a], kFormats[f]);
                const Array first = Array::random(kDTypes[t], n, 3, size),
                            second = Array::random(kDTypes[t], n, 4, size);
                for (int step = 1; step < 4; ++step) {
                  const Optimizer o = optimizer_of(kAlgorithms[a]);
                  const StepScalars s = scalars_of(step, 0.5f);
                  k.update[a][f]({k.read[t],
                                  k.write[t],
                                  first.data(),
                                  second.data(),
                                  size_of(kDTypes[t]),
                                  state.master.floats(),
                                  state.moment1.data(),
                                  state.moment2.data(),
                                  state.parameter.data(),
                                  size_of(kDTypes[t]),
                                  {7, s.first_micro_batch, 5},
                                  512},
                                 n,
                                 a == 0   ? adamw_factors(o, s)
                                 : a == 1 ? lion_factors(o, s)
                                          : sgd_factors(o, s));
                }
                for (const Array& array : state.outputs()) out.push_back(array);
              }
            return out;
          });
}

}  // namespace
}  // namespace strata::device
