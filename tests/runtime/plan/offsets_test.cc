#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "runtime/plan/passes.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr std::size_t kPage = device::kBufferAlignment;

// Hand-made plans. Sizes and offsets are in pages.
class OffsetsTest : public testing::Test {
 protected:
  static int buffer_of(StepPlan& plan, std::size_t pages, bool persistent = false, Tier tier = Tier::device,
                       Kind kind = Kind::workspace) {
    plan.buffers.push_back({"buffer", kind, tier, pages * kPage, persistent});
    return static_cast<int>(plan.buffers.size()) - 1;
  }
  int buffer(std::size_t pages) { return buffer_of(plan_, pages); }
  int persistent(std::size_t pages, Tier tier = Tier::device) { return buffer_of(plan_, pages, true, tier); }
  void task(LaneId lane, std::initializer_list<Use> uses) {
    plan_.tasks.emplace_back(Task{TaskKind::forward, lane}).uses = uses;
  }
  // A task that uses these buffers and follows no other one.
  void task(std::initializer_list<int> buffers) {
    Task& task = plan_.tasks.emplace_back(Task{TaskKind::forward, LaneId::compute});
    for (const int b : buffers) task.uses.push_back(write(b));
  }
  static Use read(int buffer) { return {buffer, Role::x, Access::read}; }
  static Use write(int buffer) { return {buffer, Role::y, Access::write}; }
  static std::vector<std::size_t> pages_of(const StepPlan& plan) {
    std::vector<std::size_t> out;
    for (const Buffer& buffer : plan.buffers) {
      EXPECT_EQ(buffer.offset % kPage, 0u);
      out.push_back(buffer.offset / kPage);
    }
    return out;
  }
  static std::vector<std::pair<int, int>> spans(const std::vector<Lifetime>& lives) {
    std::vector<std::pair<int, int>> out;
    for (const Lifetime& life : lives) out.emplace_back(life.first, life.last);
    return out;
  }
  std::vector<std::size_t> offsets() {
    assign_offsets(plan_, nullptr);
    return pages_of(plan_);
  }

  StepPlan plan_{};
};

TEST_F(OffsetsTest, ABufferLivesFromItsFirstUseToItsLast) {
  const int a = buffer(1), b = buffer(1), state = persistent(1);
  task({a});
  task({b, state});
  task({a});
  task({});
  EXPECT_THAT(spans(lifetimes_of(plan_)), ElementsAre(Pair(0, 2), Pair(1, 1), Pair(0, 3)));
}

TEST_F(OffsetsTest, AReductionOccupiesMemoryFromTheCallBeforeIt) {
  const int gradient = buffer(1), other = buffer(1), sum = buffer(1);
  task(LaneId::compute, {write(gradient)});
  task(LaneId::compute, {write(other)});
  task(LaneId::reduce, {read(gradient), write(sum)});
  EXPECT_THAT(spans(lifetimes_of(plan_)), ElementsAre(Pair(0, 2), Pair(1, 1), Pair(2, 2)));
  EXPECT_THAT(spans(memory_lifetimes_of(plan_)), ElementsAre(Pair(0, 2), Pair(1, 1), Pair(1, 2)));
  EXPECT_THAT(offsets(), ElementsAre(0, 1, 2)) << "in memory of the second call it would wait for that call";
}

// It waits for the call anyway, and so do the reductions after it.
TEST_F(OffsetsTest, AReductionOfTheCallBeforeItMayUseThatCallsMemory) {
  const int gradient = buffer(1), other = buffer(1), sum = buffer(1), next = buffer(1);
  task(LaneId::compute, {write(other), write(gradient)});
  task(LaneId::reduce, {read(gradient), write(sum)});
  task(LaneId::reduce, {write(next)});
  EXPECT_THAT(spans(memory_lifetimes_of(plan_)), ElementsAre(Pair(0, 1), Pair(0, 0), Pair(1, 1), Pair(2, 2)));
  EXPECT_THAT(offsets(), ElementsAre(0, 1, 1, 0));
}

// Both may read the same parameters, at the same time.
TEST_F(OffsetsTest, AReductionDoesNotFollowACallThatOnlyReads) {
  const int parameters = buffer(1), sum = buffer(1);
  task(LaneId::gather, {write(parameters)});
  task(LaneId::compute, {read(parameters)});
  task(LaneId::reduce, {read(parameters), write(sum)});
  EXPECT_THAT(spans(memory_lifetimes_of(plan_)), ElementsAre(Pair(0, 2), Pair(1, 2)));
}

TEST_F(OffsetsTest, OtherLanesOccupyMemoryOnlyDuringTheirTasks) {
  for (const LaneId lane : {LaneId::gather, LaneId::exchange, LaneId::upload, LaneId::download}) {
    plan_ = {};
    const int a = buffer(1), b = buffer(1);
    task(LaneId::compute, {write(a)});
    task(lane, {write(b)});
    EXPECT_THAT(spans(memory_lifetimes_of(plan_)), ElementsAre(Pair(0, 0), Pair(1, 1)));
    EXPECT_THAT(offsets(), ElementsAre(0, 0));
  }
}

