// The adapter of a head's projection against double precision, and what of its results depends on nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/ops/losses/losses.h"
#include "models/layers/heads/heads.h"
#include "models/layers/heads/table_tiles.h"
#include "tests/failure.h"
#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::relative_error;
using testing::UnitRunner;

constexpr float kAdaptedEps = 0.03f;
constexpr double kScale = 1.5;

struct AdaptedShape {
  std::size_t vocabulary, hidden, tokens, rank;
  DType dtype = DType::fp32;
  double dropout = 0;
  bool logit_bias = false;
  std::size_t loss_rows = 0;
};
void PrintTo(const AdaptedShape& s, std::ostream* out) {
  *out << s.vocabulary << " words, " << s.tokens << " tokens, rank " << s.rank << ", dropout " << s.dropout << ", "
       << name_of(s.dtype);
}

std::shared_ptr<const Adapter> adapter_of(const AdaptedShape& s) {
  Adapter out{.rank = static_cast<std::int64_t>(s.rank), .alpha = kScale * static_cast<double>(s.rank)};
  out.target_modules = {{"lm_head"}, {}};
  out.dropout = s.dropout;
  return std::make_shared<const Adapter>(out);
}

std::unique_ptr<LossUnit> adapted_head(const AdaptedShape& s, const RunShape& run) {
  HeadSpec spec{"ln_f.weight", "", "lm_head.weight", s.vocabulary, s.hidden, kAdaptedEps, {0, 0.02f}};
  if (s.logit_bias) spec.logit_bias_name = "lm_head.bias";
  return make_head(spec, run);
}

struct AdaptedHead {
  explicit AdaptedHead(const AdaptedShape& s, int threads = 1)
      : shape(s),
        run{.batch = 1,
            .seq = s.tokens,
            .dtype = s.dtype,
            .threads = threads,
            .loss_rows = s.loss_rows,
            .adapter = adapter_of(s)},
        unit(adapted_head(s, run)),
        runner(*unit, run, s.hidden) {
    for (std::size_t t = 0; t < s.tokens; ++t) {
      const auto label = static_cast<std::int32_t>(runner.below(static_cast<std::uint32_t>(s.vocabulary)));
      runner.labels[t] = t % 5 == 3 ? device::kIgnoredLabel : label;
    }
    runner.labels[0] = static_cast<std::int32_t>(s.vocabulary) - 1;
  }
  UnitRunner* operator->() { return &runner; }
  Doubles frozen(const char* name) const {
    const Parameter& p = runner.parameter(name);
    return runner.frozen.doubles(place_in_pool(p.offset), p.size());
  }
  Doubles trained(const char* name) const { return runner.tensor(runner.parameters, name); }
  Doubles gradient(const char* name) const { return runner.tensor(runner.gradients, name); }

  AdaptedShape shape;
  RunShape run;
  std::unique_ptr<LossUnit> unit;
  UnitRunner runner;
};

struct AdaptedGradients {
  double loss = 0;
  Doubles dx, a, b;
};

