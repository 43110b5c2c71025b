// training.freeze: frozen weights stay unchanged, cost nothing unnecessary, and do not affect the bits of the others,
// whatever the stage, tier, order, recomputation and number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "models/parameter.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/same_bits.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

struct FrozenRunCase {
  const char* name;
  std::vector<std::string> sets;
  const char* freeze;  // as in a recipe
};

const FrozenRunCase kFrozenRunCases[] = {
    // Positions train, so backward covers all units. A table that two units share is frozen under its second name.
    {"tied, in parts", kSmallGpt2,
     R"(["lm_head.weight", "*.ln_1.*", "*.h.0.mlp.*", "*.h.1.attn.c_attn.bias", "*.h.2.attn.c_attn.weight", "*.ln_f.bias"])"},
    // Nothing below the third block trains, and only parts of that block and of the head do.
    {"tied, from above", kSmallGpt2, R"(["*.w?e.*", "*.h.[01].*", "*.h.2.attn.*", "*.ln_f.weight"])"},
    {"untied, in parts", kSmallLlama,
     R"(["*.embed_tokens.*", "*.layers.0.*", "*.k_proj.weight", "*.layers.1.mlp.up_proj.*", "*.layers.2.input_layernorm.*"])"},
    {"a block's last matrix and above", kSmallLlama,
     R"(["*.embed_tokens.*", "*.layers.[01].*", "*.layers.2.self_attn.*", "*norm.weight", "*.gate_proj.*", "*.up_proj.*"])"},
    {"the head alone", kSmallLlama, R"("model.*")"},
    {"all but the head's table", kSmallLlama, R"(["lm_head.weight", "*.layers.1.*"])"},
};

class FrozenRun : public testing::TestWithParam<std::tuple<std::size_t, const char*>> {
 protected:
  FrozenRun() { write_small_tokens(folder_); }
  const FrozenRunCase& of() const { return kFrozenRunCases[std::get<0>(GetParam())]; }
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

TEST_P(FrozenRun, SameBitsWhateverThePlan) {
  const Trained first = whole();
  EXPECT_NE(first.loss_hex[1], first.loss_hex[2]) << "the weights must change";
  expect_same_whatever_the_plan(
      first, [&](int ranks, const std::vector<std::string>& more, std::size_t tile, std::size_t chunk) {
        return train_in_threads(std::nullopt, sets(ranks, more), ranks, {}, tile, chunk);
      });
}

TEST_P(FrozenRun, SameBitsInEveryTier) {
  expect_same_in_every_tier(whole(),
                            [&](int ranks, const std::vector<std::string>& more, std::size_t tile, std::size_t chunk) {
                              return train_in_threads(std::nullopt, sets(ranks, more), ranks, {}, tile, chunk);
                            });
}

std::map<std::string, std::vector<float>> weights_of(Trainer& trainer, const Job& job) {
  std::map<std::string, std::vector<float>> out;
  const Storage& storage = trainer.executor().storage();
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit)
    for (const PoolKind pool : {PoolKind::trained, PoolKind::frozen})
      for (const TensorRange& range : job.plan.layout.units[unit].pool(pool).ranges) {
        std::vector<float>& values = out[job.model->units[unit]->parameters()[range.parameter].name];
        values.resize(range.end - range.begin);
        const StateKind kind = pool == PoolKind::frozen ? StateKind::frozen : StateKind::master;
        storage.read_state(unit, kind, range.begin * sizeof(float), std::as_writable_bytes(std::span(values)));
      }
  return out;
}

TEST_P(FrozenRun, FrozenTensorsStayAndOthersChange) {
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
                         testing::Combine(testing::Range(std::size_t{0}, std::size(kFrozenRunCases)),
                                          testing::Values("fp32", "bf16")));

std::string freeze_complaint(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    return error.what();
  }
  return {};
}

