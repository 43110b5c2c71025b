#include "launcher/rank/planned_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "models/files/config.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/token_sidecar.h"
#include "runtime/job/search/micro_batch.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/resume.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/opens.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using runtime::Purpose;
using runtime::Recipe;
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
              Each(HasSubstr("rank 2 was given a different recipe or command than rank 0")));
  EXPECT_THAT(refusals({kTrains, with(kTrains, "training.seed=7")}),
              Each(HasSubstr("rank 1 was given a different recipe or command than rank 0")));
}

TEST(ReadRecipe, AllRanksHaveTheSameCommand) {
  EXPECT_THAT(refusals({kTrains, kTrains}, {true, false}), Each(HasSubstr("a different recipe or command")));
}

TEST(ReadRecipe, AllRanksThrowOneRanksError) {
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

TEST(AgreeOnRankDevice, CpuRanksShareNoDevice) {
  runtime::Recipe recipe;
  recipe.device.kind = runtime::DeviceKind::cpu;
  comm::run_threads(2, [&](comm::World& world) {
    const runtime::RankDevice rank_device = agree_on_rank_device(recipe, world);
    EXPECT_EQ(rank_device.device.kind, device::Kind::cpu);
    EXPECT_EQ(rank_device.gpu, "");
    EXPECT_EQ(rank_device.sharing, 1);
  });
}

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
  // The result of rank 0, of two ranks.
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

TEST_F(PlannedRunTest, PlansTheResolvedRecipe) {
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate}) {
    runtime::Workload resolved = runtime::open_workload(recipe());
    (void)runtime::resolve_workload(resolved, purpose == Purpose::evaluate);
    const runtime::Capacity capacity = runtime::capacity_of(resolved.recipe.memory, 2);
    const runtime::Job job = runtime::make_job(resolved, 2, capacity, purpose);
    const PlannedRun run = planned(recipe(), {purpose});
    EXPECT_EQ(runtime::hash_of(run.job.plan), runtime::hash_of(job.plan));
    EXPECT_EQ(run.capacity.together, capacity.together);
    EXPECT_EQ(run.job.packing(), runtime::Packing::documents) << "the files have masks";
    EXPECT_EQ(run.job.recipe.data.packing, runtime::Packing::automatic) << "the recipe stays what the user wrote";
    EXPECT_EQ(run.data.train.size(), purpose == Purpose::train ? 1u : 0u);
    EXPECT_EQ(run.data.validation != nullptr, purpose == Purpose::evaluate);
  }
}

// Neither a generation nor a benchmark reads data, so missing files do not matter.
TEST_F(PlannedRunTest, IgnoresDataThatItDoesNotRead) {
  const Recipe elsewhere = recipe({"data.train=" + path("gone.bin"), "data.packing=documents"});
  for (const Purpose purpose : {Purpose::train, Purpose::generate}) {
    const PlannedRun run = planned(elsewhere, {.purpose = purpose, .looks_at_data = false});
    EXPECT_TRUE(run.data.train.empty());
    EXPECT_EQ(run.job.data.index_bytes, 0u);
  }
  EXPECT_FAILURE(planned(elsewhere), Exit::usage, HasSubstr("gone.bin"));
}

// This is found before a run prints anything, even for streams, which are opened later.
TEST_F(PlannedRunTest, ReportsMissingDataFirst) {
  const auto looked = [&](const std::vector<std::string>& sets, bool trains) {
    comm::run_threads(2, [&](comm::World& world) { require_data(recipe(sets), trains, world); });
  };
  EXPECT_NO_THROW(looked({}, true));
  EXPECT_FAILURE(looked({"data.train=" + path("gone.bin"), "data.packing=stream"}, true), Exit::usage,
                 HasSubstr("data.train: no file matches"));
  EXPECT_FAILURE(looked({"data.validation=" + path("gone*.bin")}, true), Exit::usage,
                 HasSubstr("data.validation: no file matches"));
  EXPECT_NO_THROW(looked({"data.train=" + path("gone.bin")}, false)) << "an evaluation reads none";
}

