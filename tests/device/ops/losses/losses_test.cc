#include "device/ops/losses/losses.h"

#include <bit>
#include <limits>

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

constexpr float kCrossEntropyInf = std::numeric_limits<float>::infinity();

// Computes losses and, with scalars, the gradient in place, for all columns at once.
void cross_entropy(Lane& lane, std::size_t rows, std::size_t vocab, View logits, const std::int32_t* labels,
                   const StepScalars* scalars, DType gradient, View losses, RowStatistics* statistics) {
  const LogitTile tile{rows, 0, vocab, vocab, logits, true};
  softmax_statistics(lane, tile, labels, statistics);
  cross_entropy_losses(lane, vocab, statistics, labels, losses);
  if (scalars) cross_entropy_gradient(lane, tile, labels, statistics, scalars, gradient);
}

double loss_of(const std::vector<double>& x, std::size_t label) {
  double largest = x[0], sum = 0;
  for (const double v : x) largest = std::max(largest, v);
  for (const double v : x) sum += std::exp(v - largest);
  return std::log(sum) + largest - x[label];
}

struct Result {
  Array logits, losses;
};

class CrossEntropy : public ::testing::TestWithParam<std::size_t> {
 protected:
  const std::size_t vocab = GetParam(), rows = 9;
  Array logits = Array::random(DType::fp32, rows* vocab, 1, 8.0f);
  std::vector<std::int32_t> labels;
  StepScalars scalars{};

  void SetUp() override {
    scalars.loss_gradient = 0.25f;
    for (std::size_t r = 0; r < rows; ++r) labels.push_back(static_cast<std::int32_t>(r * 7919 % vocab));
    labels[0] = static_cast<std::int32_t>(vocab - 1);
    labels[1] = 0;
    labels[4] = kIgnoredLabel;
  }
  Result run(int threads, DType gradient, bool with_gradient = true) {
    Result r{logits, Array(DType::fp32, rows)};
    std::vector<RowStatistics> statistics(rows);
    in_lane(threads, [&](Lane& lane) {
      cross_entropy(lane, rows, vocab, r.logits.view(), labels.data(), with_gradient ? &scalars : nullptr, gradient,
                    r.losses.view(), statistics.data());
    });
    return r;
  }
};

TEST_P(CrossEntropy, LossesAndGradientInPlace) {
  for (const DType dtype : kDTypes) {
    const Result r = run(1, dtype);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto x = logits.doubles(row * vocab, vocab);
      Array gradient(dtype, vocab);  // starts where the row of logits starts
      std::memcpy(gradient.data(), r.logits.data() + row * vocab * 4, vocab * size_of(dtype));
      if (labels[row] == kIgnoredLabel) {
        EXPECT_EQ(r.losses[row], 0.0f);
        EXPECT_TRUE(gradient == Array(dtype, vocab));
        continue;
      }
      const auto label = static_cast<std::size_t>(labels[row]);
      const double loss = loss_of(x, label);
      ASSERT_NEAR(r.losses[row], loss, 2e-6 * std::max(1.0, loss));
      const double total = std::exp(loss + x[label]);  // the sum of exponentials
      for (std::size_t i = 0; i < vocab; ++i) {
        const double expected = 0.25 * (std::exp(x[i]) / total - (i == label ? 1.0 : 0.0));
        // x - largest is at most 16 and rounded in fp32: up to 16 units of e^x, besides the exponential's own.
        ASSERT_NEAR(gradient[i], expected, tolerance(dtype, expected, i == label ? 0.25 : std::abs(expected), 24))
            << name_of(dtype) << " row " << row << " column " << i;
      }
    }
  }
}

class SmallCrossEntropy : public CrossEntropy {};

TEST_P(SmallCrossEntropy, GradientAgreesWithDifferences) {
  const Result r = run(1, DType::fp32);
  for (std::size_t row = 0; row < rows; ++row) {
    if (labels[row] == kIgnoredLabel) continue;
    const auto d = testing::gradient_of(
        [&](const std::vector<double>& x) { return 0.25 * loss_of(x, static_cast<std::size_t>(labels[row])); },
        logits.doubles(row * vocab, vocab));
    for (std::size_t i = 0; i < vocab; ++i) ASSERT_NEAR(r.logits[row * vocab + i], d[i], 1e-6);
  }
}

