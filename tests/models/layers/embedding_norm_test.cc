#include <gtest/gtest.h>

#include <memory>

#include "models/layers/embedding.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::Mask;
using testing::UnitRunner;
using testing::Weights;

constexpr double kEmbeddingNormEps = 0.03;  // large enough to show whether it is used

struct Norm {
  Norm(float dropout, DType dtype, int threads = 1)
      : run{2, 21, dtype, threads},
        unit(make_embedding_norm({"norm", 27, static_cast<float>(kEmbeddingNormEps), dropout}, run)),
        runner(*unit, run, 27) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

TEST(EmbeddingNormTest, MatchesTheReference) {
  for (const float p : {0.0f, 0.3f}) {
    Norm norm(p, DType::fp32);
    const Mask mask(norm.runner, p, 0);
    expect_block_matches(norm.runner, "norm.", [&](const Weights& w, const Doubles& x) {
      return dropped(testing::layernorm(x, w.at("weight"), w.at("bias"), kEmbeddingNormEps), mask);
    });
  }
}

TEST(EmbeddingNormTest, IsIndependentOfThePlan) {
  for (const float p : {0.0f, 0.3f})
    for (const DType dtype : {DType::fp32, DType::bf16})
      testing::expect_block_is_independent_of_the_plan([&](int threads) { return Norm(p, dtype, threads); });
}

TEST(EmbeddingNormTest, SixteenBitErrorsAreWithinTheirFormat) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Norm narrow(0.1f, dtype), wide(0.1f, DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 4);
  }
}

}  // namespace
}  // namespace strata::models