// The ranks agree on this before a run prints anything, for streams, too, which are opened later.
TEST_F(PlannedRunTest, RefusesTokensOfAnotherTokenizer) {
  const tests::ScratchFolder model;
  model.write("config.json", models::preset_config("tiny-gpt2"));
  model.write("tokenizer.json", R"({"model":{"type":"BPE"}})");
  const auto plan = [&](const std::string& file, Purpose purpose, const std::vector<std::string>& more = {}) {
    const runtime::TokenSidecar sidecar{.vocab_size = 97, .tokenizer = "byte", .tokenizer_hash = "0", .count = 30};
    model.write(file, std::string(60, '\0'));
    model.write(file + ".json", to_json(sidecar));
    std::vector<std::string> sets = {"model.path=" + model.path().string(),
                                     "model.init=random",
                                     "data.seq_len=8",
                                     "data.train=" + (model.path() / "t.bin").string(),
                                     "training.max_steps=1",
                                     "data.validation=" + (model.path() / "v.bin").string(),
                                     "memory.device=1GB",
                                     "memory.host=1GB"};
    sets.insert(sets.end(), more.begin(), more.end());
    (void)planned(runtime::load_recipe(std::nullopt, sets), {purpose});
  };
  model.write("t.bin", std::string(60, '\0'));
  const auto refused = [](const std::string& file) {
    return AllOf(HasSubstr(file + " holds tokens of the tokenizer byte"), HasSubstr("data.any_tokenizer = true"));
  };
  EXPECT_FAILURE(plan("v.bin", Purpose::train), Exit::usage, refused("v.bin"));
  EXPECT_FAILURE(plan("v.bin", Purpose::evaluate), Exit::usage, refused("v.bin"));
  EXPECT_NO_THROW(plan("v.bin", Purpose::train, {"data.any_tokenizer=true"}));
  model.write("v.bin", std::string(60, '\0'));
  std::filesystem::remove(model.path() / "v.bin.json");
  EXPECT_FAILURE(plan("t.bin", Purpose::train), Exit::usage, refused("t.bin"));
  EXPECT_NO_THROW(plan("t.bin", Purpose::evaluate)) << "an evaluation reads none";
}

TEST_F(PlannedRunTest, AdjustsTheResolvedRecipeBeforePlanning) {
  std::mutex mutex;
  int calls = 0;
  const auto adjust = [&](runtime::Workload& resolved, const runtime::Capacity& capacity) {
    const std::lock_guard lock(mutex);
    ++calls;
    EXPECT_EQ(resolved.packing(), runtime::Packing::documents);
    EXPECT_GT(capacity.together, 0u);
    resolved = resolved.with(runtime::with_micro_batch(resolved.recipe, 3));
  };
  EXPECT_EQ(planned(recipe(), {.adjust = adjust}).job.model->batch.tokens, 3u * 16);
  EXPECT_EQ(calls, 2);
}

// The number of a training depends on its data. An evaluation takes the training's number, as far as its data exist.
TEST_F(PlannedRunTest, ResolvesTheMicroBatch) {
  const std::vector<std::string> automatic = {"training.micro_batch_size=auto", "memory.device=100MB",
                                              "training.global_batch_size=64"};
  runtime::Workload resolved = runtime::open_workload(recipe(automatic));
  (void)runtime::resolve_workload(resolved, false);
  const std::int64_t size = runtime::resolve_micro_batch(resolved, 2, {}).size;
  ASSERT_GT(size, 1);
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate})
    EXPECT_EQ(planned(recipe(automatic), {purpose}).job.recipe.training.micro_batch_size, size);
  auto gone = automatic;
  gone.push_back("data.train=" + path("gone.bin"));
  EXPECT_GT(planned(recipe(gone), {Purpose::evaluate}).job.recipe.training.micro_batch_size, 1);
}

