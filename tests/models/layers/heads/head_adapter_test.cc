// The adapter of a head's projection against double precision, and what of its results depends on nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "device/ops/losses/losses.h"
#include "models/layers/heads/heads.h"
#include "models/layers/heads/table_tiles.h"
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
  bool dora = false;
};
void PrintTo(const AdaptedShape& s, std::ostream* out) {
  *out << s.vocabulary << " words, " << s.tokens << " tokens, rank " << s.rank << ", dropout " << s.dropout << ", "
       << name_of(s.dtype) << (s.dora ? ", DoRA" : "");
}
AdaptedShape with_dora(AdaptedShape s) {
  s.dora = true;
  return s;
}

std::shared_ptr<const Adapter> adapter_of(const AdaptedShape& s) {
  Adapter out{.rank = static_cast<std::int64_t>(s.rank), .alpha = kScale * static_cast<double>(s.rank)};
  out.target_modules = {{"lm_head"}, {}};
  out.dropout = s.dropout;
  out.dora = s.dora;
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
  // |W + s B A| of each word, or 1 without DoRA.
  Doubles norms() const {
    if (!shape.dora) return Doubles(shape.vocabulary, 1);
    const Doubles w = frozen("lm_head.weight"), a = trained("lora_A.weight"), b = trained("lora_B.weight");
    Doubles out(shape.vocabulary);
    for (std::size_t word = 0; word < out.size(); ++word) {
      for (std::size_t i = 0; i < shape.hidden; ++i) {
        double value = w[word * shape.hidden + i];
        for (std::size_t k = 0; k < shape.rank; ++k)
          value += kScale * b[word * shape.rank + k] * a[k * shape.hidden + i];
        out[word] += value * value;
      }
      out[word] = std::sqrt(out[word]);
    }
    return out;
  }
  Doubles magnitudes() const { return shape.dora ? trained("lora_magnitude_vector") : Doubles(shape.vocabulary, 1); }

  AdaptedShape shape;
  RunShape run;
  std::unique_ptr<LossUnit> unit;
  UnitRunner runner;
};

struct AdaptedGradients {
  double loss = 0;
  Doubles dx, a, b, m;
};

// Of loss_gradient * (sum of the losses), row by row.
AdaptedGradients adapted_reference(const AdaptedHead& head) {
  const AdaptedShape& s = head.shape;
  const std::size_t d = s.hidden, v = s.vocabulary, r = s.rank;
  const Doubles x = head.runner.x.doubles(), w = head.frozen("lm_head.weight"), gain = head.frozen("ln_f.weight");
  const Doubles a = head.trained("lora_A.weight"), b = head.trained("lora_B.weight");
  const Doubles bias = s.logit_bias ? head.frozen("lm_head.bias") : Doubles(v);
  const Doubles norms = head.norms(), m = head.magnitudes();
  AdaptedGradients e{0, Doubles(x.size()), Doubles(a.size()), Doubles(b.size()), Doubles(v)};
  const double n = static_cast<double>(d);
  Doubles p(v), z(v), unit(d), normed(d), d_normed(d), down(r), d_down(r);
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
      z[word] = 0;
      for (std::size_t i = 0; i < d; ++i) z[word] += normed[i] * w[word * d + i];
      for (std::size_t k = 0; k < r; ++k) z[word] += down[k] * b[word * r + k];
      total += p[word] = std::exp(m[word] / norms[word] * z[word] + bias[word]);
    }
    e.loss -= std::log(p[static_cast<std::size_t>(label)] / total);
    std::fill(d_normed.begin(), d_normed.end(), 0.0);
    for (std::size_t word = 0; word < v; ++word) {
      const double one = word == static_cast<std::size_t>(label) ? 1 : 0;
      double d_logit = static_cast<double>(head.runner.scalars.loss_gradient) * (p[word] / total - one);
      e.m[word] += d_logit * z[word] / norms[word];
      d_logit *= m[word] / norms[word];
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
  if (head.shape.dora) {
    EXPECT_LT(relative_error(head.gradient("lora_magnitude_vector"), e.m), tolerance) << "dm";
  }
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
                                           AdaptedShape{8200, 24, 50, 2, DType::bf16, 0.25, true},
                                           with_dora({97, 24, 50, 3}), with_dora({97, 24, 50, 3, DType::bf16, 0, true}),
                                           with_dora({97, 24, 50, 4, DType::fp32, 0.25, true}),
                                           with_dora({8200, 24, 50, 3, DType::fp32, 0, true}),
                                           with_dora({8200, 24, 50, 5, DType::bf16}),
                                           with_dora({8200, 24, 50, 2, DType::bf16, 0.25})));

