#include "launcher/rank/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

const std::vector<std::string> kTrains = {"model.preset=tiny-gpt2", "data.train=t.bin", "training.max_steps=1"};

// The error of each of these ranks, which have their own keys: an AgreedError with this exit code. `trains`: by rank;
// empty: all ranks train.
std::vector<std::string> refusals(const std::vector<std::vector<std::string>>& sets,
                                  const std::vector<bool>& trains = {}) {
  std::vector<std::string> out(sets.size());
  comm::run_threads(static_cast<int>(sets.size()), [&](comm::World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    try {
      (void)read_recipe({}, sets[rank], world, trains.empty() || trains[rank]);
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.code(), Exit::usage);
      out[rank] = error.what();
    }
  });
  return out;
}

std::vector<std::string> with(std::vector<std::string> sets, const std::string& more) {
  sets.push_back(more);
  return sets;
}

TEST(ReadRecipe, AllRanksHaveTheSame) {
  EXPECT_THAT(refusals({kTrains, kTrains, kTrains}), Each(""));
  EXPECT_THAT(refusals({kTrains, kTrains, with(kTrains, "training.seed=7")}),
              Each(HasSubstr("rank 2 was given another recipe than rank 0")));
  EXPECT_THAT(refusals({kTrains, with(kTrains, "training.seed=7")}),
              Each(HasSubstr("rank 1 was given another recipe than rank 0")));
}

TEST(ReadRecipe, AllRanksHaveTheSameCommand) {
  EXPECT_THAT(refusals({kTrains, kTrains}, {true, false}), Each(HasSubstr("or another command")));
}

TEST(ReadRecipe, AMistakeOfOneRankIsThrownOnAll) {
  EXPECT_THAT(refusals({kTrains, with(kTrains, "training.sede=7")}),
              Each(AllOf(HasSubstr("training.sede"), HasSubstr("rank 1"))));
}

TEST(ReadRecipe, OnlyATrainingNeedsSteps) {
  const std::vector<std::string> model = {"model.preset=tiny-gpt2"};
  EXPECT_THAT(refusals({model, model}), Each(HasSubstr("training.max_steps and data.train are missing")));
  EXPECT_THAT(refusals({model, model}, {false, false}), Each(""));
}

TEST(ReadRecipe, AFileThatOtherNodesLackIsNamed) {
  const tests::ScratchFolder folder;
  const auto missing = folder.path() / "r.toml";
  std::mutex mutex;
  std::vector<std::string> said;
  comm::run_threads(2,
                    [&](comm::World& world) {
                      const Error error = tests::failure_of([&] { (void)read_recipe(missing, kTrains, world); });
                      const std::lock_guard lock(mutex);
                      said.push_back(error.what());
                    },
                    {0, 1});
  EXPECT_THAT(said, Each(AllOf(HasSubstr(missing.string()), HasSubstr("a file system that all nodes share"))));
}

TEST(AgreeOnSeat, TheCpuIsSharedByNobody) {
  runtime::Recipe recipe;
  recipe.device.kind = runtime::DeviceKind::cpu;
  comm::run_threads(2, [&](comm::World& world) {
    const runtime::Seat seat = agree_on_seat(recipe, world);
    EXPECT_EQ(seat.device.kind, device::Kind::cpu);
    EXPECT_EQ(seat.gpu, "");
    EXPECT_EQ(seat.sharing, 1);
  });
}

}  // namespace
}  // namespace strata::launcher
