#include "runtime/run/periodic_evaluation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <xxhash.h>

#include <set>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/plan/proof/proof.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PeriodicEvaluationTest : public testing::Test {
 protected:
  PeriodicEvaluationTest() {
    for (int i = 500; i < 801; ++i) tokens_ += {static_cast<char>((i * i * 7 + i / 5) % 130), '\0'};
    validation_ = run_.folder().write("validation.bin", tokens_).string();
  }
  std::vector<std::string> sets(int ranks, std::vector<std::string> more = {}) const {
    more.push_back("data.validation=" + validation_);
    return run_.sets(ranks, more);
  }
  std::vector<std::string> evaluating(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = sets(ranks, {"evaluation.every=2", "evaluation.at_start=true"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> there() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(run_.checkpoints()))
      if (entry.is_directory()) out.insert(entry.path().filename().string());
    return {out.begin(), out.end()};
  }
  // The loss of `strata eval`.
  std::string evaluate(const std::string& checkpoint) const {
    const Recipe recipe =
        load_recipe(std::nullopt, sets(1, {"checkpoint.resume=" + (run_.checkpoints() / checkpoint).string()}));
    std::string loss;
    comm::run_threads(1, [&](comm::World& world) {
      const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1), Purpose::evaluate);
      const auto weights = weights_to_evaluate(job, world, 1, [](const std::string&) {});
      loss = hex(Evaluator(job, world, 1, *weights).run([](auto, auto) { return true; })->loss);
    });
    return loss;
  }

  SavedRun run_;
  std::string tokens_, validation_;
};

TEST_F(PeriodicEvaluationTest, HasAnEvaluationsBitsAndChangesNoneOfTheTraining) {
  const auto plain = run_.run(1, sets(1, {"checkpoint.keep=9"}), 6, {2, 4, 6});
  const std::vector<std::string> then = {evaluate("step-00000002"), evaluate("step-00000004"),
                                         evaluate("step-00000006")};
  const std::string nvme = "memory.nvme=" + (run_.folder().path() / "drive").string();
  fs::create_directory(run_.folder().path() / "drive");
  const std::vector<std::vector<std::string>> layouts = {
      {"zero.stage=0"},
      {"zero.stage=1", "training.recompute=block"},
      {"zero.stage=2", "zero.optimizer=host"},
      {"zero.stage=3", "memory.order=vertical"},
      {"zero.stage=3", "zero.optimizer=nvme", "zero.parameters=nvme", "zero.gradients=host", nvme}};
  for (const int ranks : {1, 2, 4})
    for (const auto& layout : layouts) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, layout.back()));
      std::vector<std::string> more = layout;
      more.emplace_back("checkpoint.resume=none");
      const auto result = run_.run(ranks, evaluating(ranks, more), 6);
      EXPECT_EQ(result.losses, plain.losses);
      EXPECT_EQ(result.weights, plain.weights);
      ASSERT_THAT(result.evaluations, SizeIs(4));
      EXPECT_EQ(std::vector(result.evaluations.begin() + 1, result.evaluations.end()), then);
    }
}

TEST_F(PeriodicEvaluationTest, UsesMemoryThatAStepLeavesFree) {
  for (const int ranks : {1, 4})
    for (const char* stage : {"zero.stage=0", "zero.stage=3"}) {
      const Recipe with = load_recipe(std::nullopt, evaluating(ranks, {stage}));
      const Recipe without = load_recipe(std::nullopt, sets(ranks, {stage}));
      const Job job = make_job(open_workload(with), ranks, capacity_of(with.memory, 1));
      ASSERT_TRUE(job.evaluation);
      EXPECT_EQ(job.plan.memory[0].peak,
                make_job(open_workload(without), ranks, capacity_of(with.memory, 1)).plan.memory[0].peak);
      const auto peaks = [](const StepPlan& plan) {
        return std::array{plan.memory[0].peak, plan.memory[1].peak, plan.memory[2].peak};
      };
      EXPECT_EQ(find_violation(job.evaluation->plan, peaks(job.plan)), std::nullopt);
      for (std::size_t unit = 0; unit < job.plan.state_buffers.size(); ++unit) {
        const auto buffer_of = [&](const StepPlan& plan) {
          return plan.buffers[static_cast<std::size_t>(plan.state_buffers[unit].parameters)];
        };
        EXPECT_EQ(buffer_of(job.evaluation->plan).offset, buffer_of(job.plan).offset);
      }
      // Apart from parameters, its buffers do not overlap buffers that live from step to step.
      for (const Buffer& own : job.evaluation->plan.buffers) {
        if (own.kind == Kind::parameters && own.persistent) continue;
        for (const Buffer& theirs : job.plan.buffers) {
          if (!theirs.persistent || theirs.tier != own.tier) continue;
          EXPECT_TRUE(own.offset >= theirs.offset + theirs.bytes || theirs.offset >= own.offset + own.bytes)
              << own.name << " and " << theirs.name;
        }
      }
    }
}

