// Adapters: frozen tensors stay unchanged, A and B train, and the bits do not depend on stage, tier, order,
// recomputation and number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/same_bits.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  const char* family;  // of tests/golden; empty: the sets name a preset
  std::vector<std::string> sets;
};

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

const Case kCases[] = {
    {"llama, every layer", "", with(kSmallLlama, {"adapter.rank=4", "adapter.alpha=12"})},
    {"llama, dropout", "", with(kSmallLlama, {"adapter.rank=8", "adapter.dropout=0.25"})},
    // Backward ends in the second block, and layers have different adapters.
    {"llama, some", "",
     with(kSmallLlama,
          {R"(adapter.target_modules=["q_proj", "v_proj", "up_proj"])", "adapter.layers_to_transform=[1, 2]",
           R"(adapter.rank_pattern={"v_proj" = 2, "layers.2.mlp.up_proj" = 16})",
           R"(adapter.alpha_pattern={"v_proj" = 5})", "adapter.rslora=true", "adapter.init=gaussian"})},
    // Backward ends at the MLP's last matrix.
    {"llama, down", "", with(kSmallLlama, {"adapter.rank=4", R"(adapter.target_modules=["down_proj"])"})},
    {"gpt2, with the words' table", "",
     with(kSmallGpt2,
          {"model.config.tie_word_embeddings=false", R"re(adapter.target_modules=".*(c_attn|c_fc|mlp.c_proj)")re",
           R"(adapter.modules_to_save=["wte", "ln_f"])", R"(adapter.exclude_modules=["h.1.mlp.c_fc"])"})},
    {"gpt2, with the table that the output layer shares", "",
     with(kSmallGpt2, {"adapter.rank=2", R"(adapter.modules_to_save=["wte", "lm_head", "ln_f"])",
                       "adapter.ensure_weight_tying=true"})},
    {"llama, DoRA", "",
     with(kSmallLlama,
          {"adapter.rank=4", "adapter.dora=true", R"(adapter.target_modules=["q_proj", "v_proj", "down_proj"])"})},
    {"gpt2, DoRA with dropout", "", with(kSmallGpt2, {"adapter.rank=3", "adapter.dora=true", "adapter.dropout=0.25"})},
    // With two tiles of the table, the second short.
    {"llama, the output layer too", "",
     with(kSmallLlama, {"model.config.vocab_size=4200", "adapter.rank=4", "adapter.dropout=0.25",
                        R"(adapter.target_modules=["v_proj", "lm_head"])", R"(adapter.rank_pattern={"lm_head" = 3})"})},
    // Backward ends in the head.
    {"gpt2, the output layer", "",
     with(kSmallGpt2, {"model.config.tie_word_embeddings=false", "adapter.rank=5", "adapter.rslora=true",
                       R"(adapter.target_modules=["lm_head"])"})},
    {"llama, DoRA of the output layer too", "",
     with(kSmallLlama, {"model.config.vocab_size=4200", "adapter.rank=4", "adapter.dora=true",
                        R"(adapter.target_modules=["v_proj", "lm_head"])", R"(adapter.rank_pattern={"lm_head" = 3})"})},
    {"gpt2, DoRA of the output layer with dropout", "",
     with(kSmallGpt2, {"model.config.tie_word_embeddings=false", "model.config.vocab_size=4200", "adapter.rank=5",
                       "adapter.dora=true", "adapter.dropout=0.25", R"(adapter.target_modules=["lm_head"])"})},
    // The rank is above both widths of k_proj, and in virtual shards above one of down_proj.
    {"llama, ranks above widths", "",
     with(kSmallLlama, {"adapter.rank=24", R"(adapter.target_modules=["k_proj", "down_proj"])",
                        R"(adapter.rank_pattern={"k_proj" = 48})"})},
    {"bert", "bert", {}},
    {"modernbert", "modernbert", {"adapter.rank=3"}},
};

