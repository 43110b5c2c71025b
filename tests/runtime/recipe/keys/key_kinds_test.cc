#include "runtime/recipe/keys/key_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

TEST(KeyKindsTest, WrongValuesNameKeyValueAndWhatIsAllowed) {
  const auto refused = [](const std::string& key, const std::string& value, const std::string& allowed) {
    EXPECT_FAILURE(recipe_with({key + "=" + value}), Exit::usage,
                   AllOf(HasSubstr(key + " = "), HasSubstr(value), HasSubstr("expected"), HasSubstr(allowed)));
  };
  refused("training.precision", "fp8", R"("fp32", "bf16" or "fp16")");
  refused("training.precision", "16", "\"bf16\"");
  refused("training.max_steps", "-1", "an integer >= 0");
  refused("training.max_steps", "10.5", "an integer >= 0");
  refused("training.max_steps", "ten", "an integer");
  refused("training.micro_batch_size", "0", "from 1");
  refused("training.micro_batch_size", "automatic", R"("auto" or an integer from 1 to 1048576)");
  refused("training.micro_batch_size", "true", "from 1");
  refused("training.seed", "2024-01-01", "an integer");
  refused("training.recompute", "[1, 1]", "different block numbers");
  refused("training.recompute", "all", "\"sqrt\"");
  refused("training.max_grad_norm", "-0.5", "a number >= 0");
  refused("training.max_grad_norm", "nan", "a number >= 0");
  refused("optimizer.learning_rate", "inf", "a number");
  refused("optimizer.betas", "[0.9, 1]", "two numbers from 0 to below 1");
  refused("optimizer.betas", "[0.9]", "two numbers");
  refused("optimizer.betas", "0.9", "two numbers");
  refused("scheduler.min_lr_ratio", "1.1", "from 0 to 1");
  refused("zero.stage", "4", "from 0 to 3");
  refused("memory.device", "2 gibi", "2GiB");
  refused("memory.device", "0", "2GiB");
  refused("memory.device", "-1GiB", "2GiB");
  refused("memory.device", "99999999TiB", "2GiB");
  refused("data.train", "[1]", "a path or glob");
  refused("data.order", "random", "\"sequential\"");
  refused("device.threads", "0", "from 1");
  refused("fp16.initial_scale", "0", "> 0");
  refused("model.preset", "gpt5", "\"gpt2-124m\"");
  refused("checkpoint.keep", "0", ">= 1");
  refused("report.jsonl", "3", "a path");
}

// A wrong type is shown as written, because 5 would be correct.
TEST(KeyKindsTest, AFloatIsShownAsWrittenWithItsInteger) {
  const auto refused = [](const std::string& set, const std::string& shown, const std::string& end) {
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, AllOf(HasSubstr(shown), EndsWith(end)));
  };
  refused("training.max_steps=5.0", "training.max_steps = 5.0 (--set): expected an integer >= 0", "; write 5");
  refused("memory.device=2e9", "memory.device = 2000000000.0 (", "; write 2000000000");
  refused("training.max_steps=-5.0", "training.max_steps = -5.0 (", "an integer >= 0");
  refused("training.max_steps=5.5", "training.max_steps = 5.5 (", "an integer >= 0");
  refused("training.max_steps=1e300", "training.max_steps = 1e+300 (", "an integer >= 0; the maximum is 1099511627776");
  refused("training.recompute=[1.0]", "training.recompute = [1.0] (", "block numbers");
  EXPECT_EQ(recipe_with({"model.config.rope_theta=5e5"}).model.config.at("rope_theta"), "500000.0");
}

