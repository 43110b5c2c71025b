// parallel.split = "auto": stages are balanced by the planner's costs, and fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/capacity.h"
#include "runtime/job/choices.h"
#include "tests/failure.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

// Eight blocks, and a head that takes as long as two or three of them.
const std::vector<std::string> kLargeHead = {
    "model.config.n_layer=8",   "model.config.n_embd=128",      "model.config.n_head=4",
    "model.config.n_inner=512", "model.config.vocab_size=4000", "model.config.n_positions=128",
    "data.seq_len=128",         "training.precision=fp32",      "training.gradient_accumulation_steps=4",
    "parallel.stages=2"};

std::vector<std::string> and_more(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

std::vector<Job> stages_of(std::vector<std::string> sets, int ranks) {
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16"});
  const Recipe recipe = load_recipe({}, sets);
  return jobs_of_stages(open_workload(recipe), ranks, capacity_of(recipe.memory, 1));
}

std::size_t largest_peak(const std::vector<Job>& stages) {
  std::size_t peak = 0;
  for (const Job& stage : stages) peak = std::max(peak, stage.plan.memory[0].peak);
  return peak;
}

// The time of the slowest stage by the costs of the stages' own plans.
double slowest(const std::vector<Job>& stages) {
  double most = 0;
  for (const Job& stage : stages) {
    StageTimes times(stage.model->units.size());
    times.add(stage.plan, nominal_profile(stage.plan), stage.plan.accumulation);
    most = std::max(most, times.of(stage.plan.own.ranges[0]));
  }
  return most;
}

TEST(Split, BalancesByCostsOfHeadAndTableToo) {
  const std::vector<Job> balanced = stages_of(kLargeHead, 2);
  const double time = slowest(balanced);
  EXPECT_GT(balanced[0].plan.own.last(), 4) << "the first stage has more than half of the blocks";
  for (int first = 0; first <= 8; ++first) {
    const std::string split = fmt::format("parallel.split=[{}, {}]", first, 8 - first);
    EXPECT_LE(time, 1.05 * slowest(stages_of(and_more(kLargeHead, {split}), 2))) << split;
  }
  for (const Job& stage : balanced) EXPECT_EQ(stage.plan.pieces, balanced[0].plan.pieces);
}

double simulated_step(const std::vector<Job>& stages) {
  std::vector<const StepPlan*> plans;
  for (const Job& stage : stages) plans.push_back(&stage.plan);
  const auto spans = simulate(plans, nominal_profile(*plans[0]));
  std::vector<SimulatedStage> all;
  for (std::size_t s = 0; s < plans.size(); ++s) all.push_back({plans[s], spans[s]});
  return makespan_s(all);
}

double step_of(const std::vector<std::string>& sets, int ranks) {
  const Recipe asked = load_recipe({}, sets);
  const Capacity capacity = capacity_of(asked.memory, 1, planned_rank_device(asked.device.kind));
  return simulated_step(jobs_of_stages(open_workload(asked), ranks, capacity));
}

// A stage's lanes wait for each other: with the head's gradients on their way, the last stage takes longer than its
// busiest lane. On a GPU, the split with the fastest busiest lanes takes a tenth longer than the fastest split.
TEST(Split, IsTheFastestInSimulation) {
  const std::vector<std::string> sets = {"model.preset=llama-1b",
                                         "model.config.num_hidden_layers=6",
                                         "data.seq_len=1024",
                                         "training.precision=bf16",
                                         "training.gradient_accumulation_steps=4",
                                         "parallel.stages=3",
                                         "device.kind=cuda",
                                         "memory.device=140GiB",
                                         "memory.host=200GiB"};
  const double chosen = step_of(sets, 6);
  for (int first = 0; first <= 6; ++first)
    for (int second = 1; first + second <= 6; ++second) {
      const std::string split = fmt::format("parallel.split=[{}, {}, {}]", first, second, 6 - first - second);
      EXPECT_LE(chosen, 1.03 * step_of(and_more(sets, {split}), 6)) << split;
    }
}

// The same for two stages of two chunks. The split that is balanced by the lanes takes 4% longer than the fastest.
TEST(Split, IsTheFastestInSimulationWithChunks) {
  const std::vector<std::string> sets = {"model.preset=llama-1b",
                                         "model.config.num_hidden_layers=8",
                                         "data.seq_len=1024",
                                         "training.precision=bf16",
                                         "training.gradient_accumulation_steps=4",
                                         "parallel.stages=2",
                                         "parallel.schedule=interleaved",
                                         "parallel.chunks=2",
                                         "device.kind=cuda",
                                         "memory.device=140GiB",
                                         "memory.host=200GiB"};
  const double chosen = step_of(sets, 2);
  for (int first = 0; first <= 8; ++first)
    for (int second = 1; first + second <= 7; ++second)
      for (int third = 1; first + second + third <= 8; ++third) {
        const std::string split =
            fmt::format("parallel.split=[{}, {}, {}, {}]", first, second, third, 8 - first - second - third);
        EXPECT_LE(chosen, 1.03 * step_of(and_more(sets, {split}), 2)) << split;
      }
}

// Two stages of two chunks: the first stage has the first and the third of four pieces.
TEST(Split, BalancesPiecesOfChunks) {
  const std::vector<std::string> sets = and_more(kLargeHead, {"parallel.schedule=interleaved", "parallel.chunks=2"});
  const std::vector<Job> stages = stages_of(sets, 2);
  const std::vector<UnitRange>& pieces = stages[0].plan.pieces;
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(stages[0].plan.own.ranges, (std::vector{pieces[0], pieces[2]}));
  EXPECT_EQ(stages[1].plan.own.ranges, (std::vector{pieces[1], pieces[3]}));
  EXPECT_EQ(pieces[0].first, 0);
  EXPECT_EQ(pieces[3].last, 9);
  EXPECT_LT(pieces[3].last - pieces[3].first, pieces[0].last - pieces[0].first) << "the head takes a long time";
  // A stage that is too large is cut differently.
  const std::size_t least = largest_peak(stages);
  EXPECT_NE(stages_of(and_more(sets, {fmt::format("memory.device={}", least - 1)}), 2)[0].plan.pieces, pieces);
}

// The balanced split puts most blocks into the first stage, whose memory they exceed: fewer are put there, if that
// fits.
TEST(Split, KeepsTheMemoryOfEachStage) {
  const std::vector<std::string>& sets = kLargeHead;
  const std::vector<Job> balanced = stages_of(sets, 2);
  std::size_t least = largest_peak(balanced), most = 0;
  for (int first = 0; first <= 8; ++first) {
    const std::size_t peak =
        largest_peak(stages_of(and_more(sets, {fmt::format("parallel.split=[{}, {}]", first, 8 - first)}), 2));
    least = std::min(least, peak);
    most = std::max(most, peak);
  }
  ASSERT_LT(least, largest_peak(balanced)) << "the balanced split has the least memory anyway";
  const std::vector<Job> fitting = stages_of(and_more(sets, {fmt::format("memory.device={}", least)}), 2);
  EXPECT_EQ(largest_peak(fitting), least);
  EXPECT_NE(fitting[0].plan.pieces, balanced[0].plan.pieces);
  EXPECT_TRUE(memory_of_stages(fitting[0], capacity_of(fitting[0].recipe.memory, 1)).has_value());
  // If no split fits, the refusal reports the least that any needs.
  const std::vector<Job> refused = stages_of(and_more(sets, {fmt::format("memory.device={}", least - 1)}), 2);
  EXPECT_EQ(largest_peak(refused), least);
  EXPECT_FALSE(memory_of_stages(refused[0], capacity_of(refused[0].recipe.memory, 1)).has_value());
}

// A search's limit on planned tasks counts the plans by which a split was chosen.
TEST(Split, CountsTheTasksOfItsPlans) {
  const auto split_tasks = [](const std::vector<std::string>& more) {
    const std::vector<Job> stages = stages_of(and_more(kLargeHead, more), 2);
    std::size_t tasks = 0;
    for (const Job& stage : stages) tasks += stage.plan.tasks.size();
    EXPECT_EQ(stages[1].split_tasks, 0u) << "the first stage chose the split";
    return std::pair{stages[0].split_tasks, tasks};
  };
  const auto [chosen, once] = split_tasks({});
  EXPECT_GE(chosen, once);
  const auto [tried, planned] = split_tasks({"memory.device=100KB"});
  EXPECT_GE(tried, planned);
  const auto [given, of_list] = split_tasks({"parallel.split=[4, 4]"});
  EXPECT_EQ(given, 0u) << of_list;
}

// Long steps are planned with fewer micro-batches, but with the batch of all: a split that fits exactly is found.
TEST(Split, CountsTheBatchOfLongSteps) {
  const std::vector<std::string> sets =
      and_more(kLargeHead, {"training.gradient_accumulation_steps=601", "memory.host=1KiB"});
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (int first = 0; first <= 8; ++first)
    least = std::min(
        least, largest_peak(stages_of(and_more(sets, {fmt::format("parallel.split=[{}, {}]", first, 8 - first)}), 2)));
  EXPECT_EQ(largest_peak(stages_of(and_more(sets, {fmt::format("memory.device={}", least)}), 2)), least);
}

// Blocks are the layers of config.json, also in an encoder, whose embedding has a norm in a unit of its own.
TEST(Split, CountsAnEncodersLayers) {
  const std::vector<std::string> sets = {"model.preset=bert-base",
                                         "model.config.num_hidden_layers=3",
                                         "model.config.hidden_size=32",
                                         "model.config.num_attention_heads=2",
                                         "model.config.intermediate_size=64",
                                         "model.config.vocab_size=96",
                                         "training.objective=masked_lm",
                                         "training.micro_batch_size=1"};
  const auto units = [&](const char* split) {
    std::vector<std::vector<std::string>> out;
    for (const Job& stage : stages_of(and_more(sets, {"parallel.stages=2", split}), 2))
      for (auto& names = out.emplace_back(); const int unit : stage.plan.own.all())
        names.push_back(stage.model->units[static_cast<std::size_t>(unit)]->name());
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(
      units("parallel.split=[2, 1]"),
      testing::ElementsAre(Names{"embedding", "embedding norm", "block 0", "block 1"}, testing::Contains("block 2")));
  EXPECT_EQ(units("parallel.split=[0, 3]")[0], (Names{"embedding", "embedding norm"}));
  EXPECT_FAILURE(units("parallel.split=[3, 1]"), Exit::usage, testing::HasSubstr("4 blocks for the model's 3"));
  const Job job = std::move(stages_of(sets, 1)[0]);
  const std::vector<UnitRange> with_norm = {{0, 1}, {2, 5}}, without_norm = {{0, 0}, {1, 5}};
  EXPECT_THAT(blocks_of_pieces(*job.model, with_norm), testing::ElementsAre(0, 3));
  EXPECT_THAT(blocks_of_pieces(*job.model, without_norm), testing::IsEmpty()) << "no list describes these pieces";

  const auto recomputed = [&](const char* list) {
    Names names;
    const Job listed = std::move(stages_of(and_more(sets, {list}), 1)[0]);
    for (const Segment& segment : segments_of(listed.recipe.training.recompute, *listed.model))
      if (segment.recompute) names.push_back(listed.model->units[static_cast<std::size_t>(segment.first)]->name());
    return names;
  };
  EXPECT_EQ(recomputed("training.recompute=[0, 2]"), (Names{"block 0", "block 2"}));
  EXPECT_FAILURE(recomputed("training.recompute=[3]"), Exit::usage, testing::HasSubstr("has blocks 0 to 2"));
}

}  // namespace
}  // namespace strata::runtime