class AdapterRun : public testing::TestWithParam<std::tuple<std::size_t, const char*>> {
 protected:
  AdapterRun() { write_small_tokens(folder_); }
  static const Case& of() { return kCases[std::get<0>(GetParam())]; }
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"adapter.kind=lora",
                                    "training.max_steps=4",
                                    fmt::format("training.precision={}", std::get<1>(GetParam())),
                                    "optimizer.learning_rate=5e-3",
                                    fmt::format("training.gradient_accumulation_steps={}", 4 / ranks),
                                    fmt::format("memory.nvme={}", folder_.path().string())};
    if (std::string_view(of().family).empty())
      all = with(all, {fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), "data.seq_len=16",
                       "training.micro_batch_size=2"});
    return with(with(all, of().sets), more);
  }
  static std::optional<std::filesystem::path> recipe() {
    if (std::string_view(of().family).empty()) return std::nullopt;
    return std::filesystem::path(tests::source_dir()) / "tests/golden" / of().family / "recipe.toml";
  }
  Trained train(int ranks, const std::vector<std::string>& more,
                const std::function<void(Trainer&, const Job&, int)>& f = {}, std::size_t tile_bytes = 0,
                std::size_t update_chunk = 0) const {
    return train_in_threads(recipe(), sets(ranks, more), ranks, f, tile_bytes, update_chunk);
  }

  tests::ScratchFolder folder_;
};

TEST_P(AdapterRun, SameBitsWhateverThePlan) {
  const Trained first = train(1, {});
  EXPECT_NE(first.loss_hex[1], first.loss_hex[2]) << "A and B must change";
  expect_same_whatever_the_plan(first, [&](int ranks, const std::vector<std::string>& more, std::size_t tile,
                                           std::size_t chunk) { return train(ranks, more, {}, tile, chunk); });
}

TEST_P(AdapterRun, SameBitsInEveryTier) {
  expect_same_in_every_tier(train(1, {}), [&](int ranks, const std::vector<std::string>& more, std::size_t tile,
                                              std::size_t chunk) { return train(ranks, more, {}, tile, chunk); });
}

// B begins as zeros, so that the first loss is the model's own.
TEST_P(AdapterRun, StartsWithTheModelsOwnLoss) {
  std::vector<std::string> plain = sets(1, {"training.max_steps=1"});
  std::erase_if(plain, [](const std::string& set) { return set.starts_with("adapter."); });
  const Trained without = train_in_threads(recipe(), plain, 1);
  std::string base;
  const Trained first =
      train(1, {"training.max_steps=1"}, [&](Trainer& trainer, const Job&, int) { base = trainer.base_hash(); });
  if (std::ranges::find(of().sets, "adapter.dora=true") == of().sets.end())
    EXPECT_EQ(first.loss_hex, without.loss_hex) << "B A x is 0 regardless of dropout on x";
  else  // magnitudes are the norms to a rounding
    EXPECT_NEAR(std::stod(first.loss_hex[0]), std::stod(without.loss_hex[0]), 1e-4);
  for (const int ranks : {1, 2})
    train(ranks, {"zero.stage=3"}, [&](Trainer& trainer, const Job&, int) {
      EXPECT_EQ(trainer.base_hash(), base) << "frozen weights do not change";
    });
}

TEST_P(AdapterRun, TrainsOnlyFactorsAndSavedModules) {
  train(1, {"training.max_steps=1"}, [&](Trainer&, const Job& job, int) {
    std::size_t trained = 0;
    const bool saves = std::ranges::any_of(
        of().sets, [](const std::string& set) { return set.starts_with("adapter.modules_to_save"); });
    for (const auto& unit : job.model->units)
      for (const models::Parameter& p : unit->parameters()) {
        const bool saved =
            saves && (p.name.find(".wte.") != std::string::npos || p.name.find(".ln_f.") != std::string::npos);
        EXPECT_EQ(p.trained(), p.of_adapter || saved) << p.name;
        if (p.trained()) trained += p.size();
      }
    EXPECT_EQ(job.model->trained_parameters(), trained);
    EXPECT_TRUE(job.plan.layout.adapted);
  });
}