Job frozen_job(std::vector<std::string> sets, const std::string& freeze, const std::vector<std::string>& more = {}) {
  sets.push_back("training.freeze=" + freeze);
  sets.insert(sets.end(), {"data.seq_len=16", "training.max_steps=3"});
  sets.insert(sets.end(), more.begin(), more.end());
  const Recipe recipe = load_recipe(std::nullopt, sets);
  return make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
}

// A completely frozen block of a Llama has no optimizer state and no sum of gradients, and its parameters stay.
TEST(FrozenPlan, SavesTheMemoryOfFrozenTensorsToTheByte) {
  const auto by_kind = [](const Job& job, Kind kind) {
    return job.plan.memory[0].by_kind[static_cast<std::size_t>(kind)];
  };
  const std::vector<std::string> more = {"training.gradient_accumulation_steps=2", "training.precision=fp32"};
  const Job all = frozen_job(kSmallLlama, "[]", more), some = frozen_job(kSmallLlama, R"("model.layers.1.*")", more);
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

// Units below all trained ones keep no activations, recompute nothing, and have no backward.
TEST(FrozenPlan, BackwardEndsAtTheLowestTrainedUnit) {
  for (const char* recompute : {"none", "block", "sqrt"}) {
    const Job job = frozen_job(kSmallLlama, R"(["*.embed_tokens.*", "model.layers.0.*", "model.layers.1.*"])",
                               {fmt::format("training.recompute={}", recompute)});
    for (const Task& task : job.plan.tasks)
      if (task.kind == TaskKind::backward || task.kind == TaskKind::recompute) {
        EXPECT_EQ(task.unit, 3) << recompute << ": " << name_of(task, *job.model);
      }
    const Job whole = frozen_job(kSmallLlama, "[]", {fmt::format("training.recompute={}", recompute)});
    EXPECT_LT(job.plan.memory[0].by_kind[static_cast<std::size_t>(Kind::activations)],
              whole.plan.memory[0].by_kind[static_cast<std::size_t>(Kind::activations)])
        << recompute;
  }
}

// Within a block, the input and the activations below the lowest trained tensor are not kept for backward.
TEST(FrozenPlan, BackwardEndsWithinABlock) {
  const auto job_without = [](const std::string& more) {
    return frozen_job(kSmallLlama, R"(["*.embed_tokens.*", "*.layers.[01].*")" + more + "]",
                      {"training.precision=fp32", "training.micro_batch_size=2"});
  };
  const Job block = job_without(""),
            down = job_without(R"(, "*.self_attn.*", "*.layers.2.*norm.*", "*.gate_proj.*", "*.up_proj.*")");
  const auto kept = [](const Job& job) {
    std::size_t bytes = 0;
    for (const Buffer& buffer : job.plan.buffers)
      if (buffer.name == "saved by block 2") bytes = buffer.bytes;
    return bytes;
  };
  const auto reads_input = [](const Job& job) {
    return std::ranges::any_of(
        job.plan.tasks, [](const Task& task) { return task.kind == TaskKind::backward && task.buffer(Role::x) >= 0; });
  };
  EXPECT_TRUE(reads_input(block));
  EXPECT_FALSE(reads_input(down));
  // 32 tokens, 40 wide, 5 heads of 8 with one of keys, an MLP of 72.
  constexpr std::size_t kRow = 32 * sizeof(float), kActive = 72 * kRow,
                        kAll = kRow + (40 + 7 * 8 + 40 + 5) * kRow + 40 * kRow + kRow + (40 + 2 * 72) * kRow + kActive;
  EXPECT_EQ(kept(down), aligned(kActive));
  EXPECT_EQ(kept(block), aligned(kAll));
}

// A checkpoint stores frozen weights as the run has them, and any stage can resume from it.
TEST(FrozenResume, ContinuesAsIfItHadNotStopped) {
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
    EXPECT_THAT(freeze_complaint([&] { saved.run(1, saved.sets(1), 6); }), HasSubstr("training.freeze"));
  }
}

}  // namespace
}  // namespace strata::runtime