// Of loss_gradient * (sum of the losses), row by row.
AdaptedGradients adapted_reference(const AdaptedHead& head) {
  const AdaptedShape& s = head.shape;
  const std::size_t d = s.hidden, v = s.vocabulary, r = s.rank;
  const Doubles x = head.runner.x.doubles(), w = head.frozen("lm_head.weight"), gain = head.frozen("ln_f.weight");
  const Doubles a = head.trained("lora_A.weight"), b = head.trained("lora_B.weight");
  const Doubles bias = s.logit_bias ? head.frozen("lm_head.bias") : Doubles(v);
  AdaptedGradients e{0, Doubles(x.size()), Doubles(a.size()), Doubles(b.size())};
  const double n = static_cast<double>(d);
  Doubles p(v), unit(d), normed(d), d_normed(d), down(r), d_down(r);
  for (std::size_t t = 0; t < s.tokens; ++t) {
    const std::int32_t label = head.runner.labels[t];
    if (label == device::kIgnoredLabel) continue;
    double square = 0;
    for (std::size_t i = 0; i < d; ++i) square += x[t * d + i] * x[t * d + i] / n;
    const double rstd = 1 / std::sqrt(square + static_cast<double>(kAdaptedEps));
    for (std::size_t i = 0; i < d; ++i) {
      unit[i] = x[t * d + i] * rstd;
      normed[i] = unit[i] * gain[i];
    }
    for (std::size_t k = 0; k < r; ++k) {
      down[k] = d_down[k] = 0;
      for (std::size_t i = 0; i < d; ++i) down[k] += kScale * a[k * d + i] * normed[i];
    }
    double total = 0;
    for (std::size_t word = 0; word < v; ++word) {
      double logit = bias[word];
      for (std::size_t i = 0; i < d; ++i) logit += normed[i] * w[word * d + i];
      for (std::size_t k = 0; k < r; ++k) logit += down[k] * b[word * r + k];
      total += p[word] = std::exp(logit);
    }
    e.loss -= std::log(p[static_cast<std::size_t>(label)] / total);
    std::fill(d_normed.begin(), d_normed.end(), 0.0);
    for (std::size_t word = 0; word < v; ++word) {
      const double one = word == static_cast<std::size_t>(label) ? 1 : 0;
      const double d_logit = static_cast<double>(head.runner.scalars.loss_gradient) * (p[word] / total - one);
      for (std::size_t i = 0; i < d; ++i) d_normed[i] += d_logit * w[word * d + i];
      for (std::size_t k = 0; k < r; ++k) {
        e.b[word * r + k] += d_logit * down[k];
        d_down[k] += kScale * d_logit * b[word * r + k];
      }
    }
    double mean_du = 0;
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t k = 0; k < r; ++k) {
        e.a[k * d + i] += d_down[k] * normed[i];
        d_normed[i] += d_down[k] * a[k * d + i];
      }
      mean_du += d_normed[i] * gain[i] * unit[i] / n;
    }
    for (std::size_t i = 0; i < d; ++i) e.dx[t * d + i] = rstd * (d_normed[i] * gain[i] - unit[i] * mean_du);
  }
  return e;
}

// fp32: as in head_test. bf16: s x A^T and its gradient are rounded, too.
double adapted_tolerance(const AdaptedShape& s) {
  return s.dtype == DType::fp32 ? 3e-6 : 6 * 0x1p-9;
}

void expect_adapted_matches(AdaptedHead& head) {
  const AdaptedGradients e = adapted_reference(head);
  const double tolerance = adapted_tolerance(head.shape);
  EXPECT_NEAR(head->loss(true), e.loss, tolerance / 20 * e.loss);
  EXPECT_LT(relative_error(head->dx.doubles(), e.dx), tolerance) << "dx";
  EXPECT_LT(relative_error(head.gradient("lora_A.weight"), e.a), tolerance) << "dA";
  EXPECT_LT(relative_error(head.gradient("lora_B.weight"), e.b), tolerance) << "dB";
}

class HeadAdapterTest : public ::testing::TestWithParam<AdaptedShape> {};

TEST_P(HeadAdapterTest, MatchesTheReference) {
  AdaptedHead head(GetParam());
  if (GetParam().dropout == 0) expect_adapted_matches(head);
}

TEST_P(HeadAdapterTest, LossesAloneAreTheSameAndWriteNoGradient) {
  AdaptedHead head(GetParam());
  const double learnt = head->loss(true);
  EXPECT_EQ(head->loss(false), learnt);
  for (const testing::Buffer* gradients : {&head->dx, &head->gradients})
    for (std::size_t i = 0; i < gradients->size(); ++i) ASSERT_TRUE(gradients->is_untouched(i));
}

