#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "device/ops/losses/losses.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"
#include "models/layers/heads/table_tiles.h"
#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::relative_error;
using testing::sum;
using testing::UnitRunner;

constexpr float kHeadEps = 0.03f;  // large enough to show whether it is used

struct Shape {
  std::size_t vocabulary, hidden, tokens;
  bool layernorm, tied;
  DType dtype = DType::fp32;
  bool logit_bias = false;
  std::size_t loss_rows = 0;
  bool transform = false;
};
void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.vocabulary << " words, " << s.tokens << " tokens, " << (s.layernorm ? "LayerNorm" : "RMSNorm")
       << (s.tied ? ", tied, " : ", ") << (s.logit_bias ? "a bias of the words, " : "") << name_of(s.dtype);
}

SharedParameter embedding_table(const Shape& s, const RunShape& run) {
  std::vector<std::unique_ptr<Unit>> units;
  units.push_back(make_embedding({"wte", "", s.vocabulary, 0, s.hidden, {}, 0}, run));
  return share("lm_head.weight", units, 0, 0);
}

struct TestedHead {
  explicit TestedHead(const Shape& s, int threads = 1)
      : shape(s),
        run{.batch = 1, .seq = s.tokens, .dtype = s.dtype, .threads = threads, .loss_rows = s.loss_rows},
        unit(make_head({"ln_f.weight",
                        s.layernorm ? "ln_f.bias" : "",
                        "lm_head.weight",
                        s.vocabulary,
                        s.hidden,
                        kHeadEps,
                        {0, 0.02f},
                        s.tied ? std::optional(embedding_table(s, run)) : std::nullopt,
                        s.logit_bias ? "lm_head.bias" : "",
                        s.transform ? std::optional(PredictionTransformSpec{"transform", 0.02f}) : std::nullopt},
                       run)),
        runner(*unit, run, s.hidden, nullptr, s.tied ? s.vocabulary : 0) {
    for (std::size_t t = 0; t < s.tokens; ++t) {
      const auto label = static_cast<std::int32_t>(runner.below(static_cast<std::uint32_t>(s.vocabulary)));
      runner.labels[t] = t % 5 == 3 ? device::kIgnoredLabel : label;
    }
    runner.labels[0] = static_cast<std::int32_t>(s.vocabulary) - 1;
  }
  UnitRunner* operator->() { return &runner; }

  std::size_t table() const { return shape.vocabulary * shape.hidden; }
  std::size_t chunks() const {
    std::vector<device::ProductShape> products;
    unit->list_products(products);
    return products.size() / 3 / TableTiles(shape.vocabulary, device::Kind::cpu).count();
  }
  Doubles weight() const {
    return shape.tied ? runner.shared.doubles(0, table()) : runner.tensor(runner.parameters, "lm_head.weight");
  }
  Doubles weight_gradient() const {
    return shape.tied ? runner.shared_gradients.doubles(0, table()) : runner.tensor(runner.gradients, "lm_head.weight");
  }

  Shape shape;
  RunShape run;
  std::unique_ptr<LossUnit> unit;
  UnitRunner runner;
};

struct Expected {
  double loss = 0;
  Doubles dx, weight, gain, bias, logit_bias;
};

