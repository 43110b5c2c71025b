#include "device/ops/step/consensus.h"

#include <cmath>
#include <limits>
#include <span>

#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::in_lane;

// Messages of `ranks` ranks, as they pack them.
std::vector<StepMessage> messages_of(Lane& lane, std::span<const ExactSum> squares, std::span<const ExactSum> losses,
                                     std::span<const std::uint64_t> stops) {
  std::vector<StepMessage> messages(squares.size());
  for (std::size_t r = 0; r < squares.size(); ++r) pack_message(lane, &squares[r], &losses[r], &stops[r], &messages[r]);
  lane.synchronize();
  return messages;
}

struct Outcome {
  StepScalars scalars{};
  StepResult result;
};
// The outcome of a step of three ranks with these squares and losses.
Outcome resolve(const std::vector<double>& squares, const std::vector<double>& losses, float max_grad_norm,
                Device device = testing::kDevice) {
  std::vector<ExactSum> square_sums(3), loss_sums(3);
  for (std::size_t i = 0; i < squares.size(); ++i) square_sums[i % 3].add(squares[i]);
  for (std::size_t i = 0; i < losses.size(); ++i) loss_sums[i % 3].add(losses[i]);
  const std::uint64_t stops[] = {0, 1, 1};
  Outcome out;
  out.scalars.unscale = 0.125f;
  out.scalars.max_grad_norm = max_grad_norm;
  in_lane(
      1,
      [&](Lane& lane) {
        const auto messages = messages_of(lane, square_sums, loss_sums, stops);
        resolve_step(lane, messages.data(), messages.size(), &out.scalars, &out.result);
        lane.synchronize();
      },
      device);
  return out;
}

TEST(Consensus, MergesExactly) {
  // The small terms would be lost in fp64 next to the large ones, which cancel.
  const Outcome out = resolve({64.0, 0x1p80, 0x1p-30, -0x1p80, 36.0, 0.0}, {1e300, 2.5, -1e300, 0.25}, 0.0f);
  EXPECT_EQ(out.result.gradient_norm, std::sqrt(100.0 + 0x1p-30) * 0.125);
  EXPECT_EQ(out.result.loss_sum, 2.75);
  EXPECT_EQ(out.result.requests, 2u);
  EXPECT_EQ(out.scalars.gradient_factor, 0.125f);
  EXPECT_EQ(out.scalars.skip, 0u);
}

TEST(Consensus, Clips) {
  const double norm = std::sqrt(25.0) * 0.125;
  EXPECT_EQ(resolve({9.0, 16.0}, {1.0}, 0.5f).scalars.gradient_factor,
            0.125f * static_cast<float>(0.5 / (norm + 1e-6)));
  EXPECT_EQ(resolve({9.0, 16.0}, {1.0}, 0.7f).scalars.gradient_factor, 0.125f);
}

TEST(Consensus, SkipsAStepThatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Outcome norm = resolve({1.0, infinity, 4.0}, {1.0}, 1.0f);
  EXPECT_EQ(norm.scalars.skip, 1u);
  EXPECT_TRUE(std::isnan(norm.result.gradient_norm));
  EXPECT_EQ(norm.result.loss_sum, 1.0);
  EXPECT_EQ(resolve({1.0}, {1.0, std::nan("")}, 1.0f).scalars.skip, 1u);
  // Every message is finite, their sum is not.
  EXPECT_EQ(resolve({1e308, 1e308}, {1.0}, 1.0f).scalars.skip, 1u);
}

TEST(Consensus, GivesTheBitsOfTheCpu) {
  if (testing::kDevice.kind == Kind::cpu) GTEST_SKIP() << "this program tests the CPU";
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> exponent(-40.0, 40.0);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> squares(20), losses(20);
    for (double& x : squares) x = std::exp2(exponent(engine));
    for (double& x : losses) x = exponent(engine);
    const Outcome cpu = resolve(squares, losses, 1.0f, Device{}), twin = resolve(squares, losses, 1.0f);
    EXPECT_EQ(std::memcmp(&cpu.scalars, &twin.scalars, sizeof(StepScalars)), 0);
    EXPECT_EQ(std::memcmp(&cpu.result, &twin.result, sizeof(StepResult)), 0);
  }
}

// Sums that have reached their limit of additions are normalised before they are merged.
TEST(Consensus, MergesFullSums) {
  ExactSum full, other;
  full.add(1.0);
  other.add(-2.5);
  full.uncarried = other.uncarried = ExactSum::kMaxUncarried;
  const ExactSum squares[] = {full, full}, losses[] = {full, other};
  const std::uint64_t stops[] = {0, 0};
  StepScalars scalars{};
  scalars.unscale = 1;
  StepResult result;
  in_lane(1, [&](Lane& lane) {
    const auto messages = messages_of(lane, squares, losses, stops);
    resolve_step(lane, messages.data(), 2, &scalars, &result);
    lane.synchronize();
  });
  EXPECT_EQ(result.gradient_norm, std::sqrt(2.0));
  EXPECT_EQ(result.loss_sum, -1.5);
}

}  // namespace
}  // namespace strata::device
