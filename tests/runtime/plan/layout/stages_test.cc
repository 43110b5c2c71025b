#include "runtime/plan/layout/stages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "tests/failure.h"
#include "tests/runtime/fake_model.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;

// Four equal blocks between an embedding without products and a head.
FakeModel model_of(std::size_t blocks) {
  FakeSizes sizes{{{64}}, 1, 1, 1, 1, false};
  sizes.parameters.insert(sizes.parameters.end(), blocks, {64});
  sizes.parameters.push_back({64});
  return FakeModel(sizes);
}

bool covers(const std::vector<UnitRange>& stages, int units) {
  int next = 0;
  for (const UnitRange& stage : stages) {
    if (stage.first != next || stage.last < stage.first) return false;
    next = stage.last + 1;
  }
  return next == units;
}

// Of every number of units and stages, no other cut has a faster slowest stage: with equal blocks, with a slow head,
// and if the second stage may have no more than two units.
TEST(Stages, FastestSplitIsTheBest) {
  for (const double head : {1.0, 5.0})
    for (const bool limited : {false, true})
      for (int units = 1; units <= 9; ++units)
        for (int stages = 1; stages <= units; ++stages) {
          SCOPED_TRACE(fmt::format("{} units in {}, head {}, limited {}", units, stages, head, limited));
          const auto time = [&](const UnitRange& range) {
            return range.last - range.first + (range.first == 0 ? 0.25 : 1) + (range.last + 1 == units ? head - 1 : 0);
          };
          const auto may_have = [&](int stage, const UnitRange& range) {
            return !limited || stage != 1 || range.last - range.first < 2;
          };
          const std::vector<UnitRange> split = fastest_split(units, stages, time, may_have);
          double best = std::numeric_limits<double>::infinity();
          for (unsigned cuts = 0; cuts < 1u << (units - 1); ++cuts) {
            if (std::popcount(cuts) != stages - 1) continue;
            std::vector<UnitRange> other{{0, 0}};
            for (int unit = 1; unit < units; ++unit)
              if (cuts >> (unit - 1) & 1)
                other.push_back({unit, unit});
              else
                other.back().last = unit;
            if (stages == 1 || may_have(1, other[1])) best = std::min(best, slowest_stage(other, time));
          }
          if (best == std::numeric_limits<double>::infinity()) {
            EXPECT_TRUE(split.empty());
            continue;
          }
          ASSERT_TRUE(covers(split, units));
          EXPECT_EQ(slowest_stage(split, time), best);
          EXPECT_TRUE(stages == 1 || may_have(1, split[1]));
        }
}

TEST(Stages, NoSplitThatMayBe) {
  EXPECT_TRUE(fastest_split(
                  4, 2, [](const UnitRange&) { return 1.0; },
                  [](int stage, const UnitRange& range) { return stage == 1 || range.last > 9; })
                  .empty());
}

TEST(Stages, ListHasBlocks) {
  const FakeModel model = model_of(4);
  using Blocks = std::vector<std::int64_t>;
  EXPECT_THAT(split_into_stages(model, 2, Blocks{1, 3}), ElementsAre(UnitRange{0, 1}, UnitRange{2, 5}));
  EXPECT_THAT(split_into_stages(model, 3, Blocks{0, 4, 0}),
              ElementsAre(UnitRange{0, 0}, UnitRange{1, 4}, UnitRange{5, 5}));
  const auto refusal = [&](int stages, const Blocks& blocks) {
    return std::string(tests::failure_of([&] { split_into_stages(model, stages, blocks); }).what());
  };
  EXPECT_EQ(
      refusal(3, {1, 3}),
      "parallel.split = [1, 3] has 2 numbers for 3 stages and 4 blocks for the model's 4: give 3 numbers with the "
      "sum 4, or \"auto\"");
  EXPECT_EQ(
      refusal(2, {1, 2}),
      "parallel.split = [1, 2] has 2 numbers for 2 stages and 3 blocks for the model's 4: give 2 numbers with the "
      "sum 4, or \"auto\"");
  EXPECT_EQ(refusal(3, {2, 0, 2}),
            "parallel.split = [2, 0, 2] leaves stage 1 without units: the first stage also has the embedding and the "
            "last one the head; give every other stage a block");
  EXPECT_EQ(refusal(7, {}),
            "parallel.stages = 7, and this model has 6 units (embedding, 4 blocks, head): set at most 6 stages");
}

// Forwards and backwards of micro-batches as f0 and b0, messages as their first letters: input, output, gradient of the
// output (g), of the input (d).
std::string text_of(int stage, int stages, int micro_batches, bool all_forward_first) {
  std::string out;
  for (const StageStep& step : steps_of_stage(stage, stages, micro_batches, all_forward_first))
    out += std::string(1, "fbiogd"[static_cast<std::size_t>(step.what)]) + std::to_string(step.micro_batch);
  return out;
}
std::string passes_in(const std::string& steps) {
  std::string out;
  for (std::size_t i = 0; i < steps.size(); i += 2)
    if (steps[i] == 'f' || steps[i] == 'b') out += steps.substr(i, 2);
  return out;
}

TEST(Stages, OneForwardOneBackward) {
  EXPECT_EQ(passes_in(text_of(0, 3, 4, false)), "f0f1f2b0f3b1b2b3");
  EXPECT_EQ(passes_in(text_of(1, 3, 4, false)), "f0f1b0f2b1f3b2b3");
  EXPECT_EQ(passes_in(text_of(2, 3, 4, false)), "f0b0f1b1f2b2f3b3");
  EXPECT_EQ(text_of(0, 1, 1, false), "f0b0");
  EXPECT_EQ(passes_in(text_of(0, 2, 3, true)), "f0f1f2b0b1b2");
}

// The last stage has sent the first gradient before it receives the third input, and the first receives that gradient
// before it sends the third output.
TEST(Stages, MessagesAreInOneOrder) {
  EXPECT_EQ(text_of(0, 2, 3, false), "f0o0f1o1g0b0f2o2g1b1g2b2");
  EXPECT_EQ(text_of(1, 2, 3, false), "i0f0i1b0d0f1b1i2d1f2b2d2");
}

}  // namespace
}  // namespace strata::runtime
