#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/blocks/blocks.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::linear;
using testing::Mask;
using testing::sum;
using testing::UnitRunner;
using testing::Weights;

struct EncoderBlockShape {
  std::size_t hidden, heads, inner;
  float attention_dropout = 0, projection_dropout = 0, down_dropout = 0;
  std::size_t batch = 2, seq = 11;
};
constexpr double kEncoderBlockEps = 0.03;  // large enough to show whether it is used
constexpr std::size_t kEncoderBlockLayer = 1;

// TestedEncoder `kEncoderBlockLayer` of two.
struct TestedEncoder {
  TestedEncoder(const EncoderBlockShape& s, DType dtype, int threads = 1)
      : run{s.batch, s.seq, dtype, threads}, units(blocks(s, run)), runner(*units[kEncoderBlockLayer], run, s.hidden) {}
  UnitRunner* operator->() { return &runner; }

  static std::vector<std::unique_ptr<Unit>> blocks(const EncoderBlockShape& s, const RunShape& run) {
    std::vector<std::unique_ptr<Unit>> out;
    add_encoder_blocks(out,
                       {.names = {"layer.", "query", "key", "value", "projection", "norm1", "up", "down", "norm2"},
                        .layers = 2,
                        .hidden = s.hidden,
                        .heads = s.heads,
                        .inner = s.inner,
                        .eps = static_cast<float>(kEncoderBlockEps),
                        .deviation = 0.02f,
                        .attention_dropout = s.attention_dropout,
                        .projection_dropout = s.projection_dropout,
                        .down_dropout = s.down_dropout},
                       run);
    return out;
  }

  RunShape run;
  std::vector<std::unique_ptr<Unit>> units;
  UnitRunner runner;
};
const std::string kPrefix = "layer.1.";
// It shifts all scores of a row equally, so it changes no probability.
const std::string kUnmoved = "key.bias";

Doubles reference(const EncoderBlockShape& s, const UnitRunner& runner, const Weights& w, const Doubles& x) {
  const std::size_t d = s.hidden;
  // Every place in every layer has its own stream of random numbers, which differs from the embedding's.
  const auto mask = [&](float p, std::uint32_t place) { return Mask(runner, p, kEncoderBlockLayer * 4 + 4 + place); };
  const auto dense = [&](const Doubles& in, std::size_t width, const std::string& name) {
    return linear(in, width, w.at(name + ".weight"), w.at(name + ".bias"), false);
  };
  const auto norm = [&](const Doubles& in, const std::string& name) {
    return testing::layernorm(in, w.at(name + ".weight"), w.at(name + ".bias"), kEncoderBlockEps);
  };
  testing::Heads heads{s.batch, s.seq, s.heads, s.heads, d / s.heads};
  heads.causal = false;
  const Doubles mixed =
      attention(heads, dense(x, d, "query"), dense(x, d, "key"), dense(x, d, "value"), mask(s.attention_dropout, 0));
  const Doubles middle = norm(sum(x, dropped(dense(mixed, d, "projection"), mask(s.projection_dropout, 1))), "norm1");
  Doubles inner = dense(middle, d, "up");
  for (double& v : inner) v = testing::gelu_erf(v);
  return norm(sum(middle, dropped(dense(inner, s.inner, "down"), mask(s.down_dropout, 2))), "norm2");
}

void expect_matches(const EncoderBlockShape& s) {
  TestedEncoder block(s, DType::fp32);
  expect_block_matches(
      block.runner, kPrefix, [&](const Weights& w, const Doubles& x) { return reference(s, block.runner, w, x); },
      kUnmoved);
}

TEST(EncoderBlockTest, MatchesTheReference) {
  expect_matches({.hidden = 32, .heads = 4, .inner = 128});
}

// There are gaps after every parameter, so that queries, keys and values need a product each.
TEST(EncoderBlockTest, OddSizesMatchTheReference) {
  expect_matches({.hidden = 30, .heads = 3, .inner = 50});
}

TEST(EncoderBlockTest, DropoutMatchesTheReferenceForwardAndBackward) {
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .attention_dropout = 0.3f});
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .projection_dropout = 0.2f});
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .down_dropout = 0.2f});
  expect_matches({.hidden = 24,
                  .heads = 2,
                  .inner = 40,
                  .attention_dropout = 0.4f,
                  .projection_dropout = 0.1f,
                  .down_dropout = 0.3f});
}

TEST(EncoderBlockTest, IsIndependentOfThePlan) {
  for (const float p : {0.0f, 0.2f}) {
    const EncoderBlockShape shape{.hidden = 64,
                                  .heads = 4,
                                  .inner = 256,
                                  .attention_dropout = p,
                                  .projection_dropout = p,
                                  .down_dropout = p,
                                  .seq = 40};
    testing::expect_block_is_independent_of_the_plan(
        [&](int threads) { return TestedEncoder(shape, DType::fp32, threads); });
    testing::expect_block_is_independent_of_the_plan(
        [&](int threads) { return TestedEncoder(shape, DType::bf16, threads); });
  }
}

TEST(EncoderBlockTest, SixteenBitErrorsAreWithinTheirFormat) {
  const EncoderBlockShape shape{.hidden = 48,
                                .heads = 3,
                                .inner = 96,
                                .attention_dropout = 0.1f,
                                .projection_dropout = 0.1f,
                                .down_dropout = 0.1f};
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    TestedEncoder narrow(shape, dtype), wide(shape, DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 12, kPrefix + kUnmoved);
  }
}

}  // namespace
}  // namespace strata::models