TEST_P(HeadAdapterTest, ResultsDoNotDependOnThreadsOrTiles) {
  AdaptedHead one(GetParam(), 1), three(GetParam(), 3);
  const double loss = one->loss(true);
  EXPECT_EQ(three->loss(true), loss);
  const auto dx = one->dx.bits(), gradients = one->gradients.bits();
  EXPECT_TRUE(three->dx.bits() == dx);
  EXPECT_TRUE(three->gradients.bits() == gradients);
  EXPECT_EQ(one->tiled_loss(), loss);
  EXPECT_TRUE(one->dx.bits() == dx);
  EXPECT_TRUE(one->gradients.bits() == gradients);
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadAdapterTest,
                         ::testing::Values(AdaptedShape{97, 24, 50, 3}, AdaptedShape{97, 24, 50, 3, DType::bf16},
                                           AdaptedShape{97, 24, 50, 4, DType::fp32, 0, true},
                                           AdaptedShape{97, 24, 50, 4, DType::fp32, 0.25},
                                           AdaptedShape{97, 24, 50, 5, DType::bf16, 0.25},
                                           // There are three tiles of the table, and the last is short.
                                           AdaptedShape{8200, 24, 50, 3}, AdaptedShape{8200, 24, 50, 5, DType::bf16},
                                           AdaptedShape{8200, 24, 50, 2, DType::bf16, 0.25, true}));

// There are chunks of 64 and 63 rows.
TEST(HeadAdapterChunks, MatchTheReference) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    AdaptedHead head({200003, 4, 127, 2, dtype});
    expect_adapted_matches(head);
    const auto gradients = head->gradients.bits(), dx = head->dx.bits();
    (void)head->tiled_loss();
    EXPECT_TRUE(head->gradients.bits() == gradients);
    EXPECT_TRUE(head->dx.bits() == dx);
  }
}

// The same random numbers decide on the input of A in forward and backward.
TEST(HeadAdapterDropout, GradientsAreDifferencesOfTheLoss) {
  AdaptedHead head({97, 24, 20, 3, DType::fp32, 0.25});
  head->scalars.loss_gradient = 1;
  const double loss = head->loss(true);
  const Doubles a = head.gradient("lora_A.weight"), b = head.gradient("lora_B.weight"), dx = head->dx.doubles();
  // The error is the square of loss_slope()'s step times a third derivative of about the gradient's size.
  constexpr double kError = 2e-3;
  const std::size_t of_a = head->parameter("lora_A.weight").offset, of_b = head->parameter("lora_B.weight").offset;
  for (const std::size_t i : {0, 7, 30, 71}) EXPECT_NEAR(head->loss_slope(head->parameters, of_a + i), a[i], kError);
  for (const std::size_t i : {0, 11, 290}) EXPECT_NEAR(head->loss_slope(head->parameters, of_b + i), b[i], kError);
  for (const std::size_t i : {0, 100, 479}) EXPECT_NEAR(head->loss_slope(head->x, i), dx[i], kError);
  ++head->micro_batch;
  EXPECT_NE(head->loss(false), loss) << "other elements are dropped";
}

TEST(HeadAdapterRows, OtherRowsDoNotCount) {
  AdaptedShape whole{97, 24, 50, 3}, few = whole;
  whole.loss_rows = few.tokens = 16;
  AdaptedHead head(whole), alone(few);
  head->loss_rows.assign(16, 0);
  for (std::size_t i = 0; i < 16; ++i) {
    head->loss_rows[i] = static_cast<std::uint32_t>(3 * i);
    head->labels[i] = alone->labels[i] = static_cast<std::int32_t>(5 * i);
    for (std::size_t k = 0; k < whole.hidden; ++k)
      alone->x.set(i * whole.hidden + k, head->x[head->loss_rows[i] * whole.hidden + k]);
  }
  for (auto [to, from] : {std::pair{&alone->parameters, &head->parameters}, {&alone->frozen, &head->frozen}})
    std::memcpy(to->view().data, from->view().data, from->view().bytes());
  EXPECT_EQ(head->loss(true), alone->loss(true));
  EXPECT_TRUE(head->gradients.bits() == alone->gradients.bits());
}

