// Runs on packed documents, masked and mixed: the numerics contract holds for them as for a stream
// (docs/architecture.md), and each document's loss is what it is alone.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/open_data.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/evaluator.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

class PackedRun : public testing::Test {
 protected:
  PackedRun() {
    std::vector<std::uint64_t> lengths, others;
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
      lengths.push_back(1 + i * i % 23);  // some above the sequence of 16
      count += lengths.back();
      others.push_back(2 + i * 7 % 9);
    }
    std::string mask;
    for (std::uint64_t i = 0; i < count; ++i) mask += i * i % 7 < 3 ? '1' : '0';
    folder_.write("a.bin", lengths, mask);
    folder_.write("b.bin", others, std::nullopt, 50);
  }
  std::string path(const std::string& name) const { return (folder_.folder().path() / name).string(); }
  std::string sources() const {
    return fmt::format("data.train=[{{files=\"{}\", weight=0.7}}, {{files=\"{}\", weight=0.3}}]", path("a.bin"),
                       path("b.bin"));
  }
  // Four micro-batches of two sequences per step.
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"model.preset=tiny-llama",
                                    "model.config.num_hidden_layers=2",
                                    "model.config.hidden_size=32",
                                    "model.config.num_attention_heads=2",
                                    "model.config.num_key_value_heads=1",
                                    "model.config.intermediate_size=48",
                                    "model.config.vocab_size=130",
                                    "data.seq_len=16",
                                    "training.micro_batch_size=2",
                                    "training.max_steps=4",
                                    "optimizer.learning_rate=2e-3",
                                    fmt::format("training.gradient_accumulation_steps={}", 4 / ranks),
                                    sources()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  tests::TokenFolder folder_{130};
};

TEST_F(PackedRun, SameBitsOverRanksStagesTiersThreadsAndRecomputation) {
  const Trained first = train_in_threads(std::nullopt, sets(1), 1);
  const std::vector<std::vector<std::string>> variants = {
      {"zero.stage=0"},
      {"zero.stage=3", "training.recompute=block"},
      {"zero.stage=2", "zero.optimizer=host", "device.threads=3"},
      {"zero.stage=3", "zero.parameters=host", "zero.optimizer=host", "memory.order=vertical"},
  };
  for (const int ranks : {1, 2, 4})
    for (const auto& variant : variants) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, variant.back()));
      const Trained trained = train_in_threads(std::nullopt, sets(ranks, variant), ranks);
      EXPECT_EQ(trained.loss_hex, first.loss_hex);
      EXPECT_EQ(trained.weights_hash, first.weights_hash);
    }
}

TEST_F(PackedRun, ResumesWithOtherRanksAndStages) {
  const SavedRun run;
  const auto with = [&](int ranks, const std::vector<std::string>& more) {
    auto all = sets(ranks, more);
    all.push_back("checkpoint.dir=" + run.checkpoints().string());
    return all;
  };
  const auto whole = run.run(1, with(1, {"checkpoint.resume=none"}), 4, {2});
  for (const int ranks : {2, 4}) {
    const auto rest = run.run(ranks, with(ranks, {"zero.stage=3"}), 4);
    EXPECT_EQ(rest.resumed, "step-00000002");
    EXPECT_EQ(rest.losses, std::vector<std::string>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.weights, whole.weights);
  }
}

// State is saved in groups of ranks, and loaded in other groups or without groups.
TEST_F(PackedRun, ResumesInOtherGroupsOfRanks) {
  const struct {
    int ranks;
    std::vector<std::string> sets;
  } layouts[] = {{1, {"zero.stage=0"}},
                 {4, {"zero.stage=3", "zero.parameters_group=2"}},
                 {4, {"zero.stage=3", "zero.optimizer_group=2", "zero.optimizer=host"}},
                 {4, {"zero.stage=1", "zero.optimizer_group=2"}}};
  std::vector<std::string> losses;
  std::string weights;
  for (const auto& from : layouts) {
    const SavedRun run;
    const auto with = [&](const auto& layout, const char* resume) {
      auto all = sets(layout.ranks, layout.sets);
      all.push_back("checkpoint.dir=" + run.checkpoints().string());
      all.push_back(fmt::format("checkpoint.resume={}", resume));
      return all;
    };
    const auto whole = run.run(from.ranks, with(from, "none"), 4, {2});
    if (losses.empty()) {
      losses = whole.losses;
      weights = whole.weights;
    }
    EXPECT_EQ(whole.losses, losses) << from.sets.back();
    EXPECT_EQ(whole.weights, weights) << from.sets.back();
    for (const auto& to : layouts) {
      const auto rest = run.run(to.ranks, with(to, "auto"), 4);
      EXPECT_EQ(rest.resumed, "step-00000002");
      EXPECT_EQ(rest.losses, std::vector<std::string>(losses.begin() + 2, losses.end()))
          << from.sets.back() << " to " << to.sets.back();
      EXPECT_EQ(rest.weights, weights) << from.sets.back() << " to " << to.sets.back();
    }
  }
}

