#include "runtime/plan/layout/stages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <limits>
#include <set>
#include <utility>

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

std::vector<std::vector<UnitRange>> all_splits(int units, int pieces) {
  std::vector<std::vector<UnitRange>> all;
  for (unsigned cuts = 0; cuts < 1u << (units - 1); ++cuts) {
    if (std::popcount(cuts) != pieces - 1) continue;
    std::vector<UnitRange>& split = all.emplace_back(1, UnitRange{0, 0});
    for (int unit = 1; unit < units; ++unit)
      if (cuts >> (unit - 1) & 1)
        split.push_back({unit, unit});
      else
        split.back().last = unit;
  }
  return all;
}

// For any number of units and stages, no other split has a faster slowest stage: with equal blocks, with a slow head,
// and if the second stage may have at most two units.
TEST(Stages, FastestSplitIsOptimal) {
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
          const std::vector<UnitRange> split = fastest_split(units, stages, 1, time, may_have);
          double best = std::numeric_limits<double>::infinity();
          for (const std::vector<UnitRange>& other : all_splits(units, stages))
            if (stages == 1 || may_have(1, other[1])) best = std::min(best, slowest_stage(other, stages, time));
          if (best == std::numeric_limits<double>::infinity()) {
            EXPECT_TRUE(split.empty());
            continue;
          }
          ASSERT_TRUE(covers(split, units));
          EXPECT_EQ(slowest_stage(split, stages, time), best);
          EXPECT_TRUE(stages == 1 || may_have(1, split[1]));
        }
}

// A stage of two chunks that includes the head has fewer other units, whatever its first chunk is.
TEST(Stages, FastestSplitOfChunksBalancesStages) {
  for (const double head : {0.5, 1.0, 3.0, 5.0})
    for (int units = 4; units <= 14; ++units)
      for (const int stages : {2, 3}) {
        if (units < 2 * stages) continue;
        SCOPED_TRACE(fmt::format("{} units in {} stages, head {}", units, stages, head));
        const auto time = [&](const UnitRange& range) {
          return range.last - range.first + (range.first == 0 ? 0.25 : 1) + (range.last + 1 == units ? head - 1 : 0);
        };
        double best = std::numeric_limits<double>::infinity();
        for (const std::vector<UnitRange>& other : all_splits(units, 2 * stages))
          best = std::min(best, schedule_time(other, stages, time));
        const std::vector<UnitRange> split = fastest_split(units, stages, 2, time);
        ASSERT_TRUE(covers(split, units));
        EXPECT_EQ(split.size(), 2 * static_cast<std::size_t>(stages));
        EXPECT_LE(schedule_time(split, stages, time), 1.1 * best) << "a search by shifts is not exact";
        const auto may_have = [&](int piece, const UnitRange& range) {
          return piece != 1 || range.first == range.last;
        };
        if (const auto limited = fastest_split(units, stages, 2, time, may_have); !limited.empty()) {
          EXPECT_EQ(limited[1].first, limited[1].last);
        }
      }
}

TEST(Stages, FastestSplitMayNotExist) {
  EXPECT_TRUE(fastest_split(
                  4, 2, 1, [](const UnitRange&) { return 1.0; },
                  [](int stage, const UnitRange& range) { return stage == 1 || range.last > 9; })
                  .empty());
}

TEST(Stages, ListCountsBlocks) {
  const FakeModel model = model_of(4);
  using Blocks = std::vector<std::int64_t>;
  EXPECT_THAT(split_into_pieces(model, 2, 1, Blocks{1, 3}), ElementsAre(UnitRange{0, 1}, UnitRange{2, 5}));
  EXPECT_THAT(split_into_pieces(model, 3, 1, Blocks{0, 4, 0}),
              ElementsAre(UnitRange{0, 0}, UnitRange{1, 4}, UnitRange{5, 5}));
  for (const Blocks& blocks : {Blocks{1, 3}, {0, 4, 0}, {4}})
    EXPECT_EQ(blocks_of_pieces(model, split_into_pieces(model, static_cast<int>(blocks.size()), 1, blocks)), blocks);
  const auto refusal = [&](int stages, const Blocks& blocks) {
    return std::string(tests::failure_of([&] { split_into_pieces(model, stages, 1, blocks); }).what());
  };
  EXPECT_EQ(refusal(3, {1, 3}),
            "parallel.split = [1, 3] has 2 numbers for 3 stages and 4 blocks for the model's 4: give 3 numbers that "
            "add up to 4, or \"auto\"");
  EXPECT_EQ(refusal(2, {1, 2}),
            "parallel.split = [1, 2] has 2 numbers for 2 stages and 3 blocks for the model's 4: give 2 numbers that "
            "add up to 4, or \"auto\"");
  EXPECT_EQ(refusal(3, {2, 0, 2}),
            "parallel.split = [2, 0, 2] leaves stage 1 without units: the first stage also has the embedding and the "
            "last one the head; give every other one a block");
  EXPECT_EQ(refusal(7, {}),
            "parallel.stages = 7, but this model has only 6 units (embedding, 4 blocks, head): set at most 6 stages");
}