// The loss falls with every step. If greater is better, the first evaluation therefore stays the best.
TEST_F(PeriodicEvaluationTest, TracksTheBestAndEndsWithoutImprovement) {
  const auto falling = run_.run(2, evaluating(2, {"checkpoint.resume=none"}), 6);
  ASSERT_TRUE(falling.progress.best);
  EXPECT_EQ(falling.progress.best->step, 6);
  EXPECT_EQ(falling.progress.best->since, 0);
  EXPECT_EQ(hex(falling.progress.best->value), falling.evaluations.back());

  const auto rising = run_.run(
      2, evaluating(2, {"checkpoint.resume=none", "evaluation.greater_is_better=true", "evaluation.patience=2"}), 6);
  EXPECT_EQ(rising.progress.best->step, 0);
  EXPECT_EQ(rising.progress.best->since, 2);
  EXPECT_THAT(rising.losses, SizeIs(4));  // of six steps
}

TEST(BestAfterTest, AnEvaluationWithoutAValueIsNotBetter) {
  EXPECT_EQ(best_after(std::nullopt, 2, std::nullopt, true), std::nullopt);
  const auto first = best_after(std::nullopt, 2, 0.5, true);
  EXPECT_EQ(first, (Best{2, 0.5, 0, 2}));
  EXPECT_EQ(best_after(first, 4, std::nullopt, true), (Best{2, 0.5, 1, 4}));
  EXPECT_EQ(best_after(first, 4, 0.5, true), (Best{2, 0.5, 1, 4}));
  EXPECT_EQ(best_after(first, 4, 0.25, false), (Best{4, 0.25, 0, 4}));
}

// A metric that never has a value does not keep a run with patience alive forever.
TEST(EvaluationsWithoutImprovementTest, CountsEvaluationsWithoutAValue) {
  std::optional<Best> best;
  std::int64_t without = 0;
  for (int step = 2; step <= 6; step += 2) {
    best = best_after(best, step, std::nullopt, true);
    without += best ? 0 : 1;
  }
  EXPECT_EQ(evaluations_without_improvement(best, without), 3);
  best = best_after(best, 8, 0.5, true);
  EXPECT_EQ(evaluations_without_improvement(best, without), 0) << "the first value is the best";
  best = best_after(best, 10, std::nullopt, true);
  EXPECT_EQ(evaluations_without_improvement(best, without), 1);
}

TEST_F(PeriodicEvaluationTest, AResumedRunKnowsTheBest) {
  const std::vector<std::string> more = {"evaluation.greater_is_better=true"};
  const auto whole = run_.run(2, evaluating(2, {"evaluation.greater_is_better=true", "checkpoint.resume=none"}), 6);
  run_.run(2, evaluating(2, more), 4, {4});
  const auto rest = run_.run(1, evaluating(1, more), 6);
  EXPECT_EQ(rest.resumed, "step-00000004");
  EXPECT_EQ(rest.progress.best, whole.progress.best);
  EXPECT_THAT(rest.evaluations, ElementsAre(whole.evaluations.back()));  // the one of step 4 was completed
  // A value over other sequences cannot be compared.
  const auto other = run_.run(2, evaluating(2, {"evaluation.max_sequences=5"}), 6);
  EXPECT_THAT(other.notes, ElementsAre(HasSubstr("the search for the best starts over")));
  EXPECT_EQ(other.progress.best->step, 6);
  EXPECT_NE(other.evaluations.back(), rest.evaluations.back());
}