// Each case runs in bf16 and in one of the other precisions in turn.
std::vector<std::tuple<std::size_t, const char*>> adapters_and_precisions() {
  std::vector<std::tuple<std::size_t, const char*>> all;
  for (std::size_t i = 0; i < std::size(kCases); ++i)
    for (const char* precision : {"bf16", i % 2 == 0 ? "fp32" : "fp16"}) all.emplace_back(i, precision);
  return all;
}
INSTANTIATE_TEST_SUITE_P(, AdapterRun, testing::ValuesIn(adapters_and_precisions()));

std::string complaint_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage) << error.what();
    return error.what();
  }
  return {};
}

Job job_of(std::vector<std::string> sets, const std::vector<std::string>& more) {
  const Recipe recipe =
      load_recipe(std::nullopt,
                  with(with(std::move(sets), {"adapter.kind=lora", "data.seq_len=16", "training.max_steps=3"}), more));
  return make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
}

// Backward does not go below the first adapter, and no frozen weight has a gradient or a moment.
TEST(AdapterPlan, CostsOnlyTrainedTensors) {
  const Job job = job_of(kSmallLlama, {R"(adapter.target_modules=["down_proj"])", "adapter.layers_to_transform=2"});
  for (const Task& task : job.plan.tasks)
    if (task.kind == TaskKind::backward || task.kind == TaskKind::update) {
      EXPECT_EQ(task.unit, 3) << name_of(task, *job.model);
    }
  EXPECT_EQ(job.model->trained_parameters(), 8u * (72 + 40));
  EXPECT_EQ(job.plan.layout.units[3].padded(), kShardAlignment);
}