// A limit that no sensible value reaches is only named for values above it.
TEST(KeyKindsTest, ATooLargeValueNamesTheLimit) {
  const auto refused = [](const std::string& set, const std::string& end) {
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, EndsWith(end));
  };
  for (const char* key : {"optimizer.weight_decay", "optimizer.learning_rate", "optimizer.eps",
                          "training.max_grad_norm", "fp16.initial_scale"})
    for (const char* value : {"1e300", "1e39", "'1e300'", "3.41e38", "9223372036854775807000000000000000000000"})
      refused(std::string(key) + "=" + value, "; the maximum is 3.4028235e+38");
  refused("training.class_weights=[1, 1e39]", "; the maximum is 3.4028235e+38");
  for (const char* key : {"training.max_steps", "training.global_batch_size", "scheduler.warmup_steps",
                          "checkpoint.every", "evaluation.max_sequences", "report.every"})
    for (const char* value : {"1099511627777", "9223372036854775807", "9223372036854775808", "1e99"})
      refused(std::string(key) + "=" + value, "; the maximum is 1099511627776");
  for (const char* value : {"9223372036854775808", "99999999999999999999"})
    refused(std::string("training.seed=") + value, "; the maximum is 9223372036854775807");
  for (const char* key : {"memory.device", "memory.host", "memory.tile"})
    for (const char* value : {"99999999999GiB", "4194305TiB", "5000000000GB"})
      refused(std::string(key) + "=" + value, "; the maximum is 4194304TiB");
  // Nothing else is reported about it.
  for (const char* set : {"optimizer.weight_decay=-1", "training.max_steps=-1", "memory.device=0", "training.seed=x",
                          "memory.device=inf", "memory.device=2X", "zero.stage=4", "training.max_steps=1.5"})
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, testing::Not(HasSubstr("the most")));
}

// The range has both ends: a value is named with the end that it passes.
TEST(KeyKindsTest, AnAdaptersScaleHasARange) {
  const auto refused = [](const std::string& set, const std::string& end) {
    EXPECT_FAILURE(recipe_with({"adapter.kind=lora", set}), Exit::usage, EndsWith(end));
  };
  refused("adapter.alpha=0", "adapter.alpha = 0 (--set): expected a number from 1e-30");
  refused("adapter.alpha=1e-31", "adapter.alpha = 1e-31 (--set): expected a number from 1e-30");
  refused("adapter.alpha=1e39", "expected a number from 1e-30; the maximum is 3.4028235e+38");
  refused("adapter.alpha_pattern={q_proj=1e-31}", "a table of pattern = alpha, each a number from 1e-30");
  EXPECT_EQ(recipe_with({"adapter.kind=lora", "adapter.alpha=1e-30"}).adapter.lora.alpha, 1e-30);
  EXPECT_EQ(
      recipe_with({"adapter.kind=lora", "adapter.alpha_pattern={q_proj=1e-30}"}).adapter.lora.alpha_pattern.size(), 1u);
}

// An adapter on no layer trains nothing, and a trace of no step has nothing. No recomputed block is "none".
TEST(KeyKindsTest, AnEmptyListIsRefusedUnlessItsMeaningIsClear) {
  EXPECT_FAILURE(recipe_with({"adapter.kind=lora", "adapter.layers_to_transform=[]"}), Exit::usage,
                 HasSubstr("adapter.layers_to_transform = [] (--set): expected a layer's number or a list of at "
                           "least one"));
  EXPECT_FAILURE(recipe_with({"report.dir=run", "report.trace_steps=[]"}), Exit::usage,
                 HasSubstr("report.trace_steps = [] (--set): expected a step from 1, a range \"3-5\", or a list of at "
                           "least one of these"));
  EXPECT_FAILURE(recipe_with({"training.class_weights=[]"}), Exit::usage, HasSubstr("one for each class"));
  const Recipe none = recipe_with({"training.recompute=[]"});
  EXPECT_EQ(none.training.recompute.kind, Recompute::Kind::none);
  EXPECT_EQ(to_text(none), to_text(recipe_with({"training.recompute=none"})));
  EXPECT_FAILURE(recipe_with({"training.recompute=[]", "zero.activations=host"}), Exit::usage,
                 HasSubstr("no block is recomputed"));
}

// The system would end the path there, and a message would be cut off.
TEST(KeyKindsTest, RefusesZeroBytesInPaths) {
  for (const char* key : {"data.train", "model.path", "memory.nvme", "report.jsonl", "checkpoint.resume"})
    EXPECT_FAILURE(recipe_with({std::string(key) + R"(="a\u0000b")"}), Exit::usage,
                   AllOf(HasSubstr(key), EndsWith(R"("a\u0000b": a path cannot contain a zero byte)")));
  EXPECT_FAILURE(recipe_with({R"(data.train=["a", "b\u0000"])"}), Exit::usage, HasSubstr(R"("b\u0000")"));
}

}  // namespace
}  // namespace strata::runtime
