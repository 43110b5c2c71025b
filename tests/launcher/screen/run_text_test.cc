#include "launcher/screen/run_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "comm/communicator.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(RunText, BreaksLinesBetweenParts) {
  EXPECT_THAT(wrapped("data", {"one", "two", "three"}, 21), ElementsAre("data      one, two,", "          three"));
  EXPECT_THAT(wrapped("data", {"one", "two", "three"}, 100), ElementsAre("data      one, two, three"));
  EXPECT_THAT(wrapped("x", {"a part that is longer than the line", "b"}, 20),
              ElementsAre("x         a part that is longer than the line,", "          b"));
}

class RunTextTest : public testing::Test {
 protected:
  runtime::Job job(std::vector<std::string> sets = {}, int ranks = 1) const {
    sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "model.config.n_layer=2", "data.seq_len=16",
                               "training.max_steps=5", "device.kind=cpu"});
    const runtime::Recipe recipe = runtime::load_recipe({}, sets);
    return runtime::make_job(open_workload(recipe), ranks, runtime::capacity_of(recipe.memory, ranks));
  }
  std::string start(const runtime::Job& job) const {
    testing::internal::CaptureStderr();
    comm::run_threads(1,
                      [&](comm::World& world) { describe_run(job, {}, {}, world, "1 thread per rank (1 core each)"); });
    return testing::internal::GetCapturedStderr();
  }
  static std::size_t longest_line(const std::string& text) {
    std::size_t longest = 0;
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      longest = std::max(longest, end - at);
    return longest;
  }
  tests::ScratchFolder folder_;
};

TEST_F(RunTextTest, TheStartDescribesTheRunAndWhatWillBeLost) {
  const std::string bare = start(job());
  EXPECT_THAT(bare,
              AllOf(HasSubstr("strata: model     gpt2 of "), HasSubstr("ZeRO-0 over 1 rank"),
                    HasSubstr("1 sequence of 16 tokens per step"), HasSubstr("5 steps, learning rate 0.0003, cosine"),
                    HasSubstr("memory    RAM for the model "), Not(HasSubstr("device ")),
                    HasSubstr("nothing will be saved: set checkpoint.dir to keep weights, report.dir")));
  EXPECT_LT(longest_line(bare), 100u);
  const std::string reported = start(job({"report.dir=run"}));
  EXPECT_THAT(reported, AllOf(HasSubstr("reports in "), HasSubstr("weights will not be saved: set checkpoint.dir"),
                              Not(HasSubstr("nothing will"))));
  const std::string kept = start(job({"checkpoint.dir=c", "report.jsonl=a.jsonl", "scheduler.warmup_steps=1"}));
  EXPECT_THAT(kept, AllOf(HasSubstr("checkpoints in "), HasSubstr("steps "), Not(HasSubstr("saved")),
                          HasSubstr("cosine after 1 step of warm-up")));
}

TEST_F(RunTextTest, RanksThatShareTheModelAreNotDataRanks) {
  EXPECT_EQ(zero_text(3, 4, 4), "ZeRO-3 over 4 ranks");
  EXPECT_EQ(zero_text(3, 2, 4), "ZeRO-3 over 2 data ranks");
  EXPECT_EQ(zero_text(3, 1, 4), "ZeRO-3 over 1 data rank");
}

TEST_F(RunTextTest, TheStartSaysWhatIsTrained) {
  EXPECT_THAT(start(job()), Not(HasSubstr("are trained")));
  EXPECT_THAT(start(job({"training.freeze=[\"transformer.wte.*\"]"})),
              AllOf(HasSubstr(" are trained, "), Not(HasSubstr("of rank"))));
  EXPECT_THAT(start(job({"adapter.kind=lora", "adapter.rank=4"})), HasSubstr(" are trained (LoRA of rank 4), "));
  EXPECT_THAT(start(job({"adapter.kind=lora", "adapter.dora=true", "model.frozen_format=nf4"})),
              HasSubstr(" are trained (DoRA of rank 8), frozen matrices in nf4,"));
}

TEST_F(RunTextTest, TheStartSaysHowTheModelIsSplit) {
  EXPECT_THAT(
      start(job({"parallel.tensor=2", "parallel.stages=2", "parallel.split=[1, 1]", "parallel.tensor_shards=4"}, 4)),
      AllOf(HasSubstr("strata: stages    2 of 2 ranks each, one forward, one backward, 2 and 2 units\n"),
            HasSubstr("strata: layers    2 ranks share each, 4 virtual shards\n")));
  EXPECT_THAT(start(job({"parallel.tensor=2", "parallel.sequence=true"}, 2)),
              HasSubstr("strata: layers    2 ranks share each, 2 virtual shards, rows divided between them\n"));
}