TEST_P(CrossEntropy, WithoutScalarsOnlyLosses) {
  const Result both = run(1, DType::bf16), only = run(1, DType::bf16, false);
  EXPECT_TRUE(only.logits == logits);
  EXPECT_TRUE(only.losses == both.losses);
}

TEST_P(CrossEntropy, SameBitsOnAnyThreads) {
  for (const DType dtype : kDTypes)
    testing::expect_same_bits_on_any_threads([&](int threads) {
      const Result r = run(threads, dtype);
      return std::vector<Array>{r.logits, r.losses};
    });
}

// Tiles of whole pieces, each in its own memory, as in the head. They have the same bits as all columns at once.
TEST_P(CrossEntropy, SameBitsByTiles) {
  const std::size_t width = 2 * 4096, stride = width + 16;
  for (const DType dtype : kDTypes) {
    const Result whole = run(1, dtype);
    Array losses(DType::fp32, rows);
    std::vector<RowStatistics> statistics(rows);
    std::vector<Array> tiles;
    in_lane(2, [&](Lane& lane) {
      std::vector<LogitTile> all;
      for (std::size_t first = 0; first < vocab; first += width) {
        const std::size_t columns = std::min(width, vocab - first);
        Array& tile = tiles.emplace_back(DType::fp32, rows * stride);
        for (std::size_t r = 0; r < rows; ++r)
          std::memcpy(tile.floats() + r * stride, logits.data() + (r * vocab + first) * 4, columns * 4);
        all.push_back({rows, first, columns, stride, {}, first == 0});
      }
      for (std::size_t t = 0; t < tiles.size(); ++t) {
        all[t].logits = tiles[t].view();
        softmax_statistics(lane, all[t], labels.data(), statistics.data());
      }
      cross_entropy_losses(lane, vocab, statistics.data(), labels.data(), losses.view());
      for (const LogitTile& tile : all)
        cross_entropy_gradient(lane, tile, labels.data(), statistics.data(), &scalars, dtype);
    });
    EXPECT_TRUE(losses == whole.losses);
    for (std::size_t t = 0; t < tiles.size(); ++t)
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t columns = std::min(width, vocab - t * width);
        ASSERT_EQ(
            std::memcmp(tiles[t].data() + r * stride * 4,
                        whole.logits.data() + r * vocab * 4 + t * width * size_of(dtype), columns * size_of(dtype)),
            0)
            << name_of(dtype) << " tile " << t << " row " << r;
      }
  }
}

