#include "runtime/recipe/values_elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(ValuesElsewhere, RefusalsTranslateValues) {
  const std::pair<const char*, const char*> kMeant[] = {
      {"training.precision=float16", "; use \"fp16\""},
      {"training.precision=half", "; use \"fp16\""},
      {"training.precision=bfloat16", "; use \"bf16\""},
      {"training.precision=float32", "; use \"fp32\""},
      {"training.precision=FP16", "; use \"fp16\""},
      {"training.precision=bf16-mixed", "; use \"bf16\""},
      {"training.precision=16", "; use \"fp16\""},
      {"training.precision=no", "; use \"fp32\""},
      {"zero.optimizer=cpu", "; use \"host\""},
      {"zero.parameters=disk", "; use \"nvme\""},
      {"zero.parameters=cpu", "; use \"host\""},
      {"zero.gradients=gpu", "; use \"device\""},
      {"zero.activations=NVMe", "; use \"nvme\""},
      {"zero.stage='3'", "; write 3 without quotes"},
      {"optimizer.name=adam", "; use \"adamw\", which is Adam if optimizer.weight_decay = 0"},
      {"scheduler.name=cosine_with_restarts", "; use \"cosine\", which has no restarts"},
      {"parallel.schedule=gpipe", "; use \"all_forward_all_backward\""},
      {"parallel.schedule=Interleaved1F1B",
       "; use \"interleaved\", with parallel.chunks, the pieces of the model per stage"},
      {"parallel.schedule=1F1B", "; use \"1f1b\""},
      {"adapter.kind=QLoRA", "; use \"lora\", with model.frozen_format = \"nf4\""},
      {"adapter.kind=dora", "; use \"lora\", with adapter.dora = true"},
      {"adapter.kind=true", "; use \"lora\""},
      {"adapter.init=kaiming", "; use \"default\""},
      {"model.frozen_format=4bit", "; use \"nf4\""},
      {"model.frozen_format=bf16", "; use \"compute\", which is training.precision"},
      {"scheduler.name=cosin", "; use \"cosine\""},
      {"evaluation.metric=accuracy", "; use \"eval_accuracy\""},
      {"evaluation.metric=f1", "; use \"eval_f1\""},
      {"evaluation.metric=macro_f1", "; use \"eval_f1\", the mean over classes"},
      {"training.global_batch_size=9223372036854775807", "; the maximum is 1099511627776"},
      {"data.packing=false", "; use \"documents\", where no document sees another"},
      {"optimizer.name=adamw_torch", "; use \"adamw\""},
      {"optimizer.name=adamw_torch_fused", "; use \"adamw\""},
      {"optimizer.name=paged_adamw_8bit", "; use \"adamw8bit\""},
      {"optimizer.name=adamw_bnb_8bit", "; use \"adamw8bit\""},
      {"optimizer.name=nesterov", "; use \"sgd\", whose optimizer.momentum is not Nesterov's"},
      {"optimizer.name=sgd_momentum", "; use \"sgd\", with optimizer.momentum"},
      {"optimizer.learning_rate='1e-4'", "; write 1e-4 without quotes"},
      // These are numbers elsewhere but not in TOML, so there are no quotes to leave out.
      {"training.seed=010", "; write 10"},
      {"training.max_steps=-007", "an integer >= 0"},
      {"zero.stage=03", "; write 3"},
      {"optimizer.learning_rate=.001", "; write 0.001"},
      {"optimizer.learning_rate=1.", "; write 1"},
      {"optimizer.learning_rate=01e-3", "; write 0.001"},
      {"training.seed='10'", "; write 10 without quotes"},
      {"scheduler.name=cosine_with_warmup",
       "; use \"cosine\", with scheduler.warmup_steps and "
       "scheduler.min_lr_ratio"},
      {"scheduler.name=WarmupDecayLR", "; use \"linear\", with scheduler.warmup_steps and scheduler.min_lr_ratio"},
      {"memory.device=2G", "; use \"2GiB\""},
      {"memory.device=24gb", "; use \"24GB\""},
      {"optimizer.moments=8bitt", "; use \"8bit\""},
      {"memory.host='1.5 gib'", "; use \"1.5GiB\""},
      {"memory.host=512m", "; use \"512MiB\""},
      {"optimizer.name=adamw_torch_4bit", "; use \"adamw8bit\", because moments in 4 bits are not supported"},
      {"training.recompute=unsloth", "; use \"block\", with zero.activations = \"host\" to offload what blocks keep"},
      {"training.recompute=true", "; use \"block\""},
      {"training.recompute=full", "; use \"block\""},
      {"device.kind=gpu", "; use \"cuda\""},
      {"training.max_steps=5.0", "; write 5"},
      {"training.max_steps='1e3'", "; write 1000"},
      {"checkpoint.keep_best=1", "; use true"},
      {"checkpoint.keep_best=yes", "; write true"},
  };
  for (const auto& [set, meant] : kMeant) {
    SCOPED_TRACE(set);
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, AllOf(HasSubstr(": expected "), EndsWith(meant)));
  }
  // The example of a range is not what the user means.
  EXPECT_FAILURE(recipe_with({"report.trace_steps=5-3"}), Exit::usage, testing::Not(HasSubstr("; use")));
}

TEST(ValuesElsewhere, SomeHaveNoCounterpart) {
  for (const auto& [set, note] : {
           std::pair{"optimizer.name=muon", "; this optimizer is not supported"},
           {"adapter.init=pissa_niter_16", "changes the model's own weights, which is not supported"},
           {"model.frozen_format=int8", "; 8 bits are not supported, but \"nf4\" stores frozen weights in 4 bits"},
           {"scheduler.warmup_steps=0.1", "; this is a number of steps: the ratio x training.max_steps"},
           {"checkpoint.every=0.25", "; this is a number of steps: the ratio x training.max_steps"},
           {"checkpoint.every=epoch", "strata plan shows how many steps an epoch has"},
           {"training.max_steps=-1", "; strata plan shows how many steps an epoch has"},
       }) {
    SCOPED_TRACE(set);
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, AllOf(HasSubstr(": expected "), EndsWith(note)));
  }
}

TEST(ValuesElsewhere, NeverGuess) {
  for (const char* set : {"training.precision=fp8", "optimizer.name=adafactor", "zero.optimizer=remote",
                          "memory.device=much", "memory.device=2X", "memory.device=-1GiB", "training.max_steps=-1",
                          "scheduler.name=", "training.max_steps=5.5", "training.recompute=some"}) {
    SCOPED_TRACE(set);
    EXPECT_FAILURE(recipe_with({set}), Exit::usage,
                   AllOf(HasSubstr(": expected "), Not(HasSubstr("; use")), Not(HasSubstr("write"))));
  }
}

}  // namespace
}  // namespace strata::runtime
