#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/plan/plan.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

// The last stage needs the most memory, whichever stage ends last.
TEST(PipelineTest, ShowsTheCriticalPathOfTheSlowestStage) {
  runtime::Machine even = runtime::even_machine();
  even.ranks = even.threads = 2;
  even.collectives = {10, 5};
  const std::optional<runtime::Machine> machine = even;
  const std::vector<std::string> sets = {"device.kind=cpu",
                                         "model.preset=tiny-gpt2",
                                         "model.config.vocab_size=8192",
                                         "model.config.tie_word_embeddings=false",
                                         "data.seq_len=64",
                                         "parallel.stages=2",
                                         "parallel.split=[3, 1]",
                                         "training.micro_batch_size=16",
                                         "training.gradient_accumulation_steps=4"};
  const runtime::Recipe recipe = runtime::load_recipe({}, sets);
  const runtime::Workload workload = runtime::open_workload(recipe);
  const runtime::Capacity capacity = runtime::capacity_of({.device = 1 << 30, .host = 1 << 30}, 1);
  const std::vector<PlannedStage> stages = plan_pipeline({workload, 2, capacity, machine, 2});
  ASSERT_EQ(stage_of(stages, std::nullopt), 1u);
  const std::size_t slowest = slowest_of(stages, std::nullopt);
  EXPECT_GE(stages[slowest].step_ms, stages[1 - slowest].step_ms);
  EXPECT_EQ(slowest_of(stages, 1), 1u) << "as --rank specifies";
  const Forecast f = forecast(stages[slowest].job, even, 2, simulated(stages));
  EXPECT_NEAR(runtime::sum_of(f.path), f.step_ms / 1e3, 1e-6);
}

// `stages` always lists the pipeline's stages, unless there is only one and the table of ZeRO stages is requested.
TEST(PipelineTest, JsonListsTheStages) {
  const tests::ScratchFolder scratch;
  PlanOptions options;
  options.ranks = 2;
  options.json = scratch.path() / "plan.json";
  const auto planned = [&](const char* set, bool of_zero) {
    options.sets = {"device.kind=cpu", "model.preset=tiny-gpt2", "data.seq_len=16", set};
    options.stages = of_zero;
    options.force = true;
    testing::internal::CaptureStdout();
    const int status = plan(options);
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0) << printed;
    simdjson::dom::parser parser;
    const simdjson::padded_string text(scratch.read("plan.json"));
    const simdjson::dom::element json = parser.parse(text);
    std::vector<std::size_t> sizes;
    for (const char* key : {"stages", "zero_stages"}) {
      simdjson::dom::array all;
      if (json[key].get(all) != simdjson::SUCCESS) continue;
      sizes.push_back(all.size());
      EXPECT_EQ(all.at(0)["units"].error() == simdjson::SUCCESS, sizes.back() < 4) << key;
    }
    return sizes;
  };
  using testing::ElementsAre;
  EXPECT_THAT(planned("parallel.stages=2", false), ElementsAre(2));
  EXPECT_THAT(planned("parallel.stages=2", true), ElementsAre(2, 4));
  EXPECT_THAT(planned("zero.stage=1", false), ElementsAre(1));
  EXPECT_THAT(planned("zero.stage=1", true), ElementsAre(4, 4));
}

// The table shows what a stage's rank sends to other stages, and the JSON all that it sends.
TEST(PipelineTest, CountsWhatAStageSends) {
  const tests::ScratchFolder scratch;
  PlanOptions options;
  options.ranks = 4;
  options.json = scratch.path() / "plan.json";
  options.sets = {"device.kind=cpu", "model.preset=tiny-gpt2", "data.seq_len=16", "parallel.stages=2"};
  testing::internal::CaptureStdout();
  const int status = plan(options);
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(status, 0) << printed;
  simdjson::dom::parser parser;
  const simdjson::padded_string text(scratch.read("plan.json"));
  const simdjson::dom::element json = parser.parse(text);
  const auto total = std::uint64_t(json["comm_bytes"]["total"]);
  const auto between_stages = std::uint64_t(json["comm_bytes"]["point_to_point"]);
  const auto stage = static_cast<std::size_t>(std::uint64_t(json["memory_rank"]) / 2);
  EXPECT_EQ(std::uint64_t(json["stages"].at(stage)["sent_bytes"]), total);
  EXPECT_GT(total, between_stages) << "ranks of a stage exchange gradients";
  EXPECT_THAT(printed, testing::HasSubstr("to other stages\n"));
  const std::size_t row = printed.find(fmt::format("\n{} ", stage), printed.find("to other stages\n"));
  ASSERT_NE(row, std::string::npos) << printed;
  EXPECT_THAT(printed.substr(row + 1, printed.find('\n', row + 1) - row - 1),
              testing::EndsWith(" " + bytes_text(between_stages)));
}

// The split that "auto" found gives the same plan when given as a list.
TEST(PipelineTest, PrintsTheSplit) {
  const tests::ScratchFolder scratch;
  PlanOptions options;
  options.ranks = 2;
  options.json = scratch.path() / "plan.json";
  options.sets = {"device.kind=cpu",        "model.preset=tiny-gpt2",
                  "model.config.n_layer=6", "memory.device=1GiB",
                  "memory.host=1GiB",       "data.seq_len=16",
                  "parallel.stages=2",      "parallel.schedule=interleaved",
                  "parallel.chunks=2",      "training.gradient_accumulation_steps=2"};
  const auto planned = [&] {
    testing::internal::CaptureStdout();
    const int status = plan(options);
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0) << printed;
    return printed;
  };
  const std::string printed = planned(), json = scratch.read("plan.json");
  const std::size_t at = json.find("\"split\":") + 8;
  const std::string split = json.substr(at, json.find(']', at) + 1 - at);
  std::string spaced;
  for (const char c : split) spaced += c == ',' ? std::string(", ") : std::string(1, c);
  EXPECT_THAT(printed, testing::HasSubstr("parallel.split = \"auto\" gives " + spaced));
  options.sets.push_back("parallel.split=" + split);
  options.force = true;
  EXPECT_THAT(planned(), testing::Not(testing::HasSubstr("gives")));
  EXPECT_EQ(scratch.read("plan.json"), json);
}

TEST(PipelineTest, ExplainsARankThatDoesNotExist) {
  PlanOptions options;
  options.sets = {"model.preset=tiny-gpt2", "data.seq_len=16"};
  options.rank = 2;
  EXPECT_FAILURE((void)plan(options), Exit::usage, testing::EndsWith("give 0 to 0 (did you mean --ranks 2?)"));
  options.ranks = 2;
  EXPECT_FAILURE((void)plan(options), Exit::usage, "--rank 2 is not one of 2 ranks: give 0 to 1");
}

}  // namespace
}  // namespace strata::launcher