TEST_F(PeriodicEvaluationTest, KeepsTheBestCheckpointAndTheNewest) {
  const auto result = run_.run(2,
                               evaluating(2, {"checkpoint.keep=1", "checkpoint.keep_best=true",
                                              "evaluation.at_start=false", "evaluation.greater_is_better=true"}),
                               6, {3, 4, 5, 6});
  EXPECT_EQ(result.progress.best->step, 2);
  EXPECT_THAT(there(), ElementsAre("step-00000002", "step-00000006"));
  // By another measure, another checkpoint is the best. Both the earlier and the new best one stay.
  const auto other = run_.run(
      2,
      evaluating(2, {"checkpoint.keep=1", "checkpoint.keep_best=true", "evaluation.greater_is_better=false",
                     "training.max_steps=9", "checkpoint.resume=" + (run_.checkpoints() / "step-00000006").string()}),
      9, {9});
  EXPECT_THAT(there(), ElementsAre("step-00000002", "step-00000008", "step-00000009"));
  EXPECT_THAT(other.notes, testing::Contains(testing::HasSubstr("step-00000002 is kept")));
}

TEST_F(PeriodicEvaluationTest, ABetterCheckpointReplacesTheBest) {
  const std::vector<std::string> keeping = {"checkpoint.keep=1", "checkpoint.keep_best=true",
                                            "evaluation.at_start=false"};
  run_.run(2, evaluating(2, keeping), 3, {3});
  EXPECT_THAT(there(), ElementsAre("step-00000002", "step-00000003"));
  const auto result = run_.run(2, evaluating(2, keeping), 6, {5, 6});
  EXPECT_EQ(result.progress.best->step, 6);
  EXPECT_THAT(there(), ElementsAre("step-00000006"));
}

// The first run's best checkpoint stays, whatever a later run in the folder keeps or measures.
TEST_F(PeriodicEvaluationTest, TheBestCheckpointStaysUntilABetterOneByTheSameMeasure) {
  const std::vector<std::string> first = {"checkpoint.keep=1", "checkpoint.keep_best=true", "evaluation.at_start=false",
                                          "evaluation.greater_is_better=true"};
  for (const std::vector<std::string>& later : std::vector<std::vector<std::string>>{
           {"evaluation.greater_is_better=true"},
           {"evaluation.greater_is_better=true", "checkpoint.keep_best=true", "evaluation.max_sequences=3"},
           {"checkpoint.keep_best=true", "evaluation.metric=eval_perplexity"},
           {"evaluation.every=0"}}) {
    SCOPED_TRACE(later[0]);
    std::filesystem::remove_all(run_.checkpoints());
    run_.run(2, evaluating(2, first), 3, {3});
    ASSERT_THAT(there(), ElementsAre("step-00000002", "step-00000003"));
    std::vector<std::string> sets = {"checkpoint.keep=1", "evaluation.at_start=false"};
    sets.insert(sets.end(), later.begin(), later.end());
    const auto other = run_.run(2, evaluating(2, sets), 6, {4, 5, 6});
    EXPECT_THAT(there(), testing::Contains("step-00000002"));
    EXPECT_THAT(other.notes, testing::Contains(testing::HasSubstr("step-00000002 is kept")));
    // When a checkpoint exists that is better by the first measure, the old best one is removed.
    run_.run(2, evaluating(2, first), 6);
    EXPECT_THAT(there(), testing::Contains("step-00000002"));
  }
}

TEST_F(PeriodicEvaluationTest, AnInterruptedEvaluationIsRepeated) {
  const Recipe recipe = load_recipe(std::nullopt, evaluating(1));
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
    Trainer trainer(job, world, 1);
    trainer.load_initial_weights(1);
    PeriodicEvaluation evaluation(job, world, trainer);
    EXPECT_EQ(evaluation.run([](std::uint64_t done, std::uint64_t) { return done < 3; }), std::nullopt);
    EXPECT_TRUE(evaluation.due());
    EXPECT_EQ(trainer.progress().best, std::nullopt);
    EXPECT_TRUE(evaluation.run([](auto, auto) { return true; }));
    EXPECT_FALSE(evaluation.due());
  });
}