// The gradient of loss_gradient * (sum of the losses) by the chain rule, row by row.
Expected reference(const TestedHead& head) {
  const Shape& s = head.shape;
  const std::size_t d = s.hidden, v = s.vocabulary;
  const Doubles x = head.runner.x.doubles(), w = head.weight();
  const Doubles gain = head.runner.tensor(head.runner.parameters, "ln_f.weight");
  const Doubles bias = s.layernorm ? head.runner.tensor(head.runner.parameters, "ln_f.bias") : Doubles(d, 0.0);
  const Doubles logit_bias = s.logit_bias ? head.runner.tensor(head.runner.parameters, "lm_head.bias") : Doubles(v);
  Expected e;
  e.logit_bias.resize(v);
  e.dx.resize(x.size());
  e.weight.resize(w.size());
  e.gain.resize(d);
  e.bias.resize(d);
  const double n = static_cast<double>(d);
  Doubles p(v), unit(d), normed(d), d_normed(d);
  for (std::size_t t = 0; t < s.tokens; ++t) {
    double mean = 0, square = 0;
    if (s.layernorm)
      for (std::size_t i = 0; i < d; ++i) mean += x[t * d + i] / n;
    for (std::size_t i = 0; i < d; ++i) square += (x[t * d + i] - mean) * (x[t * d + i] - mean) / n;
    const double rstd = 1 / std::sqrt(square + static_cast<double>(kHeadEps));
    for (std::size_t i = 0; i < d; ++i) unit[i] = (x[t * d + i] - mean) * rstd;
    for (std::size_t i = 0; i < d; ++i) normed[i] = unit[i] * gain[i] + bias[i];
    const std::int32_t label = head.runner.labels[t];
    if (label == device::kIgnoredLabel) continue;  // all its gradients are zero

    double total = 0;
    for (std::size_t word = 0; word < v; ++word) {
      double logit = logit_bias[word];
      for (std::size_t i = 0; i < d; ++i) logit += normed[i] * w[word * d + i];
      total += p[word] = std::exp(logit);  // logits of a few units: no shift is needed
    }
    e.loss -= std::log(p[static_cast<std::size_t>(label)] / total);
    std::fill(d_normed.begin(), d_normed.end(), 0.0);
    for (std::size_t word = 0; word < v; ++word) {
      const double one = word == static_cast<std::size_t>(label) ? 1 : 0;
      const double d_logit = static_cast<double>(head.runner.scalars.loss_gradient) * (p[word] / total - one);
      e.logit_bias[word] += d_logit;
      for (std::size_t i = 0; i < d; ++i) {
        d_normed[i] += d_logit * w[word * d + i];
        e.weight[word * d + i] += d_logit * normed[i];
      }
    }
    double mean_d = 0, mean_du = 0;
    for (std::size_t i = 0; i < d; ++i) {
      e.gain[i] += d_normed[i] * unit[i];
      e.bias[i] += d_normed[i];
      if (s.layernorm) mean_d += d_normed[i] * gain[i] / n;
      mean_du += d_normed[i] * gain[i] * unit[i] / n;
    }
    for (std::size_t i = 0; i < d; ++i) e.dx[t * d + i] = rstd * (d_normed[i] * gain[i] - mean_d - unit[i] * mean_du);
  }
  return e;
}

// fp32: sums of some hundred terms of either sign, each off by some 2^-24. bf16: the normed x, the logits' gradient and
// its product with W are each rounded, by 2^-9 at most, and an error of the normed x shifts the softmax.
double tolerance(const Shape& s) {
  return s.dtype == DType::fp32 ? 2e-6 : 4 * 0x1p-9;
}

void expect_matches(TestedHead& head) {
  const Expected e = reference(head);
  const double tolerance_ = tolerance(head.shape);
  const double loss = head->loss(true);
  // The loss is not rounded to the dtype, and the errors of its rows have either sign.
  EXPECT_NEAR(loss, e.loss, tolerance_ / 20 * e.loss);
  EXPECT_LT(relative_error(head->dx.doubles(), e.dx), tolerance_) << "dx";
  EXPECT_LT(relative_error(head.weight_gradient(), e.weight), tolerance_) << "dW";
  EXPECT_LT(relative_error(head->tensor(head->gradients, "ln_f.weight"), e.gain), tolerance_) << "the gain";
  if (head.shape.layernorm) {
    EXPECT_LT(relative_error(head->tensor(head->gradients, "ln_f.bias"), e.bias), tolerance_) << "the bias";
  }
  if (head.shape.logit_bias) {
    EXPECT_LT(relative_error(head->tensor(head->gradients, "lm_head.bias"), e.logit_bias), tolerance_) << "the words";
  }
  for (std::size_t t = 0; t < head.shape.tokens; ++t) {
    if (head->labels[t] != device::kIgnoredLabel) continue;
    for (std::size_t i = 0; i < head.shape.hidden; ++i) ASSERT_EQ(head->dx[t * head.shape.hidden + i], 0);
  }
  // The accumulator's elements past the table belong to the embedding: zero, whatever was there.
  for (std::size_t i = head.table(); i < head->shared_gradients.size(); ++i)
    ASSERT_EQ(head->shared_gradients[i], 0) << i;
}

class HeadTest : public ::testing::TestWithParam<Shape> {};

TEST_P(HeadTest, MatchesTheReference) {
  TestedHead head(GetParam());
  expect_matches(head);
}

TEST_P(HeadTest, LossesAloneAreTheSameAndWriteNoGradient) {
  TestedHead head(GetParam());
  const double learnt = head->loss(true);
  EXPECT_EQ(head->loss(false), learnt);
  for (const testing::Buffer* gradients : {&head->dx, &head->gradients, &head->shared_gradients})
    for (std::size_t i = 0; i < gradients->size(); ++i) ASSERT_TRUE(gradients->is_untouched(i));
}