// Forwards and backwards of micro-batches are f0 and b0. Messages are letters: i for the input, o for the output, g for
// the gradient of the output, d for that of the input.
std::string text_of(int stage, int stages, int micro_batches, bool all_forward_first) {
  std::string out;
  const Pipeline pipeline{stages, 1,
                          all_forward_first ? Schedule::all_forward_all_backward : Schedule::one_forward_one_backward};
  for (const StageStep& step : steps_of_stage(stage, pipeline, micro_batches))
    out += std::string(1, "fbiogd"[static_cast<std::size_t>(step.action)]) + std::to_string(step.micro_batch);
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

// The passes of an interleaved stage, with the piece as a letter.
std::string interleaved(int stage, int stages, int chunks, int micro_batches) {
  std::string out;
  for (const StageStep& step : steps_of_stage(stage, {stages, chunks, Schedule::interleaved}, micro_batches))
    if (step.action == StageStep::Action::forward || step.action == StageStep::Action::backward)
      out += fmt::format("{}{}{}", step.action == StageStep::Action::forward ? 'f' : 'b', step.micro_batch,
                         static_cast<char>('a' + step.piece));
  return out;
}

// As in Narayanan et al. 2021, figure 4: two micro-batches through the first chunk of each of two stages, then through
// the second.
TEST(Stages, InterleavedTakesEachGroupThroughItsChunks) {
  EXPECT_EQ(interleaved(0, 2, 2, 4), "f0af1af0cf1cf2ab0cf3ab1cf2cb0af3cb1ab2cb3cb2ab3a");
  EXPECT_EQ(interleaved(1, 2, 2, 4), "f0bf1bf0db0df1db1df2bb0bf3bb1bf2db2df3db3db2bb3b");
}

// In any pipeline, each piece runs forward and backward in the order of micro-batches, after everything that it needs.
TEST(Stages, InterleavedKeepsTheOrderOfMicroBatches) {
  for (int stages = 2; stages <= 5; ++stages)
    for (int chunks = 2; chunks <= 4; ++chunks)
      for (int groups = 1; groups <= 3; ++groups)
        for (int stage = 0; stage < stages; ++stage) {
          const int pieces = stages * chunks, micro_batches = groups * stages;
          std::vector<int> forwards(static_cast<std::size_t>(pieces)), backwards(forwards);
          std::set<std::pair<int, int>> received, gradients;
          for (const auto& [what, g, piece] :
               steps_of_stage(stage, {stages, chunks, Schedule::interleaved}, micro_batches)) {
            const auto at = static_cast<std::size_t>(piece);
            EXPECT_EQ(piece % stages, stage);
            if (what == StageStep::Action::receive_input) received.insert({piece, g});
            if (what == StageStep::Action::receive_gradient) gradients.insert({piece, g});
            if (what == StageStep::Action::forward) {
              EXPECT_EQ(g, forwards[at]++);
              EXPECT_TRUE(piece == 0 || received.contains({piece, g}));
            }
            if (what == StageStep::Action::backward) {
              EXPECT_EQ(g, backwards[at]++);
              EXPECT_TRUE(piece + 1 == pieces ? forwards[at] > g : gradients.contains({piece, g}));
            }
          }
          for (int piece = stage; piece < pieces; piece += stages)
            EXPECT_EQ(backwards[static_cast<std::size_t>(piece)], micro_batches);
        }
}

TEST(Stages, PiecesAreAssignedToStages) {
  const std::vector<UnitRange> pieces = {{0, 1}, {2, 2}, {3, 4}, {5, 5}};
  const StageUnits second = units_of_stage(pieces, 2, 1);
  EXPECT_THAT(second.all(), ElementsAre(2, 5));
  EXPECT_TRUE(second.has(5) && !second.has(3));
  const Segment segments[] = {{1, 3, true}, {4, 4, false}};
  const std::vector<Segment> first = within(segments, units_of_stage(pieces, 2, 0));
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].last, 1);
  EXPECT_EQ(first[1].first, 3);
  EXPECT_TRUE(first[1].recompute && !first[2].recompute);
}

// The last stage has sent the first gradient before it receives the third input, and the first receives that gradient
// before it sends the third output.
TEST(Stages, MessagesAreInOneOrder) {
  EXPECT_EQ(text_of(0, 2, 3, false), "f0o0f1o1g0b0f2o2g1b1g2b2");
  EXPECT_EQ(text_of(1, 2, 3, false), "i0f0i1b0d0f1b1i2d1f2b2d2");
}

}  // namespace
}  // namespace strata::runtime