class AnswersTest : public PeriodicEvaluationTest {
 protected:
  AnswersTest() {
    run_.folder().write(
        "validation.bin.json",
        to_json(TokenSidecar{256, 2, "byte", std::string(16, '0'),
                             fmt::format("{:016x}", XXH3_64bits(tokens_.data(), tokens_.size())), 301}));
  }
  // The lines of the answers before the first step and after the second; `data`: the number of data ranks.
  std::vector<std::string> answers(int ranks, int data, std::vector<std::string> sets) {
    sets.insert(sets.end(), {"evaluation.prompts=" + prompts_, "model.config.vocab_size=260"});
    const Recipe recipe = load_recipe(std::nullopt, evaluating(data, sets));
    std::vector<std::string> all;
    comm::run_threads(ranks, [&](comm::World& world) {
      const Job job =
          make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1), Purpose::train, {}, world.rank());
      Trainer trainer(job, world, 1);
      trainer.load_initial_weights(1);
      PeriodicEvaluation evaluation(job, world, trainer, read_prompts(job, world));
      std::vector<std::string> lines;
      const auto evaluate = [&] {
        std::size_t told = 0;
        const auto report = evaluation.run([](auto, auto) { return true; }, [&] { ++told; });
        EXPECT_GE(told, report->answers.size()) << "an observer sees that it continues";
        for (const Answer& a : report->answers) lines.push_back(answer_line(trainer.steps_done(), a));
      };
      evaluate();
      for (int step = 0; step < 2; ++step) (void)trainer.step(false);
      evaluate();
      if (world.rank() == 0) all = lines;
    });
    EXPECT_THAT(all, SizeIs(4));
    EXPECT_THAT(all[1], HasSubstr("{\"step\":0,\"prompt\":\"abcdefgh\",\"completion\":"));
    return all;
  }

  std::string prompts_ = run_.folder().write("prompts.txt", "ab\n\nabcdefgh\n").string();
};

// The last stage has the logits, and every stage has the keys and values of its own blocks.
TEST_F(AnswersTest, AreTheSameOnAnyLayout) {
  const std::vector<std::string> alone = answers(1, 1, {"zero.stage=0"});
  EXPECT_EQ(answers(1, 1, {"zero.stage=3"}), alone);
  EXPECT_EQ(answers(2, 2, {"zero.stage=0"}), alone);
  EXPECT_EQ(answers(2, 2, {"zero.stage=3"}), alone);
  EXPECT_EQ(answers(2, 1, {"parallel.stages=2"}), alone);
  EXPECT_EQ(answers(4, 2, {"parallel.stages=2"}), alone);
  EXPECT_EQ(answers(2, 1, {"parallel.stages=2", "parallel.schedule=interleaved", "parallel.chunks=2"}), alone);
}

// Ranks that share blocks hold the keys and values of their own heads, and gather the logits of their words.
TEST_F(AnswersTest, AreTheSameOverRanksThatShareBlocks) {
  const struct {
    const char *adapter, *tied;
  } cases[] = {{"adapter.kind=none", "true"},
               {R"(adapter={kind = "lora", rank = 3, dora = true})", "true"},
               {R"(adapter={kind = "lora", rank = 3, target_modules = ["c_fc", "lm_head"]})", "false"},
               {R"(adapter={kind = "lora", rank = 3, dora = true, target_modules = ["lm_head"]})", "false"}};
  for (const auto& [adapter, tied] : cases) {
    const auto in_shards = [&, adapter = adapter, tied = tied](int ranks, int data, const char* mesh,
                                                               const char* more = "parallel.stages=1") {
      return answers(ranks, data,
                     {"parallel.tensor_shards=4", "model.config.n_head=4", adapter, mesh, more,
                      fmt::format("model.config.tie_word_embeddings={}", tied)});
    };
    const std::vector<std::string> alone = in_shards(1, 1, "parallel.tensor=1");
    EXPECT_EQ(in_shards(2, 1, "parallel.tensor=2"), alone) << adapter;
    EXPECT_EQ(in_shards(4, 1, "parallel.tensor=4"), alone) << adapter;
    EXPECT_EQ(in_shards(4, 1, "parallel.tensor=4", "parallel.sequence=true"), alone) << adapter;
    EXPECT_EQ(in_shards(8, 2, "parallel.tensor=4"), alone) << adapter;
    EXPECT_EQ(in_shards(4, 1, "parallel.tensor=2", "parallel.stages=2"), alone) << adapter;
  }
}

}  // namespace
}  // namespace strata::runtime