// The next command is for the same run, so it sets the same keys.
TEST(TypedRecipe, ContainsTheKeysThatWereSet) {
  EXPECT_EQ(typed_recipe("my.toml", {}), "my.toml");
  EXPECT_EQ(typed_recipe("my.toml", {"checkpoint.dir=runs/a", "checkpoint.resume=none", "model.config.a={b=1}"}),
            "my.toml --set checkpoint.dir=runs/a --set 'model.config.a={b=1}'");
  EXPECT_EQ(typed_recipe({}, {"data.train=a b.bin"}), "--set 'data.train=a b.bin'");
}

// A preset has no tokenizer. For conversations, the command uses the chat template.
TEST_F(RunTextTest, TheEndShowsHowToPromptTheModel) {
  const auto said = [&](const runtime::TokenSidecar& sidecar) {
    const auto tokens = folder_.write("t.bin", std::string(8, '\1'));
    folder_.write("t.bin.json", runtime::to_json(sidecar));
    const runtime::Job of = job({"checkpoint.dir=c", "data.train=" + tokens.string()});
    runtime::Summary summary{};
    const runtime::StepReport step{
        .step = 1, .loss = 5.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10};
    testing::internal::CaptureStderr();
    describe_end("my.toml", of, summary, {1, 10, step, step}, {}, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({.vocab_size = 100, .tokenizer = "byte", .count = 4}),
              HasSubstr("c --tokenizer byte --prompt TEXT"));
  EXPECT_THAT(said({.vocab_size = 100, .tokenizer = "x", .count = 4, .chat_template_hash = "1"}),
              HasSubstr("c --tokenizer FOLDER --chat -"));
}

// Each command has a line of its own, however long, without a comma at its end, so that it can be pasted.
TEST_F(RunTextTest, TheEndHasALineForEachCommand) {
  const std::string folder = std::string(120, 'c');
  const runtime::Job of = job({"checkpoint.dir=" + folder, "report.dir=r", "data.validation=v.bin"});
  runtime::Summary summary{};
  const runtime::StepReport step{
      .step = 1, .loss = 5.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10};
  testing::internal::CaptureStderr();
  describe_end("my.toml", of, summary, {1, 10, step, step}, {}, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string kept = of.recipe.checkpoint.dir->string();
  EXPECT_THAT(said,
              AllOf(HasSubstr("strata: next      strata eval my.toml\n"),
                    HasSubstr("strata:           strata generate --model " + kept + " --tokenizer"),
                    HasSubstr("--prompt TEXT\n"), HasSubstr("strata:           strata export " + kept + " -o FOLDER\n"),
                    testing::ContainsRegex("strata:           strata report .*r -o report.html\n")));
}

// A shell can run each command as printed.
TEST_F(RunTextTest, TheEndQuotesPaths) {
  runtime::Summary summary{};
  summary.metric = "eval_loss";
  summary.best = runtime::Best{.step = 2, .value = 2.5, .since = 0, .newest = 4};
  const auto said = [&](const char* folder, const char* reports, const char* keep) {
    const runtime::Job of = job({folder, reports, "data.validation=v.bin", "evaluation.every=2", keep});
    const runtime::StepReport step{
        .step = 4, .loss = 5.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10};
    testing::internal::CaptureStderr();
    describe_end("my.toml", of, summary, {1, 10, step, step}, {}, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("checkpoint.dir=c k", "report.dir=it's", "checkpoint.keep_best=false"),
              AllOf(HasSubstr("strata generate --model 'c k' --tokenizer"), HasSubstr("strata export 'c k' -o FOLDER"),
                    HasSubstr("strata report 'it'\\''s' -o report.html")));
  EXPECT_THAT(said("checkpoint.dir=$c", "report.dir=r", "checkpoint.keep_best=true"),
              AllOf(HasSubstr("strata generate --model '$c/step-00000002' "),
                    HasSubstr("strata export '$c/step-00000002' -o FOLDER"), HasSubstr("strata report r -o")));
}

// A timeline without a step is no result.
TEST_F(RunTextTest, TheEndListsATraceThatHoldsAStep) {
  const auto said = [&](const std::vector<std::string>& steps) {
    std::vector<std::string> sets = {"report.trace=t.json", "report.csv=s.csv"};
    sets.insert(sets.end(), steps.begin(), steps.end());
    const runtime::StepReport first{.step = 3, .loss = 5.5, .tokens = 16, .step_ms = 10},
        last{.step = 5, .loss = 5.5, .tokens = 16, .step_ms = 10};
    const runtime::Summary summary{};
    const runtime::Job of = job(sets);
    testing::internal::CaptureStderr();
    describe_end("my.toml", of, summary, {1, 10, first, last}, {}, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({}), AllOf(HasSubstr("s.csv"), HasSubstr("t.json")));
  for (const char* some : {"5", "\"1-3\"", "[1, \"4-9\"]"})
    EXPECT_THAT(said({std::string("report.trace_steps=") + some}), HasSubstr("t.json")) << some;
  for (const char* none : {"9", "\"1-2\"", "[1, \"6-9\"]"})
    EXPECT_THAT(said({std::string("report.trace_steps=") + none}), AllOf(HasSubstr("s.csv"), Not(HasSubstr("t.json"))))
        << none << ": the run took steps 3 to 5";
}

// The best checkpoint is the one to continue with, not the newest.
TEST_F(RunTextTest, TheEndNamesTheBestCheckpoint) {
  const auto said = [&](std::int64_t best, const char* keep) {
    const runtime::Job of = job({"checkpoint.dir=c", "data.validation=v.bin", "evaluation.every=2", keep});
    runtime::Summary summary{};
    summary.metric = "eval_loss";
    summary.best = runtime::Best{.step = best, .value = 2.5, .since = 0, .newest = 4};
    const runtime::StepReport step{
        .step = 4, .loss = 5.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10};
    testing::internal::CaptureStderr();
    describe_end("my.toml", of, summary, {1, 10, step, step}, {}, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(2, "checkpoint.keep_best=true"),
              AllOf(HasSubstr("eval_loss 2.5000 after step 2,"), HasSubstr("c/step-00000002 -o FOLDER")));
  EXPECT_THAT(said(4, "checkpoint.keep_best=true"),
              AllOf(HasSubstr("eval_loss 2.5000 after step 4,"), HasSubstr("export c -o FOLDER")));
  EXPECT_THAT(said(2, "checkpoint.keep_best=false"), testing::Not(HasSubstr("2.5000")));
}

TEST_F(RunTextTest, TheEndShowsMeasuredNextToPredictedTimes) {
  const runtime::Job planned = job({"checkpoint.dir=c", "report.dir=run", "data.validation=v.bin"});
  runtime::Summary summary{};
  summary.steps = summary.timed_step = 5;
  summary.tokens_per_s = 1600;
  summary.stages = {{0, planned.plan.memory, planned.plan.memory}};
  summary.peak_rss = {std::uint64_t{64} << 20};
  summary.spans.resize(planned.plan.tasks.size());
  summary.timed_ms = 16;
  summary.path[static_cast<std::size_t>(runtime::Bound::products)] = 0.006;
  summary.path[static_cast<std::size_t>(runtime::Bound::waking)] = 0.004;
  runtime::StepReport first{.step = 1, .loss = 5.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10},
      last{.step = 5, .loss = 4.5, .grad_norm = 1, .learning_rate = 1e-3, .tokens = 16, .step_ms = 10};
  const RunEnd end{62, 10, first, last};
  const auto said = [&](const std::optional<runtime::Machine>& machine) {
    testing::internal::CaptureStderr();
    describe_end("my.toml", planned, summary, end, machine, 1);
    return testing::internal::GetCapturedStderr();
  };
  const std::string plain = said({});
  EXPECT_THAT(plain, AllOf(HasSubstr("loss      5.5000 in step 1, 4.5000 in step 5"),
                           HasSubstr("1600 tokens/s, 10.0 ms per step (medians), 1m02s for 5 steps"),
                           HasSubstr("step 5 took 16.0 ms: GEMM 38%, in no task 38%, synchronisation 25%\n"),
                           HasSubstr(" planned,"), HasSubstr("64.0 MiB the largest process"),
                           HasSubstr("strata eval my.toml"), HasSubstr("strata report ")));
  EXPECT_LT(longest_line(plain), 100u + planned.recipe.checkpoint.dir->string().size());
  runtime::Machine m = runtime::even_machine();
  EXPECT_THAT(said(m), AllOf(HasSubstr("measured  predicted"), testing::ContainsRegex("GEMM +6.0 +[0-9.]+\n"),
                             testing::ContainsRegex("in no task +6.0 +[0-9.]+\n"),
                             testing::ContainsRegex("step 5 +16.0 +[0-9.]+\n")));
}

TEST(ResumeCommand, IsTheSameOnlyIfItResumes) {
  const char* added = "the same command with --set checkpoint.resume=auto";
  EXPECT_EQ(resume_command("auto"), "the same command");
  EXPECT_EQ(resume_command("none"), added);
  EXPECT_EQ(resume_command("runs/step-00000010"), added);
  // launch has restarted this rank with a value that the user did not type.
  ::setenv(kTypedResume, "none", 1);
  EXPECT_EQ(resume_command("auto"), added);
  ::setenv(kTypedResume, "auto", 1);
  EXPECT_EQ(resume_command("auto"), "the same command");
  ::unsetenv(kTypedResume);
}

}  // namespace
}  // namespace strata::launcher
