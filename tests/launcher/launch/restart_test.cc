#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "launcher/launch/launch.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using runtime::Recipe;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Outcome ended(Exit code, EndReason reason = {}) {
  return {static_cast<int>(code), "stopped on request: the loss is not finite", true, {}, {}, reason};
}

TEST(WhyFinal, RecurringFailuresAreFinal) {
  for (const Exit code : {Exit::done, Exit::usage, Exit::does_not_fit, Exit::corrupt, Exit::requeue})
    EXPECT_THAT(why_final(ended(code), std::nullopt), Not(IsEmpty())) << static_cast<int>(code);
  EXPECT_THAT(why_final(ended(Exit::failed), std::nullopt), IsEmpty());
  EXPECT_THAT(why_final(ended(Exit::failed), ended(Exit::failed)), IsEmpty());
  for (const auto kind : {EndReason::Kind::signal, EndReason::Kind::request})
    EXPECT_THAT(why_final(ended(Exit::failed, {kind, 3}), std::nullopt), HasSubstr("on request"));
}

TEST(WhyFinal, ARepeatedNonFiniteLossIsFinal) {
  const Outcome at7 = ended(Exit::failed, {EndReason::Kind::not_finite, 7}),
                at9 = ended(Exit::failed, {EndReason::Kind::not_finite, 9});
  EXPECT_THAT(why_final(at7, std::nullopt), IsEmpty());
  EXPECT_THAT(why_final(at7, at9), IsEmpty());
  EXPECT_THAT(why_final(at7, at7), HasSubstr("twice"));
}

TEST(WhyFinal, AnFp16OverflowIsFinal) {
  EXPECT_THAT(why_final(ended(Exit::failed, {EndReason::Kind::overflow, 7}), std::nullopt), HasSubstr("fp16"));
}

TEST(StoppedBetweenStarts, NamesTheCheckpointToResumeFrom) {
  for (const bool started : {false, true}) {
    const BetweenStarts kept = stopped_between_starts(true, started, 1);
    EXPECT_EQ(kept.code, Exit::requeue);
    EXPECT_THAT(kept.text, HasSubstr("resume from the newest checkpoint"));
  }
  EXPECT_EQ(stopped_between_starts(false, false, 2).code, Exit::requeue);
  EXPECT_THAT(stopped_between_starts(false, false, 2).text, HasSubstr("before any rank was started"));
  EXPECT_EQ(stopped_between_starts(false, true, 1).code, Exit::failed);
  EXPECT_THAT(stopped_between_starts(false, true, 1).text, HasSubstr("no checkpoint to resume from"));
  EXPECT_THAT(stopped_between_starts(true, true, 2).text, HasSubstr("a second request to stop"));
  // The command as typed starts over. After a start, the text says how to resume; before one, starting over is right.
  EXPECT_THAT(stopped_between_starts(true, true, 1, "none").text,
              HasSubstr("run the same command with --set checkpoint.resume=auto to resume from"));
  EXPECT_THAT(stopped_between_starts(true, false, 1, "none").text, HasSubstr("run the same command to start"));
}

TEST(RestartWait, GrowsToTwoMinutes) {
  EXPECT_EQ(restart_wait(1), 2);
  EXPECT_EQ(restart_wait(2), 4);
  EXPECT_EQ(restart_wait(3), 8);
  EXPECT_EQ(restart_wait(100), 120);
}

// The sequences of a step and the micro-batch of a rank stay the same, whichever key the recipe gives.
TEST(BatchSets, KeepTheGlobalBatch) {
  Recipe recipe;
  recipe.training.micro_batch_size = 2;
  EXPECT_EQ(global_batch(recipe, 6), 12);
  EXPECT_THAT(batch_sets(recipe, 12, 3), ElementsAre("training.global_batch_size=12"));
  recipe.training.gradient_accumulation_steps = 2;
  EXPECT_EQ(global_batch(recipe, 6), 24);
  EXPECT_THAT(batch_sets(recipe, 24, 3), ElementsAre("training.gradient_accumulation_steps=4"));
  recipe.training.gradient_accumulation_steps.reset();
  recipe.training.global_batch_size = 24;
  EXPECT_EQ(global_batch(recipe, 6), 24);
  EXPECT_THAT(batch_sets(recipe, 24, 3), IsEmpty());
}

TEST(MaxRanks, DivideTheBatchAndFit) {
  Recipe recipe;
  const std::vector<Host> hosts = {{"a", 4}, {"b", 3}};
  const auto any = [](const auto&) { return true; };
  EXPECT_EQ(total(max_ranks(hosts, 1, recipe, 7, any)), 7);
  EXPECT_THAT(max_ranks(hosts, 1, recipe, 12, any), ElementsAre(Share{"a", 3}, Share{"b", 3}));
  EXPECT_EQ(total(max_ranks(hosts, 1, recipe, 13, any)), 1);
  EXPECT_EQ(total(max_ranks(hosts, 1, recipe, 12, [](const auto& shares) { return total(shares) < 5; })), 4);
  EXPECT_THAT(max_ranks(hosts, 1, recipe, 12, [](const auto&) { return false; }), IsEmpty());
  recipe.training.micro_batch_size = 3;
  EXPECT_EQ(total(max_ranks(hosts, 1, recipe, 12, any)), 4);
}

