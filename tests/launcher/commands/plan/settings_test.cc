#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/launcher/commands/plan/printed_plan.h"
#include "tests/source_dir.h"

namespace strata::launcher {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

// A table for a GPU that this machine lacks. Nothing is run.
TEST_F(Plan, ATableHasEverySetting) {
  table_ = true;
  machine_ = tests::source_dir() / "examples/machines/a100-40gb-x8.toml";
  const auto rows = [&](const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = text.find("precision  recompute"); (at = text.find("\nZeRO-", at)) != text.npos; ++at)
      out.push_back(text.substr(at + 1, text.find('\n', at + 1) - at - 1));
    return out;
  };
  const std::vector<std::string> sets = {"device.kind=auto", "model.preset=gpt2-124m", "data.seq_len=512",
                                         "training.gradient_accumulation_steps=2"};
  const std::string eight = planned(8, 8, sets);
  EXPECT_EQ(rows(eight).size(), 4u * 3 * 3) << eight;
  EXPECT_THAT(rows(eight).at(0), AllOf(HasSubstr("fp32"), HasSubstr("none"), HasSubstr("iB"), HasSubstr("tokens/s")));
  EXPECT_THAT(json_, HasSubstr("\"table\":[{\"stage\":0,\"precision\":\"fp32\",\"recompute\":\"none\",\"order\":"));
  machine_.reset();
  const std::string one = planned(1, 1, {"memory.device=1GiB"});
  EXPECT_EQ(rows(one).size(), 9u) << one;
  EXPECT_THAT(rows(one).at(0), Not(HasSubstr("tokens/s")));
}

// The recipe's own setting is one of the rows.
TEST_F(Plan, ATableIncludesTheRecipesOwnBlocks) {
  table_ = true;
  const std::string few = planned(1, 1, {"training.recompute=[0]", "model.config.n_layer=2"});
  for (const char* precision : {"fp32", "bf16", "fp16"})
    EXPECT_THAT(few, testing::ContainsRegex(std::string("ZeRO-0 +") + precision + " +\\[0\\] +horizontal"));
  EXPECT_THAT(few, testing::ContainsRegex("ZeRO-0 +fp32 +block +horizontal"));
  EXPECT_THAT(json_, HasSubstr("\"precision\":\"bf16\",\"recompute\":[0],\"order\":"));
  EXPECT_THAT(json_, HasSubstr("\"precision\":\"bf16\",\"recompute\":\"sqrt\",\"order\":"));
  const std::string many =
      planned(1, 1, {"training.recompute=[0,1,2,3,4,5,6,7,8]", "model.config.n_layer=10", "model.config.n_embd=64"});
  EXPECT_THAT(many, testing::ContainsRegex("ZeRO-0 +bf16 +9 blocks +horizontal"));
  EXPECT_THAT(json_, HasSubstr("\"recompute\":[0,1,2,3,4,5,6,7,8],"));
  EXPECT_THAT(planned(1, 1, {"training.recompute=sqrt"}), Not(HasSubstr("blocks  ")));
}

// The last stage has the head, and the most on the device; the first one keeps its optimizer's state on the host.
TEST_F(Plan, RefusesAStageThatDoesNotFitAndShowsTheLargest) {
  model_ = "model.preset=tiny-llama";
  const std::vector<std::string> sets = {"model.config.vocab_size=4000",
                                         "model.config.num_hidden_layers=3",
                                         "model.config.tie_word_embeddings=false",
                                         "data.seq_len=32",
                                         "training.micro_batch_size=48",
                                         "parallel.stages=2",
                                         "parallel.split=[2, 1]",
                                         "zero.stage=1",
                                         "training.recompute=block"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sets.begin(), sets.end());
    return more;
  };
  // Stage 0 needs 14.5 MiB on the host, and stage 1 11.1 MiB.
  EXPECT_THAT(refused(2, with({"zero.optimizer=host", "memory.host=12MiB"})),
              AllOf(HasSubstr("14.5 MiB"), HasSubstr("of host memory, but memory.host is 12.0 MiB")));
  stages_ = table_ = true;
  (void)refused(2, with({"memory.device=30MiB"}));
  EXPECT_THAT(printed_, testing::ContainsRegex("ZeRO-1 +bf16 +block +horizontal +[34][0-9.]+ MiB +no"));
  EXPECT_THAT(printed_, testing::ContainsRegex("ZeRO-1 +[34][0-9.]+ MiB +no"));
}

}  // namespace
}  // namespace strata::launcher
