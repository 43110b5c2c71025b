#include "models/layers/prediction_transform.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::UnitRunner;
using testing::Weights;

constexpr std::size_t kHidden = 30;

struct Transform {
  explicit Transform(DType dtype, int threads = 1)
      : run{2, 21, dtype, threads},
        unit(make_prediction_transform({"dense", kHidden, 0.02f}, run)),
        runner(*unit, run, kHidden) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

TEST(PredictionTransformTest, MatchesTheReference) {
  Transform transform(DType::fp32);
  expect_block_matches(transform.runner, "dense.", [](const Weights& w, const Doubles& x) {
    Doubles y = testing::linear(x, kHidden, w.at("weight"), w.at("bias"), false);
    for (double& v : y) v = testing::gelu_erf(v);
    return y;
  });
}

TEST(PredictionTransformTest, IsIndependentOfThePlan) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    testing::expect_block_is_independent_of_the_plan([&](int threads) { return Transform(dtype, threads); });
}

TEST(PredictionTransformTest, SixteenBitsAreWithinTheirFormat) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Transform narrow(dtype), wide(DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 4);
  }
}

}  // namespace
}  // namespace strata::models