// Uses the statistics of shards, of which the last may be short or have no words.
TEST_P(CrossEntropy, StatisticsOfShards) {
  for (const std::size_t shards : {1, 2, 8, 64}) {
    const std::size_t words = (vocab + shards - 1) / shards;
    std::vector<RowStatistics> per_shard(shards * rows, {std::nan(""), std::nanf(""), std::nanf("")}), statistics(rows);
    Array losses(DType::fp32, rows);
    in_lane(2, [&](Lane& lane) {
      for (std::size_t v = 0; v * words < vocab; ++v) {
        const std::size_t columns = std::min(words, vocab - v * words);
        const View from{logits.data() + v * words * 4, logits.view().size - v * words, DType::fp32};
        softmax_statistics(lane, {rows, v * words, columns, vocab, from, true}, labels.data(), &per_shard[v * rows]);
      }
      combine_statistics(lane, {vocab, shards, words}, rows, per_shard.data(), labels.data(), statistics.data());
      cross_entropy_losses(lane, vocab, statistics.data(), labels.data(), losses.view());
    });
    for (std::size_t r = 0; r < rows; ++r) {
      const bool counts = labels[r] != kIgnoredLabel;
      const double loss = counts ? loss_of(logits.doubles(r * vocab, vocab), static_cast<std::size_t>(labels[r])) : 0;
      EXPECT_NEAR(losses[r], loss, 2e-6 * std::max(1.0, loss)) << shards << " shards, row " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SmallCrossEntropy, ::testing::Values(1, 2, 16, 77));
INSTANTIATE_TEST_SUITE_P(Vocabularies, CrossEntropy, ::testing::Values(1, 2, 15, 16, 17, 77, 4096, 4097, 9001, 50304));

TEST(CrossEntropyLimits, HugeMaskedAndNonFiniteLogits) {
  // Row 0: exponentials that would overflow if the largest were not subtracted; row 1: masked words; row 2: NaN; row 3:
  // +inf.
  Array x(DType::fp32, 4 * 3), losses(DType::fp32, 4);
  const float values[] = {3e4f,          -3e4f, 3e4f, -kCrossEntropyInf, 1.0f, -kCrossEntropyInf,
                          std::nanf(""), 0,     0,    kCrossEntropyInf,  0,    0};
  for (std::size_t i = 0; i < 12; ++i) x.set(i, values[i]);
  const std::int32_t labels[] = {0, 1, 1, 1};
  StepScalars scalars{};
  scalars.loss_gradient = 1;
  RowStatistics statistics[4];
  in_lane(1, [&](Lane& lane) {
    cross_entropy(lane, 4, 3, x.view(), labels, &scalars, DType::fp32, losses.view(), statistics);
  });
  EXPECT_NEAR(losses[0], std::log(2.0), 1e-7);
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(losses[1], 0.0f);
  EXPECT_EQ(x[3], 0.0f);
  EXPECT_EQ(x[4], 0.0f);
  EXPECT_TRUE(std::isnan(losses[2]) && std::isnan(losses[3]));
}

TEST(CrossEntropyLimits, ManyMaskedWordsFirst) {
  // A complete piece of -inf precedes the first finite logit.
  const std::size_t vocab = 3 * 4096;
  Array x(DType::fp32, vocab), losses(DType::fp32, 1);
  for (std::size_t i = 0; i < vocab; ++i) x.set(i, i < 2 * 4096 ? -kCrossEntropyInf : 0.0f);
  const std::int32_t label = 3 * 4096 - 1;
  RowStatistics statistics{};
  in_lane(1, [&](Lane& lane) {
    cross_entropy(lane, 1, vocab, x.view(), &label, nullptr, DType::fp32, losses.view(), &statistics);
  });
  EXPECT_NEAR(losses[0], std::log(4096.0), 1e-6);
}

// The sum is exact in fp64, so every order gives it.
TEST(SumLosses, SumsInFp64) {
  Array losses = Array::random(DType::fp32, 1001, 1, 11.0f);
  ExactSum total;
  total.add(0.5);
  in_lane(1, [&](Lane& lane) { sum_losses(lane, losses.view(), &total); });
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) sum += static_cast<double>(losses[i]);
  EXPECT_EQ(total.round(), 0.5 + sum);
}

// A label outside the vocabulary must be noticed: the CPU stops, whereas a GPU's kernel can only spoil the loss.
TEST(CrossEntropyLimits, LabelBeyondTheVocabulary) {
  if (testing::kDevice.kind == Kind::cpu) GTEST_SKIP() << "the CPU ends the program";
  const RowStatistics statistics[] = {{2.0, 1.0f, 0.0f}, {2.0, 1.0f, 0.0f}, {2.0, 1.0f, 0.0f}};
  const std::int32_t labels[] = {7, 8, -1};
  Array losses(DType::fp32, 3);
  in_lane(1, [&](Lane& lane) { cross_entropy_losses(lane, 8, statistics, labels, losses.view()); });
  EXPECT_TRUE(std::isfinite(losses[0]));
  EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2]));
}