TEST_P(HeadTest, ResultsDoNotDependOnThreads) {
  TestedHead one(GetParam(), 1), three(GetParam(), 3);
  EXPECT_EQ(one->loss(true), three->loss(true));
  EXPECT_TRUE(one->dx.bits() == three->dx.bits());
  EXPECT_TRUE(one.weight_gradient() == three.weight_gradient());
  EXPECT_TRUE(one->gradients.bits() == three->gradients.bits());
}

TEST_P(HeadTest, TilesGiveTheSameResult) {
  TestedHead head(GetParam());
  const double loss = head->loss(true);
  const auto dx = head->dx.bits(), gradients = head->gradients.bits(), tied = head->shared_gradients.bits();
  EXPECT_EQ(head->tiled_loss(), loss);
  EXPECT_TRUE(head->dx.bits() == dx);
  EXPECT_TRUE(head->gradients.bits() == gradients);
  EXPECT_TRUE(head->shared_gradients.bits() == tied);
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadTest,
                         ::testing::Values(Shape{97, 24, 50, true, true}, Shape{97, 24, 50, true, false},
                                           Shape{97, 24, 50, false, true}, Shape{97, 24, 50, false, false},
                                           Shape{64, 64, 33, true, true},  // the table ends with a block: no tail
                                           // There are three tiles of the table, and the last is short.
                                           Shape{8200, 24, 50, true, true}, Shape{8200, 24, 50, false, false},
                                           Shape{8200, 24, 50, true, true, DType::bf16},
                                           Shape{97, 24, 50, true, true, DType::bf16},
                                           Shape{97, 24, 50, false, false, DType::bf16},
                                           Shape{97, 24, 50, true, true, DType::fp32, true},
                                           Shape{97, 24, 50, true, true, DType::bf16, true},
                                           Shape{8200, 24, 50, true, true, DType::fp32, true},
                                           Shape{8200, 24, 50, true, false, DType::fp32, true},
                                           Shape{8200, 24, 50, true, true, DType::bf16, true}));

// The loss takes 13 of 50 rows and has room for 16. The result is as if there were no other rows.
class LossRowsTest : public ::testing::TestWithParam<Shape> {};

TEST_P(LossRowsTest, TheHeadIgnoresOtherRows) {
  constexpr std::size_t kCapacity = 16, kTaken = 13;
  Shape whole = GetParam(), few = whole;
  whole.loss_rows = few.tokens = kCapacity;
  TestedHead head(whole), alone(few);
  head->loss_rows.assign(kCapacity, 0);
  for (std::size_t i = 0; i < kCapacity; ++i) {
    if (i < kTaken) head->loss_rows[i] = static_cast<std::uint32_t>(3 + 3 * i);
    head->labels[i] = alone->labels[i] = i < kTaken ? static_cast<std::int32_t>(5 * i) : device::kIgnoredLabel;
    for (std::size_t k = 0; k < whole.hidden; ++k)
      alone->x.set(i * whole.hidden + k, head->x[head->loss_rows[i] * whole.hidden + k]);
  }
  for (auto [to, from] : {std::pair{&alone->parameters, &head->parameters}, {&alone->shared, &head->shared}})
    if (from->size() > 0) std::memcpy(to->view().data, from->view().data, from->view().bytes());

  const double loss = head->loss(true);
  EXPECT_EQ(loss, alone->loss(true));
  EXPECT_TRUE(head->gradients.bits() == alone->gradients.bits());
  EXPECT_TRUE(head->shared_gradients.bits() == alone->shared_gradients.bits());
  Doubles dx(whole.tokens * whole.hidden);
  for (std::size_t i = 0; i < kTaken; ++i)
    for (std::size_t k = 0; k < whole.hidden; ++k)
      dx[head->loss_rows[i] * whole.hidden + k] = alone->dx[i * whole.hidden + k];
  EXPECT_TRUE(head->dx.doubles() == dx);

  const auto bits = head->dx.bits(), gradients = head->gradients.bits(), tied = head->shared_gradients.bits();
  EXPECT_EQ(head->loss(false), loss);
  EXPECT_EQ(head->tiled_loss(), loss);
  EXPECT_TRUE(head->dx.bits() == bits);
  EXPECT_TRUE(head->gradients.bits() == gradients);
  EXPECT_TRUE(head->shared_gradients.bits() == tied);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LossRowsTest,
                         ::testing::Values(Shape{97, 24, 50, true, true}, Shape{97, 24, 50, false, false},
                                           Shape{97, 24, 50, true, true, DType::fp32, true, 0, true},
                                           Shape{8200, 30, 50, true, true, DType::bf16, true, 0, true},
                                           Shape{8200, 24, 50, false, false, DType::fp32, false, 0, true}));

