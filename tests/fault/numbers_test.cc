// Numbers that are not finite stop the run before they reach the weights.
#include <gmock/gmock.h>
#include <simdjson.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NumbersFault : public testing::Test {
 protected:
  std::int64_t reported(const char* key) {
    simdjson::dom::parser parser;
    return parser.load(run_.file("summary.json"))[key];
  }
  TinyRun run_;
};

// A learning rate beyond reason: the second step's loss is not finite.
TEST_F(NumbersFault, LossStopsTheRunNamingStepAndUnit) {
  for (const char* precision : {"bf16", "fp32"}) {
    SCOPED_TRACE(precision);
    const Outcome outcome = run(under_mpirun(
        2, run_.train({std::string("training.precision=") + precision, "optimizer.learning_rate=1e30", "zero.stage=2",
                       "report.summary=" + run_.file("summary.json"), "report.jsonl=" + run_.file("steps.jsonl")})));
    EXPECT_COMPLAINT(outcome, Exit::failed,
                     AllOf(HasSubstr("step 2: the loss is not finite"), HasSubstr("is block 0"),
                           HasSubstr("before the update"), HasSubstr("optimizer.learning_rate")));
    EXPECT_EQ(reported("steps"), 1);
    EXPECT_EQ(reported("exposed_step"), 2) << "the times are of the step that was stopped";
    EXPECT_EQ(reported("exit"), 1);
    EXPECT_THAT(run_.folder().read("steps.jsonl"), testing::Not(HasSubstr("\"step\":2")));
  }
}

// Skipped steps are not failures, until no loss scale is left to try.
TEST_F(NumbersFault, LossScaleThatComesToNothing) {
  const Outcome outcome = run(under_mpirun(
      2, run_.train({"training.precision=fp16", "model.config.initializer_range=1e6", "fp16.initial_scale=1e-36",
                     "training.max_steps=100", "report.summary=" + run_.file("summary.json")})));
  EXPECT_COMPLAINT(outcome, Exit::failed,
                   AllOf(HasSubstr("the loss scale has halved down to nothing"), HasSubstr("is embedding"),
                         HasSubstr("training.precision")));
  EXPECT_THAT(outcome.errors, HasSubstr("skipped"));
  EXPECT_EQ(reported("exit"), 1);
  EXPECT_GT(reported("steps"), 3);
}

}  // namespace
}  // namespace strata::tests