// e^x of the kernels, seen through a gradient with largest = 0, sum = 1 and factor = 1.
template <typename Table>
void expect_exponential(const Table& table) {
  const std::size_t n = 400000;
  Array x(DType::fp32, n + 1);
  std::vector<double> at(n);
  for (std::size_t i = 0; i < n; ++i) {
    x.set(i, -110.0f + 205.0f * static_cast<float>(i) / static_cast<float>(n));
    at[i] = x[i];
  }
  table.gradient[0](x.floats(), n + 1, 0.0f, 1.0f, 1.0f, n);
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double e = std::exp(at[i]);
    if (e >= 0x1.fffffep127) {
      ASSERT_TRUE(std::isinf(x[i]) || e < 0x1.0001p128) << at[i];
      continue;
    }
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(e), -126) - 23);
    worst = std::max(worst, std::abs(x[i] - e) / ulp);
  }
  EXPECT_LT(worst, 1.5);
  ::testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(CrossEntropyKernels, ExponentialIsWithinOneAndAHalfUlp) {
  expect_exponential(cpu::avx2::cross_entropy_kernels_table);
  if (__builtin_cpu_supports("avx512bw")) expect_exponential(cpu::avx512::cross_entropy_kernels_table);
}

TEST(CrossEntropyKernels, SameBitsOnBothInstructionSets) {
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::cross_entropy_kernels_table, cpu::avx512::cross_entropy_kernels_table,
      [&](const cpu::CrossEntropyKernels& k) {
        std::vector<Array> out;
        const std::size_t n = 2 * 4096 + 77;
        for (std::size_t t = 0; t < 3; ++t) {
          Array x = Array::random(DType::fp32, n, 1, 20.0f), sums(DType::fp32, 2);
          const cpu::SoftmaxSum s = k.softmax_sum(x.floats(), n, {-kCrossEntropyInf, 0.0});
          k.gradient[t](x.floats(), n, s.largest, static_cast<float>(1.0 / s.sum), 0.01f, 4100);
          sums.set(0, s.largest);
          sums.set(1, static_cast<float>(s.sum));
          out.insert(out.end(), {x, sums});
        }
        return out;
      });
}

using testing::Array;
using testing::gradient_of;
using testing::in_lane;
using testing::kDTypes;

constexpr std::size_t kRows = 300, kClasses = 5;  // several blocks of a GPU, and an odd tail

struct ClassLossCase {
  ClassTarget target;
  std::size_t classes;
  std::vector<std::int32_t> labels = {};
  std::vector<std::uint32_t> sets = {};