// head_input_test checks the transform's mathematics. This checks that the head uses its gradient.
TEST(HeadTransformTest, GradientsAreDifferencesOfTheLoss) {
  TestedHead head({97, 24, 20, true, true, DType::fp32, true, 0, true});
  head->scalars.loss_gradient = 1;
  (void)head->loss(true);
  const Doubles weight = head->tensor(head->gradients, "transform.weight"),
                bias = head->tensor(head->gradients, "transform.bias"), dx = head->dx.doubles();
  // The error is the square of loss_slope()'s step times a third derivative of about the gradient's size.
  constexpr double kError = 2e-3;
  const std::size_t w = head->parameter("transform.weight").offset, b = head->parameter("transform.bias").offset;
  for (const std::size_t i : {0, 7, 300, 575})
    EXPECT_NEAR(head->loss_slope(head->parameters, w + i), weight[i], kError);
  for (const std::size_t i : {0, 11, 23}) EXPECT_NEAR(head->loss_slope(head->parameters, b + i), bias[i], kError);
  for (const std::size_t i : {0, 100, 479}) EXPECT_NEAR(head->loss_slope(head->x, i), dx[i], kError);
}

// The case is so large that not all logits exist at once: there are chunks of 64 and 63 rows.
TEST(HeadChunksTest, MatchTheReference) {
  for (const bool tied : {false, true}) {
    TestedHead head({200003, 2, 127, tied, tied, DType::fp32, tied});
    ASSERT_EQ(head.chunks(), 2u);
    expect_matches(head);
  }
}

// With so large a vocabulary, a chunk has 64 rows, the minimum: 130 tokens are in chunks of 44, 44 and 42. The same
// tokens, 50 at a time in one chunk, give the same rows, and the same sums except for their order.
TEST(HeadChunksTest, ChunkingChangesSumsByTheirRoundingOnly) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Shape whole{263000, 4, 130, false, false, dtype};
    TestedHead head(whole);
    ASSERT_EQ(head.chunks(), 3u);
    const double loss = head->loss(true);

    double pieces_loss = 0;
    Doubles weight(head.table()), gain(whole.hidden), dx;
    for (std::size_t begin = 0; begin < whole.tokens; begin += 50) {
      Shape part = whole;
      part.tokens = std::min<std::size_t>(50, whole.tokens - begin);
      TestedHead piece(part);
      ASSERT_EQ(piece.chunks(), 1u);
      for (std::size_t i = 0; i < part.tokens * part.hidden; ++i) piece->x.set(i, head->x[begin * part.hidden + i]);
      std::copy_n(head->labels.begin() + static_cast<std::ptrdiff_t>(begin), part.tokens, piece->labels.begin());
      std::memcpy(piece->parameters.view().data, head->parameters.view().data, head->parameters.view().bytes());
      pieces_loss += piece->loss(true);
      weight = sum(weight, piece.weight_gradient());
      gain = sum(gain, piece->tensor(piece->gradients, "ln_f.weight"));
      for (const double v : piece->dx.doubles()) dx.push_back(v);
    }
    // Rows are independent, but the order of a product's sums may depend on its shape.
    EXPECT_NEAR(pieces_loss, loss, 1e-7 * loss);
    EXPECT_LT(relative_error(dx, head->dx.doubles()), dtype == DType::fp32 ? 1e-6 : 0x1p-9);
    EXPECT_LT(relative_error(weight, head.weight_gradient()), tolerance(whole));
    EXPECT_LT(relative_error(gain, head->tensor(head->gradients, "ln_f.weight")), tolerance(whole));
  }
}

TEST(HeadUnitTest, GradientsAreZeroWithoutLabels) {
  TestedHead head({97, 24, 50, true, true});
  for (std::int32_t& label : head->labels) label = device::kIgnoredLabel;
  EXPECT_EQ(head->loss(true), 0);
  for (const testing::Buffer* gradients : {&head->dx, &head->shared_gradients})
    for (const double v : gradients->doubles()) ASSERT_EQ(v, 0);
  for (const char* name : {"ln_f.weight", "ln_f.bias"})
    for (const double v : head->tensor(head->gradients, name)) ASSERT_EQ(v, 0);
}

}  // namespace
}  // namespace strata::models