TEST(AdapterPlan, RefusesIncompatibleSettings) {
  const auto refused = [](const std::vector<std::string>& more) {
    return complaint_of([&] { job_of(kSmallLlama, more); });
  };
  EXPECT_THAT(refused({R"(training.freeze="*.wte.*")"}), HasSubstr("contradict"));
  EXPECT_THAT(refused({"adapter.layers_to_transform=1"}), HasSubstr("give names"));
  EXPECT_THAT(refused({R"(adapter.rank_pattern={"q_proj" = 0})"}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(refused({"adapter.rank_pattern.q_proj=4"}), HasSubstr(R"(adapter.rank_pattern='{ "q_proj" = 4 }')"));
  EXPECT_THAT(refused({R"(adapter.rank_pattern."layers.1.mlp.down_proj"=2)"}),
              HasSubstr(R"(adapter.rank_pattern='{ "layers.1.mlp.down_proj" = 2 }')"));
  EXPECT_THAT(refused({"adapter.path=/nowhere"}), HasSubstr("there is no folder /nowhere"));
  const std::string golden = (tests::source_dir() / "tests/golden").string();
  EXPECT_THAT(refused({"adapter.path=" + golden + "/llama/model"}), HasSubstr("holds a whole model"));
  EXPECT_THAT(refused({"adapter.path=" + golden + "/llama/tokens.bin"}), HasSubstr("is a file"));
  EXPECT_THAT(refused({"adapter.path=" + golden}), HasSubstr("holds no adapter_config.json"));
  EXPECT_THAT(complaint_of([] { load_recipe(std::nullopt, with(kSmallLlama, {"adapter.rank=4"})); }),
              HasSubstr("needs adapter.kind"));
}

// The targets that adapter.layers_to_transform restricts are the folder's, unless the recipe has some of its own.
TEST(AdapterPlan, ComparesLayersWithThoseOfTheFolder) {
  const tests::ScratchFolder folder;
  folder.write("adapter_model.safetensors", "");
  const auto refused = [&](const char* of_folder, const std::vector<std::string>& more) {
    folder.write("adapter_config.json", fmt::format(R"({{"peft_type": "LORA", {}}})", of_folder));
    const std::vector<std::string> sets =
        with(kSmallLlama, {"adapter.path=" + folder.path().string(), "data.seq_len=16", "training.max_steps=3"});
    return complaint_of([&] { open_workload(load_recipe(std::nullopt, with(sets, more))); });
  };
  const char* const two = R"("target_modules": ["v_proj"], "layers_to_transform": [1, 2])";
  EXPECT_EQ(refused(two, {"adapter.layers_to_transform=[1, 2]"}), "");
  EXPECT_EQ(refused(two, {"adapter.kind=lora", "adapter.layers_to_transform=[2, 1]"}), "") << "the same layers";
  EXPECT_THAT(refused(two, {"adapter.layers_to_transform=[1]"}),
              HasSubstr("adapter.layers_to_transform = [1], but " + folder.path().string() + " has [1, 2]"));
  EXPECT_THAT(refused(two, {"adapter.layers_to_transform=[1, 2]", "adapter.target_modules=all-linear"}),
              HasSubstr("adapter.layers_to_transform = [1, 2] needs a list of target modules"));
  EXPECT_THAT(refused(R"("target_modules": ".*v_proj")", {"adapter.layers_to_transform=1"}),
              HasSubstr("adapter.layers_to_transform = [1], but " + folder.path().string() + " has none"));
}

TEST(AdapterResume, ContinuesAsIfItHadNotStopped) {
  const SavedRun saved;
  for (const char* precision : {"fp32", "bf16"}) {
    const std::vector<std::string> more = {"adapter.kind=lora", "adapter.rank=4",
                                           fmt::format("training.precision={}", precision)};
    std::filesystem::remove_all(saved.checkpoints());
    const auto straight = saved.run(1, saved.sets(1, more), 6);
    std::filesystem::remove_all(saved.checkpoints());
    saved.run(2, saved.sets(2, with(more, {"zero.stage=3"})), 3, {3});
    const auto gone_on = saved.run(1, saved.sets(1, more), 6);
    EXPECT_EQ(gone_on.resumed, "step-00000003") << precision;
    EXPECT_EQ(gone_on.weights, straight.weights) << precision;
    EXPECT_TRUE(std::equal(gone_on.losses.begin(), gone_on.losses.end(), straight.losses.begin() + 3)) << precision;
    EXPECT_THAT(complaint_of([&] { saved.run(1, saved.sets(1, with(more, {"adapter.rank=2"})), 6); }),
                HasSubstr("adapter.rank = 4"));
    EXPECT_THAT(complaint_of([&] { saved.run(1, saved.sets(1), 6); }), HasSubstr("adapter.kind"));
  }
}

// A checkpoint names its base by path and hash; the recipe says where the model is now, and the hash must agree.
TEST(AdapterResume, TheBaseMayHaveMoved) {
  const SavedRun saved;
  const auto place = [&](const char* name) { return saved.folder().path() / name; };
  for (const auto& [name, seed] : {std::pair{"base", 1}, {"other", 2}}) {
    (void)saved.run(1, saved.sets(1, {fmt::format("training.seed={}", seed)}), 1, {1});
    export_model(ModelFolder(saved.checkpoints()), place(name), {});
    std::filesystem::remove_all(saved.checkpoints());
  }
  const auto on = [&](const char* base) {
    std::vector<std::string> sets = saved.sets(1, {"adapter.kind=lora"});
    std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
    sets.push_back("model.path=" + place(base).string());
    return sets;
  };
  const auto straight = saved.run(1, on("base"), 6);
  (void)saved.run(1, on("base"), 3, {3});
  std::filesystem::rename(place("base"), place("moved"));
  const auto gone_on = saved.run(1, on("moved"), 6);
  EXPECT_EQ(gone_on.resumed, "step-00000003");
  EXPECT_EQ(gone_on.weights, straight.weights);
  EXPECT_THAT(complaint_of([&] { saved.run(1, on("other"), 6); }), HasSubstr("is not the adapter's base model"));
}

}  // namespace
}  // namespace strata::runtime
