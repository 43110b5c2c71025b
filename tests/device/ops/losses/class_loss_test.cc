#include "device/ops/losses/class_loss.h"

#include <bit>

#include "tests/device/arrays.h"

namespace strata::device {
namespace {

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
    // Their labels say only whether a row counts.
    for (const std::size_t i : {3, 4}) {
      out[i].labels.push_back(ignored ? kIgnoredLabel : 0);
      for (std::size_t w = 0; w < out[i].words(); ++w)
        out[i].sets.push_back(static_cast<std::uint32_t>((r + w) * 2'654'435'761));
    }
  }
  return out;
}

// By the definition, in fp64.
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

TEST(ClassLoss, IsItsDefinitionAndItsGradientToo) {
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