TEST_F(OffsetsTest, TheLargestComesFirstAtTheLowestFreePlace) {
  const int small = buffer(1), large = buffer(3), middle = buffer(2), late = buffer(2);
  task({small, large});
  task({small, large, middle});
  task({middle, late});
  EXPECT_THAT(offsets(), ElementsAre(5, 0, 3, 0));
}

TEST_F(OffsetsTest, ABufferFitsExactlyIntoAGap) {
  const int early = buffer(4), both = buffer(3), first = buffer(2), second = buffer(2), third = buffer(1);
  task({early, both});
  task({both, first, second, third});
  EXPECT_THAT(offsets(), ElementsAre(0, 4, 0, 2, 7));
}

// No buffer of a task may come where the state of the next step lies, even if this task has not used it yet.
TEST_F(OffsetsTest, StateThatLivesFromStepToStepComesFirst) {
  const int work = buffer(9), state = persistent(1), more = persistent(2);
  task({work});
  task({state});
  task({more});
  EXPECT_THAT(offsets(), ElementsAre(3, 0, 1));
}

TEST_F(OffsetsTest, EveryTierHasItsOwnOffsets) {
  const int device = persistent(2), host = persistent(3, Tier::host), drive = persistent(4, Tier::nvme);
  const int on_host = buffer_of(plan_, 1, false, Tier::host), on_device = buffer(1);
  task({device, host, drive, on_host, on_device});
  EXPECT_THAT(offsets(), ElementsAre(0, 0, 0, 3, 2));
}

// An evaluation runs between training steps: it uses their parameters, and their other state stays in memory.
TEST_F(OffsetsTest, APlanBetweenTheStepsUsesTheirParametersInPlace) {
  StepPlan steps{};
  const int moments = buffer_of(steps, 3, true), trained = buffer_of(steps, 2, true),
            frozen = buffer_of(steps, 1, true);
  buffer_of(steps, 8);
  steps.tasks.emplace_back(Task{TaskKind::forward, LaneId::compute}).uses = {write(3)};
  steps.state_buffers = {StateBuffers{.parameters = trained, .frozen = frozen, .moment1 = moments}};
  assign_offsets(steps, nullptr);
  ASSERT_THAT(pages_of(steps), ElementsAre(0, 3, 5, 6));

  const int own_state = persistent(1), its_frozen = persistent(1), its_trained = persistent(2), work = buffer(4);
  plan_.state_buffers = {StateBuffers{.parameters = its_trained, .frozen = its_frozen}};
  task({own_state, its_frozen, its_trained, work});
  assign_offsets(plan_, &steps);
  EXPECT_THAT(pages_of(plan_), ElementsAre(6, 5, 3, 7));
}

// A buffer that ends with a task makes room for those that begin with the next one.
TEST_F(OffsetsTest, PredictsThePeaksOfATierAndOfEachKind) {
  const int early = buffer_of(plan_, 2, false, Tier::device, Kind::activations),
            late = buffer_of(plan_, 3, false, Tier::device, Kind::activations), work = buffer(1);
  task({early});
  task({early, work});
  task({late, work});
  EXPECT_THAT(offsets(), ElementsAre(0, 0, 3));
  predict_memory(plan_);
  const TierMemory& device = plan_.memory[static_cast<std::size_t>(Tier::device)];
  EXPECT_EQ(device.peak, 4 * kPage);
  EXPECT_EQ(device.by_kind[static_cast<std::size_t>(Kind::activations)], 3 * kPage);
  EXPECT_EQ(device.by_kind[static_cast<std::size_t>(Kind::workspace)], kPage);
  EXPECT_EQ(plan_.memory[static_cast<std::size_t>(Tier::host)].peak, 0u);
}

TEST_F(OffsetsTest, BuffersAliveTogetherNeverOverlap) {
  std::mt19937 random(1);
  const auto up_to = [&](std::size_t most) { return static_cast<std::size_t>(random() % (most + 1)); };
  for (int round = 0; round < 300; ++round) {
    plan_ = {};
    const std::size_t buffers = 2 + up_to(18);
    for (std::size_t b = 0; b < buffers; ++b)
      buffer_of(plan_, 1 + up_to(6), up_to(9) == 0, up_to(1) == 0 ? Tier::device : Tier::host);
    constexpr LaneId kFew[] = {LaneId::compute, LaneId::reduce, LaneId::gather};
    for (std::size_t t = 0; t < 2 * buffers; ++t) {
      // Each buffer is used at least once.
      const int used = static_cast<int>(t < buffers ? t : up_to(buffers - 1)),
                also = static_cast<int>(up_to(buffers - 1));
      task(kFew[up_to(2)], {write(used), read(also)});
    }
    std::shuffle(plan_.tasks.begin(), plan_.tasks.end(), random);
    (void)offsets();
    const std::vector<Lifetime> lives = memory_lifetimes_of(plan_);
    for (std::size_t a = 0; a < buffers; ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const Buffer &x = plan_.buffers[a], &y = plan_.buffers[b];
        const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
        if (x.tier != y.tier || !together) continue;
        EXPECT_TRUE(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset)
            << "buffers " << b << " and " << a << " of round " << round;
      }
  }
}

}  // namespace
}  // namespace strata::runtime
