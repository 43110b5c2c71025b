// training.freeze: what is frozen stays as it was, costs nothing that it does not need, and changes no bits of the
// rest, whatever the stage, tier, order, recomputation and number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>

#include "base/error.h"
#include "models/freeze.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<std::string> sets;
  const char* freeze;  // as a recipe has it
};

const std::vector<std::string> kGpt2 = {
    "model.preset=tiny-gpt2",      "model.config.n_layer=3",       "model.config.n_embd=48",
    "model.config.n_head=3",       "model.config.vocab_size=130",  "model.config.n_positions=24",
    "model.config.attn_pdrop=0.1", "model.config.resid_pdrop=0.1", "model.config.embd_pdrop=0.1"};
const std::vector<std::string> kLlama = {"model.preset=tiny-llama",
                                         "model.config.num_hidden_layers=3",
                                         "model.config.hidden_size=40",
                                         "model.config.num_attention_heads=5",
                                         "model.config.num_key_value_heads=1",
                                         "model.config.head_dim=8",
                                         "model.config.intermediate_size=72",
                                         "model.config.vocab_size=130",
                                         "model.config.attention_dropout=0.1"};

const Case kCases[] = {
    // Positions train, so backward goes all the way; a table that two units share is frozen under its second name.
    {"tied, in parts", kGpt2,
     R"(["lm_head.weight", "*.ln_1.*", "*.h.0.mlp.*", "*.h.1.attn.c_attn.bias", "*.h.2.attn.c_attn.weight", "*.ln_f.bias"])"},
    // Nothing below the third block, and of that block and of the head some.
    {"tied, from above", kGpt2, R"(["*.w?e.*", "*.h.[01].*", "*.h.2.attn.*", "*.ln_f.weight"])"},
    {"untied, in parts", kLlama,
     R"(["*.embed_tokens.*", "*.layers.0.*", "*.k_proj.weight", "*.layers.1.mlp.up_proj.*", "*.layers.2.input_layernorm.*"])"},
    {"the head alone", kLlama, R"("model.*")"},
    {"all but the head's table", kLlama, R"(["lm_head.weight", "*.layers.1.*"])"},
};

class FrozenRun : public testing::TestWithParam<std::tuple<std::size_t, const char*>> {
 protected:
  FrozenRun() {
    std::ofstream file(folder_.path() / "tokens.bin", std::ios::binary);
    for (std::uint32_t i = 0; i < 900; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 130);
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  const Case& of() const { return kCases[std::get<0>(GetParam())]; }
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = of().sets;
    for (const std::string& set :
         {fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), std::string("data.seq_len=16"),
          std::string("training.max_steps=3"), std::string("training.micro_batch_size=2"),
          fmt::format("training.precision={}", std::get<1>(GetParam())), std::string("optimizer.learning_rate=2e-3"),
          fmt::format("training.gradient_accumulation_steps={}", 4 / ranks),
          fmt::format("training.freeze={}", of().freeze), fmt::format("memory.nvme={}", folder_.path().string())})
      all.push_back(set);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Trained whole() const { return train_in_threads(std::nullopt, sets(1), 1); }

  tests::ScratchFolder folder_;
};

void expect_same(const Trained& trained, const Trained& first, const std::string& name) {
  EXPECT_TRUE(trained.memory_as_planned) << name;
  EXPECT_TRUE(trained.bytes_as_planned) << name;
  EXPECT_EQ(trained.loss_hex, first.loss_hex) << name;
  EXPECT_EQ(trained.weights_hash, first.weights_hash) << name;
}

TEST_P(FrozenRun, SameBitsWhateverThePlan) {
  const Trained first = whole();
  EXPECT_NE(first.loss_hex[1], first.loss_hex[2]) << "the weights move";
  int i = 0;
  for (const int ranks : {1, 2, 4})
    for (int stage = 0; stage < 4; ++stage)
      for (const char* recompute : {"none", "block", "sqrt"}) {
        const std::string order = ++i % 2 ? "vertical" : "horizontal";
        const std::string name = fmt::format("{} ranks, stage {}, recompute {}, {}", ranks, stage, recompute, order);
        auto all = sets(ranks, {fmt::format("zero.stage={}", stage), fmt::format("training.recompute={}", recompute),
                                "memory.order=" + order, fmt::format("memory.prefetch={}", i % 4)});
        // Parameters cut over half of the ranks, each half with a copy.
        if (ranks == 4 && stage == 3 && i % 2) all.push_back("zero.parameters_group=2");
        // Every third in tiles, which only sharded parameters come in.
        expect_same(train_in_threads(std::nullopt, all, ranks, {}, i % 3 ? 0 : 1), first, name);
      }
}