// A step's number of labels is known before its first backward. So their distribution over micro-batches does not
// matter, except for fp32's rounding of sums of other shapes.
TEST_F(PackedRun, AllLabelsOfAStepHaveEqualWeight) {
  const auto losses = [&](int batch, int accumulation) {
    const Trained trained =
        train_in_threads(std::nullopt,
                         sets(1, {"training.precision=fp32", fmt::format("training.micro_batch_size={}", batch),
                                  fmt::format("training.gradient_accumulation_steps={}", accumulation)}),
                         1);
    return trained.steps;
  };
  const auto one = losses(8, 1), eight = losses(1, 8);
  std::set<std::uint64_t> labels;
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].labels, eight[i].labels);
    EXPECT_NEAR(one[i].loss, eight[i].loss, 1e-5 * one[i].loss);
    EXPECT_NEAR(one[i].grad_norm, eight[i].grad_norm, 1e-4 * one[i].grad_norm);
    labels.insert(one[i].labels);
  }
  EXPECT_GT(labels.size(), 1u) << "steps with equal numbers of labels would show little";
}

struct PackedRunEvaluated {
  double loss = 0;
  std::string loss_hex;
  std::uint64_t labels = 0;
};

PackedRunEvaluated evaluate(const std::vector<std::string>& sets, int ranks) {
  Workload workload = open_workload(load_recipe(std::nullopt, sets));
  const Recipe& recipe = workload.recipe;
  resolve_data(workload.recipe, workload.data, true, {});
  PackedRunEvaluated result;
  comm::run_threads(ranks, [&](comm::World& world) {
    const Job job = make_job(workload, ranks, capacity_of(recipe.memory, 1), Purpose::evaluate);
    EXPECT_EQ(job.plan.index_buffer >= 0, job.packing() == Packing::documents);
    Evaluator evaluator(job, world, 1, *first_weights(job, world, 1, {}));
    const Evaluation e = *evaluator.run([](std::uint64_t, std::uint64_t) { return true; });
    EXPECT_EQ(memory_json(evaluator.executor().measured_memory(), nullptr), memory_json(job.plan.memory, nullptr));
    if (world.rank() == 0) result = {e.loss, hex(e.loss), e.labels};
  });
  return result;
}

// Each document as a stream of its own, compared with all of them packed. Sums over keys and products have other
// shapes, so fp32's rounding differs. A row that sees a neighbour would differ far more.
TEST_F(PackedRun, ADocumentsLossDoesNotDependOnItsNeighbours) {
  std::vector<std::uint64_t> lengths;
  double sum = 0;
  std::uint64_t labels = 0, begin = 0;
  const auto all = sets(1, {"training.precision=fp32", "data.validation=" + path("v.bin")});
  for (std::uint64_t i = 0; i < 12; ++i) {
    lengths.push_back(2 + i * 5 % 13);
    folder_.write("v.bin", {lengths.back()}, std::nullopt, static_cast<std::uint32_t>(begin));
    auto alone = all;
    alone.insert(alone.end(), {"data.packing=stream", "data.train=[]"});
    const PackedRunEvaluated e = evaluate(alone, 1);
    sum += e.loss * static_cast<double>(e.labels);
    labels += e.labels;
    begin += lengths.back();
  }
  folder_.write("v.bin", lengths);
  const PackedRunEvaluated packed = evaluate(all, 1);
  EXPECT_EQ(packed.labels, labels);
  EXPECT_NEAR(packed.loss, sum / static_cast<double>(labels), 1e-6 * packed.loss);
  for (const int ranks : {2, 3}) EXPECT_EQ(evaluate(all, ranks).loss_hex, packed.loss_hex);
}

// The index is in planned memory, as in the program.
TEST_F(PackedRun, TheIndexIsInThePlan) {
  Workload workload = open_workload(load_recipe(std::nullopt, sets(1)));
  const Recipe& recipe = workload.recipe;
  const DataFacts& facts = workload.data;
  resolve_data(workload.recipe, workload.data, false, {});
  EXPECT_EQ(facts.packing, Packing::documents) << "a mask implies documents";
  EXPECT_GT(facts.index_bytes, 0u);
  EXPECT_GT(facts.mean_squares, 0);
  EXPECT_LT(facts.mean_squares, 16 * 16);
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(workload, 1, capacity_of(recipe.memory, 1));
    ASSERT_GE(job.plan.index_buffer, 0);
    EXPECT_GE(job.plan.memory[static_cast<std::size_t>(Tier::host)].peak, facts.index_bytes);
    Trainer trainer(job, world, 1);
    trainer.load_initial_weights(1);
    const Trained unplanned = train_in_threads(std::nullopt, sets(1), 1);
    EXPECT_EQ(hex(trainer.step(false).loss), unplanned.loss_hex[0]);
    EXPECT_EQ(memory_json(trainer.executor().measured_memory(), nullptr), memory_json(job.plan.memory, nullptr));
  });
}

}  // namespace
}  // namespace strata::runtime