// The ranks of a replica are lost together, and a step is divided evenly over replicas.
TEST(MaxRanks, FormCompleteReplicas) {
  Recipe recipe;
  recipe.parallel.stages = 2;
  const std::vector<Host> hosts = {{"a", 3}, {"b", 2}};
  const auto any = [](const auto&) { return true; };
  EXPECT_THAT(max_ranks(hosts, 1, recipe, 4, any), ElementsAre(Share{"a", 2}, Share{"b", 2}));
  EXPECT_THAT(max_ranks(hosts, 1, recipe, 3, any), ElementsAre(Share{"a", 1}, Share{"b", 1}));
  EXPECT_EQ(total(max_ranks({{"a", 7}}, 1, recipe, 6, any)), 6) << "6 ranks are 3 replicas, which divide 6";
  recipe.parallel.stages = 1;
  recipe.parallel.tensor = 2;
  EXPECT_THAT(max_ranks({{"a", 4}, {"b", 3}}, 1, recipe, 3, any), ElementsAre(Share{"a", 4}, Share{"b", 2}))
      << "a tensor group lies on one node";
  EXPECT_THAT(max_ranks({{"a", 1}, {"b", 1}}, 1, recipe, 3, any), ElementsAre(Share{"a", 1}, Share{"b", 1}))
      << "a tensor group spans nodes only for lack of room";
  recipe.parallel.stages = 4;
  EXPECT_THAT(max_ranks(hosts, 1, recipe, 8, any), IsEmpty());
}

// With 12 sequences, four replicas would take three micro-batches each, which two interleaved stages cannot.
TEST(MaxRanks, FormCompleteGroupsOfMicroBatchesIfInterleaved) {
  Recipe recipe;
  recipe.parallel.stages = 2;
  const auto any = [](const auto&) { return true; };
  EXPECT_EQ(total(max_ranks({{"a", 8}}, 1, recipe, 12, any)), 8);
  recipe.parallel.schedule = runtime::Schedule::interleaved;
  recipe.parallel.chunks = 2;
  EXPECT_EQ(total(max_ranks({{"a", 8}}, 1, recipe, 12, any)), 6);
  EXPECT_THAT(max_ranks({{"a", 8}}, 1, recipe, 3, any), IsEmpty());
}

TEST(MaxRanks, ReportIdleAndMissingRanks) {
  Recipe recipe;
  recipe.parallel.stages = 2;
  const std::vector<Host> hosts = {{"a", 3}, {"b", 2}, {"c", std::nullopt}};
  EXPECT_EQ(idle_text(hosts, 1, {{"a", 2}, {"b", 2}}, recipe, 4),
            "2 ranks stay idle, on a (1), c (1): a run has as many whole replicas of 2 ranks as divide a step of 4 "
            "sequences and fit");
  EXPECT_EQ(idle_text(hosts, 1, {{"a", 3}, {"b", 2}, {"c", 1}}, recipe, 4), "");
  recipe.parallel.tensor = 4;
  EXPECT_EQ(why_no_ranks(hosts, 1, recipe, 4),
            "the 3 remaining nodes have room for 6 ranks, but one replica of the model (parallel.tensor = "
            "4, parallel.stages = 2) needs 8 ranks: start again with as many ranks, or with other parallel.* keys, "
            "which its checkpoints allow");
  recipe.parallel = {};
  EXPECT_EQ(idle_text(hosts, 1, {{"a", 3}, {"b", 2}}, recipe, 5),
            "1 rank stays idle, on c (1): a run has as many ranks as divide a step of 5 sequences and fit");
  EXPECT_EQ(why_no_ranks({{"a", 3}}, 1, recipe, 4),
            "on the 1 remaining node, no number of ranks that divides a step of 4 sequences fits");
}

// checkpoint.resume applies to the first start. A restart resumes from what this launch has written, if anything.
TEST(ResumeSets, ResumeFromThisLaunchsCheckpoints) {
  const tests::ScratchFolder folder;
  folder.write("step-00000001/manifest.json", "{}");
  Recipe recipe;
  recipe.checkpoint.dir = folder.path();
  const Checkpoints before = checkpoints_in(recipe.checkpoint.dir);
  EXPECT_EQ(before.size(), 1u);
  recipe.checkpoint.resume = "none";
  EXPECT_THAT(resume_sets(recipe, before), IsEmpty());
  folder.write("step-00000002/manifest.json", "{}");
  EXPECT_THAT(resume_sets(recipe, before), ElementsAre("checkpoint.resume=auto"));
  recipe.checkpoint.resume = "auto";
  EXPECT_THAT(resume_sets(recipe, before), IsEmpty());
  EXPECT_THAT(checkpoints_in(std::nullopt), IsEmpty());
}

TEST(ControlSets, ReplaceAddressesOfASingleNode) {
  Recipe recipe;
  EXPECT_THAT(control_sets(recipe), IsEmpty());
  for (const char* everywhere : {"0.0.0.0:9000", "[::]:9000", "127.0.0.1:9000", "localhost:9000", "[::1]:9000"}) {
    recipe.control.listen = recipe.control.metrics = everywhere;
    EXPECT_THAT(control_sets(recipe), IsEmpty()) << everywhere;
  }
  recipe.control.listen = "unix:/tmp/a:1";
  recipe.control.metrics = "10.0.0.1:9000";
  EXPECT_THAT(control_sets(recipe), ElementsAre("control.metrics=off"));
  recipe.control.listen = "n1:9000";
  EXPECT_THAT(control_sets(recipe), ElementsAre("control.listen=auto", "control.metrics=off"));
}

}  // namespace
}  // namespace strata::launcher