TEST_P(FrozenRun, SameBitsInEveryTier) {
  const Trained first = whole();
  const char* tiers[] = {"device", "host", "nvme"};
  int i = 0;
  for (const char* parameters : tiers)
    for (const char* optimizer : tiers)
      for (const int ranks : {1, 2}) {
        const char* gradients = tiers[++i % 3];
        const std::string name = fmt::format("{} ranks, {} {} {}", ranks, parameters, gradients, optimizer);
        const auto all =
            sets(ranks, {fmt::format("zero.stage={}", ranks == 1 ? 0 : i % 4),
                         fmt::format("zero.parameters={}", parameters), fmt::format("zero.gradients={}", gradients),
                         fmt::format("zero.optimizer={}", optimizer), fmt::format("zero.activations={}", tiers[i % 2]),
                         fmt::format("training.recompute={}", i % 2 ? "block" : "none")});
        expect_same(train_in_threads(std::nullopt, all, ranks, {}, i % 4 ? 0 : 1, kShardAlignment), first, name);
      }
}

std::map<std::string, std::vector<float>> weights_of(Trainer& trainer, const Job& job) {
  std::map<std::string, std::vector<float>> out;
  const Storage& storage = trainer.executor().storage();
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit)
    for (const PoolKind pool : {PoolKind::trained, PoolKind::frozen})
      for (const Run& run : job.plan.layout.units[unit].pool(pool).runs) {
        std::vector<float>& values = out[job.model->units[unit]->parameters()[run.parameter].name];
        values.resize(run.end - run.begin);
        const StateKind kind = pool == PoolKind::frozen ? StateKind::frozen : StateKind::master;
        storage.read_state(unit, kind, run.begin * sizeof(float), std::as_writable_bytes(std::span(values)));
      }
  return out;
}

TEST_P(FrozenRun, WhatIsFrozenStaysAndTheRestMoves) {
  if (std::string_view(std::get<1>(GetParam())) != "fp32") GTEST_SKIP() << "reads fp32";
  std::map<std::string, std::vector<float>> before, after;
  const auto all = sets(1);
  train_in_threads(std::nullopt,
                   sets(1, {"training.max_steps=1", "optimizer.learning_rate=0", "scheduler.warmup_steps=0"}), 1,
                   [&](Trainer& trainer, const Job& job, int) { before = weights_of(trainer, job); });
  train_in_threads(std::nullopt, all, 1,
                   [&](Trainer& trainer, const Job& job, int) { after = weights_of(trainer, job); });
  const Recipe recipe = load_recipe(std::nullopt, all);
  const std::vector<std::string>& freeze = recipe.training.freeze;
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, values] : before) {
    const bool shared = name == "transformer.wte.weight" && models::is_frozen_by(freeze, "lm_head.weight");
    EXPECT_EQ(values == after[name], shared || models::is_frozen_by(freeze, name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, FrozenRun,
                         testing::Combine(testing::Range(std::size_t{0}, std::size(kCases)),
                                          testing::Values("fp32", "bf16")));

std::string complaint_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    return error.what();
  }
  return {};
}

Job job_of(std::vector<std::string> sets, const std::string& freeze, const std::vector<std::string>& more = {}) {
  sets.push_back("training.freeze=" + freeze);
  sets.insert(sets.end(), {"data.seq_len=16", "training.max_steps=3"});
  sets.insert(sets.end(), more.begin(), more.end());
  const Recipe recipe = load_recipe(std::nullopt, sets);
  return make_job(recipe, 1, capacity_of(recipe.memory, 1));
}