  std::size_t stride() const { return classes + 16; }
  std::size_t words() const { return class_set_words(target, classes); }
  const std::uint32_t* set_words() const { return sets.empty() ? nullptr : sets.data(); }
};
std::vector<ClassLossCase> cases() {
  std::vector<ClassLossCase> out = {{ClassTarget::one, kClasses},
                                    {ClassTarget::many, kClasses},
                                    {ClassTarget::number, 1},
                                    {ClassTarget::many, 32},
                                    {ClassTarget::many, 70}};
  for (std::size_t r = 0; r < kRows; ++r) {
    const bool ignored = r % 7 == 3;
    out[0].labels.push_back(ignored ? kIgnoredLabel : static_cast<std::int32_t>(r % kClasses));
    out[1].labels.push_back(ignored ? kIgnoredLabel : static_cast<std::int32_t>(r % (1 << kClasses)));
    out[2].labels.push_back(ignored ? kIgnoredLabel : std::bit_cast<std::int32_t>(static_cast<float>(r) / 100 - 1));
    // Their labels only determine whether a row counts.
    for (const std::size_t i : {3, 4}) {
      out[i].labels.push_back(ignored ? kIgnoredLabel : 0);
      for (std::size_t w = 0; w < out[i].words(); ++w)
        out[i].sets.push_back(static_cast<std::uint32_t>((r + w) * 2'654'435'761));
    }
  }
  return out;
}

// Computed from the definition, in fp64.
double reference(const ClassLossCase& c, std::size_t row, const std::vector<double>& x, const float* weights) {
  const std::int32_t label = c.labels[row];
  if (label == kIgnoredLabel) return 0;
  if (c.target == ClassTarget::number) return std::pow(x[0] - std::bit_cast<float>(label), 2);
  double sum = 0, loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += std::exp(x[i]);
    const std::uint32_t word = c.sets.empty() ? static_cast<std::uint32_t>(label) : c.sets[row * c.words() + i / 32];
    const double p = 1 / (1 + std::exp(-x[i])), is = word >> i % 32 & 1;
    loss -= weights[i] * (is * std::log(p) + (1 - is) * std::log(1 - p)) / static_cast<double>(x.size());
  }
  if (c.target == ClassTarget::many) return loss;
  const auto at = static_cast<std::size_t>(label);
  return weights[at] * (std::log(sum) - x[at]);
}

TEST(ClassLoss, MatchesItsDefinitionAndGradient) {
  const StepScalars scalars{.loss_gradient = 0.25f};
  for (const ClassLossCase& c : cases())
    for (const DType dtype : kDTypes)
      for (const bool weighted : {false, true}) {
        const std::size_t stride = c.stride();
        Array scores = Array::random(DType::fp32, kRows * stride, 1, 4), losses(DType::fp32, kRows);
        Array d_scores(dtype, kRows * stride), weights(DType::fp32, std::max(kClasses, c.classes));
        for (std::size_t i = 0; i < weights.size(); ++i)
          weights.set(i, weighted ? 0.5f + static_cast<float>(i % kClasses) : 1);
        const ClassScoreShape shape{kRows, c.classes, stride, c.target};
        in_lane(3, [&](Lane& lane) {
          class_loss(lane, shape, scores.view(), c.labels.data(), c.set_words(), weighted ? weights.floats() : nullptr,
                     &scalars, losses.view(), d_scores.view());
        });
        for (std::size_t r = 0; r < kRows; ++r) {
          const auto x = scores.doubles(r * stride, c.classes);
          const auto f = [&](const std::vector<double>& at) { return reference(c, r, at, weights.floats()); };
          // The loss of a number ignores weights, because there is one class.
          const double wanted = c.target == ClassTarget::number ? reference(c, r, x, weights.floats()) : f(x);
          ASSERT_NEAR(losses[r], wanted, 1e-6 * std::max(1.0, wanted)) << r;
          const auto gradient = gradient_of(f, x);
          for (std::size_t i = 0; i < c.classes; ++i)
            ASSERT_NEAR(d_scores[r * stride + i], 0.25 * gradient[i],
                        testing::tolerance(dtype, 0.25 * gradient[i], 1) + 1e-8)
                << r << " " << i;
        }
      }
}

TEST(ClassLoss, LargeScoresStayFinite) {
  Array scores(DType::fp32, 4), losses(DType::fp32, 2);
  const float x[] = {1e4f, -1e4f, -1e4f, 1e4f};
  for (std::size_t i = 0; i < 4; ++i) scores.set(i, x[i]);
  const std::int32_t one[] = {1, 1}, many[] = {0b10, 0b10};
  for (const auto& [target, labels] : {std::pair(ClassTarget::one, one), std::pair(ClassTarget::many, many)}) {
    in_lane(1, [&](Lane& lane) {
      class_loss(lane, {2, 2, 2, target}, scores.view(), labels, nullptr, nullptr, nullptr, losses.view(), {});
    });
    EXPECT_EQ(losses[0], target == ClassTarget::one ? 2e4f : 1e4f);
    EXPECT_EQ(losses[1], 0);
  }
}

TEST(ClassLoss, SameBitsOnAnyThreads) {
  const StepScalars scalars{.loss_gradient = 0.25f};
  const ClassLossCase c = cases()[0];
  testing::expect_same_bits_on_any_threads([&](int threads) {
    Array scores = Array::random(DType::fp32, kRows * c.stride(), 1, 4), losses(DType::fp32, kRows);
    Array d_scores(DType::bf16, kRows * c.stride());
    in_lane(threads, [&](Lane& lane) {
      class_loss(lane, {kRows, c.classes, c.stride(), c.target}, scores.view(), c.labels.data(), nullptr, nullptr,
                 &scalars, losses.view(), d_scores.view());
    });
    return std::vector<Array>{losses, d_scores};
  });
}

}  // namespace
}  // namespace strata::device
