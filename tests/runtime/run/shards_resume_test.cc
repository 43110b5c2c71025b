// Checkpoints and evaluations of runs in virtual shards.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "models/files/config.h"
#include "runtime/checkpoint/reader.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

std::vector<std::string> with_sets(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

const std::vector<std::string> kFourHeads = {"model.config.n_head=4", "model.config.attn_pdrop=0.1"};

// One block's matrices, and half of the other's.
const std::vector<std::string> kInFourBits = {"model.frozen_format=nf4", "model.config.n_embd=256",
                                              R"(training.freeze=["*.h.0.*", "*.h.1.mlp.*"])"};

std::string weights_at_start(const SavedRun& run, const std::string& folder, int shards,
                             const std::vector<std::string>& more = {}) {
  const std::string dir = (run.folder().path() / folder).string();
  run.run(1,
          run.sets(1, with_sets(with_sets(kFourHeads, more),
                                {fmt::format("parallel.tensor_shards={}", shards), "checkpoint.dir=" + dir,
                                 "optimizer.learning_rate=0", "scheduler.warmup_steps=0"})),
          1, {1});
  return dir + "/step-00000001";
}

void expect_the_whole_model(const std::vector<std::string>& more) {
  const SavedRun run;
  const Checkpoint whole(weights_at_start(run, "one", 1, more)), split(weights_at_start(run, "four", 4, more));
  const auto model = models::make_model(models::Config::parse(whole.manifest().config, "config"),
                                        {1, 1, device::DType::fp32, 1, false});
  const auto a = checkpoint_weights(whole, *model), b = checkpoint_weights(split, *model);
  std::size_t blocks = 0;
  for (std::size_t unit = 0; unit < model->units.size(); ++unit)
    for (std::size_t p = 0; p < model->units[unit]->parameters().size(); ++p) {
      const models::Parameter& parameter = model->units[unit]->parameters()[p];
      std::vector<float> x(parameter.size()), y(x.size());
      a->read(unit, p, 0, x);
      b->read(unit, p, 0, y);
      EXPECT_EQ(x, y) << parameter.name;
      if (x.size() < 20) continue;
      b->read(unit, p, 7, std::span(y).subspan(7, x.size() - 13));  // begins and ends within ranges of shards
      EXPECT_EQ(x, y) << parameter.name;
      constexpr device::StorageFormat kPlain = device::StorageFormat::nf4_plain;
      const bool quantised = a->quantised(unit, p, device::StorageFormat::nf4) || a->quantised(unit, p, kPlain);
      ASSERT_EQ(b->quantised(unit, p, kPlain), quantised) << parameter.name;
      if (!quantised) continue;
      read_blocks(*b, kPlain, unit, p, 7, std::span(y).subspan(7));
      EXPECT_EQ(x, y) << parameter.name << ", by blocks";
      blocks += a->quantised(unit, p, kPlain);
    }
  EXPECT_EQ(blocks, more.empty() ? 0u : 6u);
}

TEST(ShardsCheckpoint, AnyReaderFindsTheCompleteModel) {
  expect_the_whole_model({});
  expect_the_whole_model(with_sets(kInFourBits, {"model.double_quant=false"}));
}

TEST(ShardsCheckpoint, ContinuesWithTheSameBits) {
  for (const char* optimizer : {"adamw", "adamw8bit"}) {
    const SavedRun run;
    const std::vector<std::string> shards =
        with_sets(kFourHeads, {"parallel.tensor_shards=2", fmt::format("optimizer.name={}", optimizer)});
    const auto never_stopped = run.run(1, run.sets(1, shards), 6, {3});
    for (const int ranks : {1, 2, 4}) {
      const auto resumed = run.run(
          ranks,
          run.sets(ranks, with_sets(shards, {"checkpoint.resume=" + (run.checkpoints() / "step-00000003").string(),
                                             fmt::format("zero.stage={}", ranks == 1 ? 0 : 3)})),
          6);
      EXPECT_EQ(resumed.weights, never_stopped.weights) << optimizer << " on " << ranks;
      EXPECT_EQ(resumed.losses, std::vector(never_stopped.losses.begin() + 3, never_stopped.losses.end()));
    }
    EXPECT_FAILURE(run.run(1,
                           run.sets(1, with_sets(kFourHeads, {"parallel.tensor_shards=4",
                                                              fmt::format("optimizer.name={}", optimizer)})),
                           6),
                   Exit::usage, HasSubstr("was written with parallel.tensor_shards = 2, but the recipe says 4"));
  }
}

// Ranks that share layers write their shards, and ranks that share them otherwise read those.
TEST(ShardsCheckpoint, ContinuesOnOtherRanks) {
  struct Ranks {
    int world, tensor, stages;
  };
  const std::vector<std::vector<std::string>> kinds = {
      {"optimizer.name=adamw"},
      {"optimizer.name=adamw8bit"},
      {"adapter.kind=lora", "adapter.dora=true", "adapter.dropout=0.1", "adapter.rank=3"},
      {"adapter.kind=lora", "adapter.dora=true", "adapter.rank=3", "model.config.tie_word_embeddings=false",
       R"(adapter.target_modules=["c_fc", "lm_head"])"},
      kInFourBits};
  for (const auto& kind : kinds) {
    const std::vector<std::string> shards = with_sets(with_sets(kFourHeads, {"parallel.tensor_shards=4"}), kind);
    const SavedRun never;
    const auto never_stopped = never.run(1, never.sets(1, shards), 6);
    for (const Ranks& writer : {Ranks{2, 2, 1}, Ranks{8, 4, 1}, Ranks{4, 2, 2}}) {
      const SavedRun run;
      const auto sets = [&](const Ranks& r, const char* more) {
        return run.sets(
            1, with_sets(shards,
                         {fmt::format("parallel.tensor={}", r.tensor), fmt::format("parallel.stages={}", r.stages),
                          fmt::format("training.gradient_accumulation_steps={}", 4 * r.tensor * r.stages / r.world),
                          fmt::format("zero.stage={}", r.world > r.tensor * r.stages ? 3 : 0), more}));
      };
      run.run(writer.world, sets(writer, "checkpoint.keep=9"), 3, {3});
      for (const Ranks& reader : {Ranks{1, 1, 1}, Ranks{2, 1, 1}, Ranks{4, 4, 1}, Ranks{4, 2, 1}, Ranks{2, 1, 2}}) {
        const std::string from = "checkpoint.resume=" + (run.checkpoints() / "step-00000003").string();
        const auto resumed = run.run(reader.world, sets(reader, from.c_str()), 6);
        EXPECT_EQ(resumed.weights, never_stopped.weights)
            << kind[0] << ", " << writer.tensor << " to " << reader.tensor << ", " << reader.stages << " stages";
        EXPECT_EQ(resumed.losses, std::vector(never_stopped.losses.begin() + 3, never_stopped.losses.end()));
      }
    }
  }
}

// An evaluation runs between steps on the memory of training, in the same layout.
TEST(ShardsEvaluation, AgreesUpToRounding) {
  const SavedRun run;
  const auto evaluate = [&](int shards, int tensor = 1) {
    const auto result =
        run.run(tensor,
                run.sets(1, with_sets(kFourHeads, {fmt::format("parallel.tensor_shards={}", shards),
                                                   fmt::format("parallel.tensor={}", tensor),
                                                   "data.validation=" + (run.folder().path() / "tokens.bin").string(),
                                                   "evaluation.every=3", "training.precision=fp32"})),
                6);
    return result.evaluations;
  };
  const std::vector<std::string> whole = evaluate(1), split = evaluate(4);
  EXPECT_EQ(evaluate(4, 2), split) << "over two ranks";
  EXPECT_EQ(evaluate(4, 4), split) << "over four ranks";
  ASSERT_EQ(whole.size(), 2u);
  ASSERT_EQ(split.size(), 2u);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(std::stod(split[i]), std::stod(whole[i]), 1e-5) << i;
}

}  // namespace
}  // namespace strata::runtime