// Of a block of a llama that is frozen whole: no optimizer state and no sum of gradients, and parameters as they were.
TEST(FrozenPlan, SavesWhatIsFrozenToTheByte) {
  const auto by_kind = [](const Job& job, Kind kind) {
    return job.plan.memory[0].by_kind[static_cast<std::size_t>(kind)];
  };
  const std::vector<std::string> more = {"training.gradient_accumulation_steps=2", "training.precision=fp32"};
  const Job all = job_of(kLlama, "[]", more), some = job_of(kLlama, R"("model.layers.1.*")", more);
  const std::size_t block = all.plan.layout.units[2].padded() * sizeof(float);
  EXPECT_EQ(some.plan.layout.units[2].padded(), 0u);
  EXPECT_EQ(some.plan.layout.units[2].frozen.padded() * sizeof(float), block);
  EXPECT_EQ(by_kind(all, Kind::optimizer) - by_kind(some, Kind::optimizer), 2 * block);
  EXPECT_EQ(by_kind(all, Kind::parameters), by_kind(some, Kind::parameters));
  EXPECT_EQ(
      some.model->trained_parameters(), all.model->parameters() - [&] {
        std::size_t n = 0;
        for (const models::Parameter& p : all.model->units[2]->parameters()) n += p.size();
        return n;
      }());
}

// Nothing of what lies below all that is trained is kept, run again, or gone through backward.
TEST(FrozenPlan, BackwardEndsAboveWhatIsFrozenBelow) {
  for (const char* recompute : {"none", "block", "sqrt"}) {
    const Job job = job_of(kLlama, R"(["*.embed_tokens.*", "model.layers.0.*", "model.layers.1.*"])",
                           {fmt::format("training.recompute={}", recompute)});
    for (const Task& task : job.plan.tasks)
      if (task.kind == TaskKind::backward || task.kind == TaskKind::recompute) {
        EXPECT_EQ(task.unit, 3) << recompute << ": " << name_of(task, *job.model);
      }
    const Job whole = job_of(kLlama, "[]", {fmt::format("training.recompute={}", recompute)});
    EXPECT_LT(job.plan.memory[0].by_kind[static_cast<std::size_t>(Kind::activations)],
              whole.plan.memory[0].by_kind[static_cast<std::size_t>(Kind::activations)])
        << recompute;
  }
}

TEST(FrozenPlan, PatternsOfNothingAreRefusedWithTheNearestNames) {
  const auto refused = [](const char* freeze) { return complaint_of([&] { job_of(kLlama, freeze); }); };
  EXPECT_THAT(refused(R"("model.embed_token.weight")"), HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(refused(R"(["model.norm.*", "*.h.0.*"])"), HasSubstr("like *.h.0.*"));
  EXPECT_THAT(refused(R"("*")"), HasSubstr("nothing would be trained"));
  EXPECT_THAT(refused(R"(["model.*", ""])"), HasSubstr("training.freeze"));
}

// A checkpoint holds what is frozen as the run has it, and goes on at any stage.
TEST(FrozenResume, GoesOnAsIfItHadNotStopped) {
  const SavedRun saved;
  for (const char* precision : {"fp32", "bf16"}) {
    const std::vector<std::string> more = {R"(training.freeze=["*.wte.*", "*.h.0.*", "*.h.1.ln_1.*"])",
                                           fmt::format("training.precision={}", precision)};
    auto with = [&](const std::vector<std::string>& others) {
      auto all = more;
      all.insert(all.end(), others.begin(), others.end());
      return all;
    };
    std::filesystem::remove_all(saved.checkpoints());
    const auto straight = saved.run(1, saved.sets(1, more), 6);
    std::filesystem::remove_all(saved.checkpoints());
    saved.run(2, saved.sets(2, with({"zero.stage=3"})), 3, {3});
    const auto gone_on = saved.run(1, saved.sets(1, more), 6);
    EXPECT_EQ(gone_on.resumed, "step-00000003") << precision;
    EXPECT_EQ(gone_on.weights, straight.weights) << precision;
    EXPECT_TRUE(std::equal(gone_on.losses.begin(), gone_on.losses.end(), straight.losses.begin() + 3)) << precision;
    EXPECT_THAT(complaint_of([&] { saved.run(1, saved.sets(1), 6); }), HasSubstr("training.freeze"));
  }
}

}  // namespace
}  // namespace strata::runtime