// There are chunks of 64 and 63 rows.
TEST(HeadAdapterChunks, MatchTheReference) {
  for (const auto& [dtype, dora] :
       {std::pair{DType::fp32, false}, {DType::bf16, false}, {DType::fp32, true}, {DType::bf16, true}}) {
    AdaptedShape shape{200003, 4, 127, 2, dtype};
    shape.dora = dora;
    AdaptedHead head(shape);
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

// Differences with g constant: magnitudes follow the norms.
double slope_of_factor(AdaptedHead& head, std::size_t element) {
  constexpr double kStep = 0x1p-6;
  testing::Buffer& parameters = head->parameters;
  const Doubles norms = head.norms(), m = head.magnitudes();
  const std::size_t first = head->parameter("lora_magnitude_vector").offset;
  const double at = parameters[element];
  const auto loss = [&](double value) {
    parameters.set(element, value);
    const Doubles now = head.norms();
    for (std::size_t i = 0; i < m.size(); ++i) parameters.set(first + i, m[i] * now[i] / norms[i]);
    return head->loss(false);
  };
  const double above = loss(at + kStep), below = loss(at - kStep);
  (void)loss(at);
  return (above - below) / (2 * kStep);
}

// With DoRA, the logits that dropout leaves alone are not scaled, and norms count as constants.
TEST(HeadAdapterDropout, GradientsOfDoraAreDifferencesOfTheLoss) {
  AdaptedHead head(with_dora({97, 24, 20, 3, DType::fp32, 0.25, true}));
  head->scalars.loss_gradient = 1;
  (void)head->loss(true);
  const Doubles a = head.gradient("lora_A.weight"), b = head.gradient("lora_B.weight"), dx = head->dx.doubles();
  const Doubles m = head.gradient("lora_magnitude_vector");
  constexpr double kError = 2e-3;
  const auto place = [&](const char* name) { return head->parameter(name).offset; };
  for (const std::size_t i : {0, 7, 30, 71})
    EXPECT_NEAR(slope_of_factor(head, place("lora_A.weight") + i), a[i], kError);
  for (const std::size_t i : {0, 11, 290}) EXPECT_NEAR(slope_of_factor(head, place("lora_B.weight") + i), b[i], kError);
  for (const std::size_t i : {0, 40, 96})
    EXPECT_NEAR(head->loss_slope(head->parameters, place("lora_magnitude_vector") + i), m[i], kError);
  for (const std::size_t i : {0, 100, 479}) EXPECT_NEAR(head->loss_slope(head->x, i), dx[i], kError);
}

// Without whole fours of elements in a row, chunks still begin with whole fours.
TEST(HeadAdapterDropout, ChunksOfDoraDropWhatTheWholeDrops) {
  AdaptedHead head(with_dora({200003, 5, 129, 2, DType::fp32, 0.25}));
  head->scalars.loss_gradient = 1;
  (void)head->loss(true);
  const auto gradients = head->gradients.bits(), dx_bits = head->dx.bits();
  const Doubles dx = head->dx.doubles();
  (void)head->tiled_loss();
  EXPECT_TRUE(head->gradients.bits() == gradients);
  EXPECT_TRUE(head->dx.bits() == dx_bits);
  for (const std::size_t i : {3, 385, 386, 500, 501, 503, 634})  // most are of the second chunk
    EXPECT_NEAR(head->loss_slope(head->x, i), dx[i], 2e-3) << i;
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

// B's rows lie in the parts of the table's tiles, A and magnitudes in the part before them.
TEST(HeadAdapterParts, FollowTheTable) {
  const AdaptedShape shape = with_dora({8200, 24, 50, 3});
  const AdaptedHead head(shape);
  const auto parts = head.unit->parts();
  ASSERT_EQ(parts.size(), 4u);
  const Parameter &a = head.runner.parameter("lora_A.weight"), &b = head.runner.parameter("lora_B.weight");
  EXPECT_EQ(a.offset, 0u);
  EXPECT_LT(head.runner.parameter("lora_magnitude_vector").offset, b.offset);
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
}

// The adapter's cost is that of its products and of DoRA's norms.
TEST(HeadAdapterWork, CountsItsProducts) {
  AdaptedShape dropped = with_dora({97, 24, 50, 3});
  dropped.dropout = 0.25;
  for (const AdaptedShape& shape : {AdaptedShape{97, 24, 50, 3}, with_dora({97, 24, 50, 3}), dropped}) {
    const RunShape run{.batch = 1, .seq = 50, .dtype = DType::fp32, .threads = 1};
    RunShape with = run, frozen = run;
    with.adapter = adapter_of(shape);
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
    const double norms = shape.dora ? 2 * 97 * 24 * (3 + 1) : 0, logits = 2 * 50 * 97 * (shape.dropout > 0 ? 48 : 24);
    EXPECT_EQ(adapted->loss_work(true).flops - plain->loss_work(true).flops, flops(*adapted) - flops(*plain) + norms);
    const double forward = logits + 2 * 50 * 3 * (24 + 97) + norms;
    EXPECT_EQ(adapted->loss_work(false).flops, forward);
    double steps = adapted->step_work(LossStep::norm, 0).flops + adapted->step_work(LossStep::finish, 0).flops;
    for (const LossStep step : {LossStep::statistics, LossStep::gradients})
      steps += adapted->step_work(step, 97 * (24 + 3)).flops;
    EXPECT_EQ(steps, adapted->loss_work(true).flops + logits + 2 * 50 * 97 * 3) << "the logits are computed twice";
  }
}

}  // namespace
}  // namespace strata::models
