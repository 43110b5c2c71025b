#include "launcher/rank/planned_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "runtime/job/micro_batch.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::launcher {
namespace {

using runtime::Purpose;
using runtime::Recipe;
using testing::HasSubstr;

class PlannedRunTest : public testing::Test {
 protected:
  PlannedRunTest() {
    folder_.write("t.bin", {9, 5, 7, 16, 3, 12}, "0111111111111111111111111111111111111111111111111111");
    folder_.write("v.bin", {9, 5}, "01111111111111");
  }
  std::string path(const std::string& name) const { return (folder_.folder().path() / name).string(); }
  Recipe recipe(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> sets = {"model.preset=tiny-gpt2",
                                     "model.config.vocab_size=130",
                                     "data.train=" + path("t.bin"),
                                     "data.validation=" + path("v.bin"),
                                     "data.seq_len=16",
                                     "training.micro_batch_size=2",
                                     "training.max_steps=2",
                                     "memory.device=1GB",
                                     "memory.host=1GB"};
    sets.insert(sets.end(), more.begin(), more.end());
    return runtime::load_recipe(std::nullopt, sets);
  }
  // As rank 0 has it, of two.
  static PlannedRun planned(const Recipe& recipe, const RunPlanning& planning = {}) {
    PlannedRun out;
    comm::run_threads(2, [&](comm::World& world) {
      PlannedRun mine = plan_run(recipe, world, planning);
      if (world.rank() == 0) out = std::move(mine);
    });
    return out;
  }
  tests::TokenFolder folder_{130};
};

TEST_F(PlannedRunTest, IsTheJobOfTheSettledRecipe) {
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate}) {
    Recipe settled = recipe();
    (void)runtime::settle(settled, purpose == Purpose::evaluate);
    const runtime::Capacity capacity = runtime::capacity_of(settled.memory, 2);
    const runtime::Job job = runtime::make_job(settled, 2, capacity, purpose);
    const PlannedRun run = planned(recipe(), {purpose});
    EXPECT_EQ(runtime::hash_of(run.job.plan), runtime::hash_of(job.plan));
    EXPECT_EQ(run.capacity.together, capacity.together);
    EXPECT_EQ(run.job.recipe.data.packing, runtime::Packing::documents) << "the files have masks";
    EXPECT_EQ(run.data.train.size(), purpose == Purpose::train ? 1u : 0u);
    EXPECT_EQ(run.data.validation != nullptr, purpose == Purpose::evaluate);
  }
}

// Neither a generation nor a benchmark reads any: files that are not there are none of its business.
TEST_F(PlannedRunTest, LooksAtNoDataThatItDoesNotRead) {
  const Recipe elsewhere = recipe({"data.train=" + path("gone.bin"), "data.packing=documents"});
  for (const Purpose purpose : {Purpose::train, Purpose::generate}) {
    const PlannedRun run = planned(elsewhere, {.purpose = purpose, .looks_at_data = false});
    EXPECT_TRUE(run.data.train.empty());
    EXPECT_EQ(run.job.recipe.data.index_bytes, 0u);
  }
  EXPECT_FAILURE(planned(elsewhere), Exit::usage, HasSubstr("gone.bin"));
}

TEST_F(PlannedRunTest, AdjustsWhatWasSettledBeforeItIsPlanned) {
  std::mutex mutex;
  int calls = 0;
  const auto adjust = [&](Recipe& settled, const runtime::Capacity& capacity) {
    const std::lock_guard lock(mutex);
    ++calls;
    EXPECT_EQ(settled.data.packing, runtime::Packing::documents);
    EXPECT_GT(capacity.together, 0u);
    settled.training.micro_batch_size = 3;
  };
  EXPECT_EQ(planned(recipe(), {.adjust = adjust}).job.model->batch.tokens, 3u * 16);
  EXPECT_EQ(calls, 2);
}

// Of a training by its data; of an evaluation by the training's, as far as they are here.
TEST_F(PlannedRunTest, SettlesTheMicroBatch) {
  const std::vector<std::string> automatic = {"training.micro_batch_size=auto", "memory.device=100MB",
                                              "training.global_batch_size=64"};
  Recipe settled = recipe(automatic);
  (void)runtime::settle(settled, false);
  (void)runtime::settle_micro_batch(settled, 2, {});
  const std::int64_t size = settled.training.micro_batch_size;
  ASSERT_GT(size, 1);
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate})
    EXPECT_EQ(planned(recipe(automatic), {purpose}).job.recipe.training.micro_batch_size, size);
  auto gone = automatic;
  gone.push_back("data.train=" + path("gone.bin"));
  EXPECT_GT(planned(recipe(gone), {Purpose::evaluate}).job.recipe.training.micro_batch_size, 1);
}

TEST_F(PlannedRunTest, WhatDoesNotFitIsRefusedByAllRanks) {
  comm::run_threads(2, [&](comm::World& world) {
    EXPECT_FAILURE(plan_run(recipe({"memory.device=100KB", "memory.host=100KB"}), world), Exit::does_not_fit,
                   HasSubstr("fit"));
  });
}

TEST_F(PlannedRunTest, DataElsewhereAreSaidAndNotCounted) {
  std::vector<std::string> notes;
  Recipe elsewhere = recipe({"data.train=" + path("gone.bin"), "data.packing=documents"});
  settle_as_far_as_seen(elsewhere, [&](const std::string& text) { notes.push_back(text); });
  EXPECT_THAT(notes, testing::ElementsAre(testing::AllOf(HasSubstr("not counted"), HasSubstr("gone.bin"))));
  notes.clear();
  Recipe here = recipe();
  settle_as_far_as_seen(here, [&](const std::string& text) { notes.push_back(text); });
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_GT(here.data.index_bytes, 0u);
}

}  // namespace
}  // namespace strata::launcher
