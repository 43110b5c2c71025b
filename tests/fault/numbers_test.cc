// Numbers that are not finite stop the run before they reach the weights.
#include <gmock/gmock.h>
#include <simdjson.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class NumbersFault : public testing::Test {
 protected:
  std::int64_t reported(const char* key) {
    simdjson::dom::parser parser;
    return parser.load(run_.file("summary.json"))[key];
  }
  TinyRun run_;
};

// With an absurd learning rate, the second step's loss is not finite.
TEST_F(NumbersFault, ANonFiniteLossNamesStepAndUnit) {
  for (const char* precision : {"bf16", "fp32"}) {
    SCOPED_TRACE(precision);
    const Outcome outcome = run(under_mpirun(
        2, run_.train({std::string("training.precision=") + precision, "optimizer.learning_rate=1e30", "zero.stage=2",
                       "report.summary=" + run_.file("summary.json"), "report.jsonl=" + run_.file("steps.jsonl")})));
    EXPECT_COMPLAINT(outcome, Exit::failed,
                     AllOf(HasSubstr("step 2: the loss is not finite"), HasSubstr("is block 0"),
                           HasSubstr("before the update"), HasSubstr("optimizer.learning_rate")));
    EXPECT_EQ(reported("steps"), 1);
    EXPECT_EQ(reported("exposed_step"), 2) << "the times belong to the stopped step";
    EXPECT_EQ(reported("exit"), 1);
    EXPECT_THAT(run_.folder().read("steps.jsonl"), testing::Not(HasSubstr("\"step\":2")));
  }
}

// No loss scale makes this forward finite, so none is tried. It is reported at once and soon ends the run.
TEST_F(NumbersFault, AForwardThatNoLossScaleFixes) {
  const auto trained = [&](const char* steps) {
    return run(under_mpirun(
        2, run_.train({"training.precision=fp16", "model.config.initializer_range=1e6", "fp16.initial_scale=1e-36",
                       std::string("training.max_steps=") + steps, "report.summary=" + run_.file("summary.json")})));
  };
  const auto first = HasSubstr("step 1 is skipped: its loss is not finite");
  const Outcome outcome = trained("100");
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(
      outcome.complaints(),
      ElementsAre(first, AllOf(HasSubstr("step 3: the loss is not finite, 3 steps in a row"), HasSubstr("is embedding"),
                               HasSubstr("the loss scale does not affect forward"), HasSubstr("training.precision"))));
  EXPECT_EQ(reported("exit"), 1);
  EXPECT_EQ(reported("steps"), 2);
  EXPECT_EQ(reported("skipped_steps"), 2);
  const Outcome shorter = trained("2");
  EXPECT_EQ(shorter.code, static_cast<int>(Exit::failed)) << shorter.all();
  EXPECT_THAT(
      shorter.complaints(),
      ElementsAre(first,
                  AllOf(HasSubstr("nothing was trained: all 2 steps were skipped, because the forward was not finite"),
                        HasSubstr("training.precision"), testing::Not(HasSubstr("fp16.initial_scale")))));
}

// The scale begins above fp16's range and is halved. The first steps are lost, and the end says so.
TEST_F(NumbersFault, SkippedStepsAreCounted) {
  const Outcome outcome = run(run_.train({"training.precision=fp16", "fp16.initial_scale=1e9", "training.max_steps=30",
                                          "report.summary=" + run_.file("summary.json")}));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  const std::int64_t skipped = reported("skipped_steps");
  EXPECT_GT(skipped, 2);
  EXPECT_LT(skipped, 30);
  EXPECT_THAT(outcome.errors, HasSubstr("done after step 30"));
  EXPECT_THAT(outcome.errors, HasSubstr(std::to_string(skipped) + " of 30 steps were skipped"));
  EXPECT_THAT(outcome.errors, HasSubstr("set fp16.initial_scale = "));
}

// A run that never updated its weights has failed. Its checkpoint has the scale with which a longer run resumes.
TEST_F(NumbersFault, ARunWithoutAnAppliedStepFails) {
  const std::vector<std::string> sets = {"training.precision=fp16", "fp16.initial_scale=1e30",
                                         "checkpoint.dir=" + run_.file("ck"),
                                         "report.summary=" + run_.file("summary.json")};
  const auto steps = [&](const char* number) {
    std::vector<std::string> all = sets;
    all.push_back(std::string("training.max_steps=") + number);
    return run(run_.train(all));
  };
  for (const int time : {1, 2}) {  // the second has no step left to take
    SCOPED_TRACE(time);
    EXPECT_COMPLAINT(
        steps("3"), Exit::failed,
        AllOf(HasSubstr("nothing was trained: all 3 steps were skipped"), HasSubstr("training.max_steps"),
              HasSubstr("has fallen to 1.25e+29: raise training.max_steps to resume from its checkpoint with "
                        "that scale, or set fp16.initial_scale = 65536")));
    EXPECT_EQ(reported("skipped_steps"), 3);
    EXPECT_EQ(reported("exit"), 1);
  }
  const Outcome longer = steps("120");
  EXPECT_EQ(longer.code, 0) << longer.all();
  EXPECT_THAT(longer.errors, HasSubstr("resumes after step 3"));
}

}  // namespace
}  // namespace strata::tests