// B's rows lie in the parts of the table's tiles, A in the part before them.
TEST(HeadAdapterParts, FollowTheTable) {
  const AdaptedShape shape{8200, 24, 50, 3};
  const AdaptedHead head(shape);
  const auto parts = head.unit->parts();
  ASSERT_EQ(parts.size(), 4u);
  const Parameter &a = head.runner.parameter("lora_A.weight"), &b = head.runner.parameter("lora_B.weight");
  EXPECT_EQ(a.offset, 0u);
  EXPECT_EQ(parts[0].end, b.offset);
  for (std::size_t tile = 0; tile < 3; ++tile) {
    EXPECT_EQ(parts[tile + 1].begin, b.offset + tile * TableTiles::rows_on(device::Kind::cpu) * shape.rank);
    EXPECT_EQ(parts[tile + 1].begin, parts[tile].end);
  }
  EXPECT_EQ(parts[3].end, head.unit->size());
  EXPECT_EQ(parts[3].frozen.end, head.unit->size(PoolKind::frozen));
}

TEST(HeadAdapterTargets, TheOutputLayerHasToBeNamed) {
  const AdaptedShape shape{97, 24, 50, 3};
  const auto made = [&](Adapter adapter) {
    return adapted_head(
        shape,
        {.batch = 1, .seq = 50, .dtype = DType::fp32, .threads = 1, .adapter = std::make_shared<Adapter>(adapter)});
  };
  EXPECT_FALSE(made({})->trains()) << "all-linear leaves it out";
  EXPECT_TRUE(made({.target_modules = {{}, ".*"}})->trains());
  const auto one = made({.rank = 2, .target_modules = {{"lm_head"}, {}}, .rank_pattern = {{"lm_head", 5}}});
  ASSERT_EQ(one->linear_layers().size(), 1u);
  EXPECT_EQ(one->linear_layers()[0].low_rank.rank, 5u);
  EXPECT_FAILURE((void)made({.target_modules = {{"lm_head"}, {}}, .dora = true}), Exit::usage,
                 ::testing::HasSubstr("adapter.dora: lm_head is the output layer"));
}

// What the adapter adds to the cost is what its products compute.
TEST(HeadAdapterWork, CountsItsProducts) {
  const AdaptedShape shape{97, 24, 50, 3};
  const RunShape run{.batch = 1, .seq = 50, .dtype = DType::fp32, .threads = 1};
  RunShape with = run;
  with.adapter = adapter_of(shape);
  RunShape frozen = run;
  frozen.freeze = {"*"};
  const auto adapted = adapted_head(shape, with), plain = adapted_head(shape, frozen);
  const auto flops = [](const LossUnit& unit) {
    std::vector<device::ProductShape> products;
    unit.list_products(products);
    double sum = 0;
    for (const device::ProductShape& p : products)
      sum += 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    return sum;
  };
  EXPECT_EQ(adapted->loss_work(true).flops - plain->loss_work(true).flops, flops(*adapted) - flops(*plain));
  const double forward = 2 * 50 * 3 * (24 + 97);
  EXPECT_EQ(adapted->loss_work(false).flops - plain->loss_work(false).flops, forward);
  double steps = adapted->step_work(LossStep::norm, 0).flops + adapted->step_work(LossStep::finish, 0).flops;
  for (const LossStep step : {LossStep::statistics, LossStep::gradients})
    steps += adapted->step_work(step, 97 * (24 + 3)).flops;
  EXPECT_EQ(steps, adapted->loss_work(true).flops + 2 * 50 * 97 * (24 + 3)) << "the logits are computed twice";
}

}  // namespace
}  // namespace strata::models