TEST_F(PlannedRunTest, AllRanksRefuseAPlanThatDoesNotFit) {
  comm::run_threads(2, [&](comm::World& world) {
    EXPECT_FAILURE(plan_run(recipe({"memory.device=100KB", "memory.host=100KB"}), world), Exit::does_not_fit,
                   HasSubstr("fit"));
  });
}

// The description is needed often: by the objective, the data, the micro-batch, the plan, and the search for what fits.
TEST_F(PlannedRunTest, ReadsTheModelsDescriptionOnce) {
  const auto config = folder_.folder().write(
      "m/config.json",
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 32, "vocab_size": 130})");
  const auto of_folder = [&](const std::vector<std::string>& more) {
    Recipe r = recipe(more);
    r.model = {.path = config.parent_path(),
               .preset = {},
               .init = runtime::Init::random,
               .new_head = false,
               .config = {{"n_layer", "1"}}};
    return r;
  };
  const std::vector<std::string> automatic = {"training.micro_batch_size=auto", "evaluation.every=1"};
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate, Purpose::generate}) {
    tests::Opens opens(config);
    comm::run_threads(1, [&](comm::World& world) {
      const PlannedRun run = plan_run(of_folder(automatic), world, {.purpose = purpose});
      EXPECT_EQ(run.job.model->units.size(), 3u) << "with the recipe's keys";
    });
    EXPECT_EQ(opens.count(), 1);
  }
  tests::Opens opens(config);
  comm::run_threads(1, [&](comm::World& world) {
    EXPECT_FAILURE(plan_run(of_folder({"memory.device=20KB", "memory.host=100KB"}), world), Exit::does_not_fit,
                   HasSubstr("fit"));
  });
  EXPECT_EQ(opens.count(), 1) << "a search for a recipe that fits would plan many";
}

// The virtual shards of the checkpoint, or of the recipe, stay.
TEST_F(PlannedRunTest, ParallelDegreesOfATrainingDoNotBindOtherCommands) {
  const auto notes = [](const Recipe& asked) { return notes_of_degrees(asked.parallel); };
  EXPECT_THAT(notes(recipe({"parallel.tensor=8", "parallel.stages=2"})),
              testing::ElementsAre("parallel.tensor = 8 has no effect: only training divides the model over ranks",
                                   "parallel.stages = 2 has no effect: only training divides the model over ranks"));
  EXPECT_EQ(notes(recipe({"parallel.tensor=2"})).size(), 1u);
  EXPECT_THAT(notes(recipe()), testing::IsEmpty());
  const auto planned_shards = [&](std::optional<std::int64_t> of_checkpoint) {
    runtime::Workload workload = runtime::open_workload(recipe({"parallel.tensor=2", "parallel.stages=2"}));
    workload.resolved.tensor_shards = of_checkpoint;
    const runtime::Capacity capacity = runtime::capacity_of(workload.recipe.memory, 1);
    return runtime::make_job(workload, 1, capacity, Purpose::evaluate).shards();
  };
  EXPECT_EQ(planned_shards(1), 1u);
  EXPECT_EQ(planned_shards(std::nullopt), 2u) << "there is no checkpoint";
}

TEST_F(PlannedRunTest, ReportsDataThatAreElsewhere) {
  std::vector<std::string> notes;
  runtime::Workload elsewhere =
      runtime::open_workload(recipe({"data.train=" + path("gone.bin"), "data.packing=documents"}));
  resolve_visible_data(elsewhere, [&](const std::string& text) { notes.push_back(text); });
  EXPECT_THAT(notes, testing::ElementsAre(testing::AllOf(HasSubstr("not counted"), HasSubstr("gone.bin"))));
  notes.clear();
  runtime::Workload here = runtime::open_workload(recipe());
  resolve_visible_data(here, [&](const std::string& text) { notes.push_back(text); });
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_GT(here.data.index_bytes, 0u);
}

}  // namespace

}  // namespace strata::launcher
