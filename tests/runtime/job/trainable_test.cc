#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/failure.h"
#include "tests/runtime/same_bits.h"
#include "tests/runtime/tiny_job.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// Why a run of this model with these keys is refused.
std::string complaint_about(std::vector<std::string> model, const std::vector<std::string>& keys) {
  model.insert(model.end(), keys.begin(), keys.end());
  const Error error = tests::failure_of([&] { (void)tiny_job(std::move(model), 1); });
  EXPECT_EQ(error.code(), Exit::usage) << error.what();
  return error.what();
}

// The same for a run that trains an adapter.
std::string adapter_complaint(std::vector<std::string> keys, const std::vector<std::string>& model = kSmallLlama) {
  keys.emplace_back("adapter.kind=lora");
  return complaint_about(model, keys);
}

TEST(Adaptable, TargetsMustBeLinearLayersOfTheModel) {
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["q_prj"])"}),
              AllOf(HasSubstr("is called q_prj; "), HasSubstr("the nearest are q_proj, ")));
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["all_layers"])"}),
              EndsWith(R"(, or "all-linear" for all of them)"));
  EXPECT_THAT(adapter_complaint({"adapter.target_modules=.*attention"}), HasSubstr("no linear layer"));
  EXPECT_THAT(adapter_complaint({"adapter.target_modules=[]"}), HasSubstr("adapter.target_modules is empty"));
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["embed_tokens"])"}), HasSubstr("adapter.modules_to_save"));
}

// An output layer with a matrix of its own is a linear layer.
TEST(Adaptable, AnOutputLayerMayBeNamed) {
  std::vector<std::string> sets = kSmallLlama;
  sets.insert(sets.end(), {"adapter.kind=lora", R"(adapter.target_modules=["q_proj", "lm_head"])",
                           "adapter.layers_to_transform=[1]", R"(adapter.rank_pattern={"lm_head" = 2})"});
  EXPECT_EQ(tiny_job(sets, 1).model->trained_parameters(), 8 * (40 + 40) + 2 * (40 + 130));
  sets.emplace_back("adapter.dora=true");
  EXPECT_EQ(tiny_job(std::move(sets), 1).model->trained_parameters(), 8 * (40 + 40) + 2 * (40 + 130) + 40 + 130);
  EXPECT_THAT(adapter_complaint({R"(adapter.rank_pattern={"lm_head" = 2})"}), HasSubstr("has no adapter"));
}

// A name in modules_to_save is the end of a name, and one in target_modules is the end after a dot.
TEST(Adaptable, DoraNeedsFrozenMatrices) {
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["q_proj", "lm_head"])", "adapter.dora=true",
                                 R"(adapter.modules_to_save=["head"])"}),
              HasSubstr("modules_to_save trains all of lm_head, which adapter.target_modules also matches"));
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["down_proj"])", "adapter.dora=true",
                                 R"(adapter.modules_to_save=["wn_proj"])"}),
              HasSubstr("modules_to_save trains all of model.layers.0.mlp.down_proj, which"));
}

TEST(Adaptable, NearNamesAreListedOnce) {
  // Every block has each of them.
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["q_prj"])"}),
              testing::MatchesRegex(".*the nearest are q_proj, [kvo]_proj, [kvo]_proj"));
}

// A value that would be right in another form says which.
TEST(Adaptable, TheFormOfTheTargetsIsNamed) {
  EXPECT_THAT(adapter_complaint({"adapter.target_modules=q_proj"}),
              HasSubstr(R"(adapter.target_modules = ["q_proj"])"));
  EXPECT_THAT(adapter_complaint({"adapter.target_modules=q_proj, v_proj"}), HasSubstr(R"(= ["q_proj", "v_proj"])"));
  EXPECT_THAT(adapter_complaint({"adapter.target_modules=all"}),
              HasSubstr("to adapt every linear layer, write \"all-linear\""));
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["all-linear"])"}), HasSubstr("without brackets"));
}

TEST(Adaptable, ATiedTableIsTrainedUnderBothNames) {
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["lm_head"])"}, kSmallGpt2),
              AllOf(HasSubstr("lm_head, which is tied to transformer.wte"), HasSubstr("tie_word_embeddings = false"),
                    HasSubstr(R"((adapter.modules_to_save = ["wte"], with adapter.ensure_weight_tying = true))"),
                    EndsWith("untie the model first: model.config.tie_word_embeddings = false")));
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["wte"])"}, kSmallGpt2),
              HasSubstr(R"(["wte"], with adapter.ensure_weight_tying = true)"));
  EXPECT_THAT(adapter_complaint({R"(adapter.modules_to_save=["wte"])"}, kSmallGpt2),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("adapter.ensure_weight_tying = true")));
  EXPECT_THAT(
      adapter_complaint({R"(adapter.modules_to_save=["lm_head"])", "adapter.ensure_weight_tying=true"}, kSmallGpt2),
      HasSubstr("lm_head has no table of its own, because it is tied to transformer.wte: name that module instead"));
}

TEST(Adaptable, OtherNamesMustBeOfModules) {
  EXPECT_THAT(adapter_complaint({R"(adapter.modules_to_save=["clasifier"])"}), HasSubstr("no module"));
  EXPECT_THAT(adapter_complaint({R"(adapter.exclude_modules=["q_prj"])"}),
              AllOf(HasSubstr("q_prj"), HasSubstr("q_proj")));
  EXPECT_THAT(adapter_complaint({"adapter.exclude_modules=q_proj"}),
              AllOf(HasSubstr("regular expression that must match complete names"),
                    HasSubstr(R"(exclude_modules = ["q_proj"])")));
  EXPECT_THAT(adapter_complaint({"adapter.exclude_modules=all"}), HasSubstr("adapter.exclude_modules: no module"));
  EXPECT_THAT(adapter_complaint({R"(adapter.exclude_modules=".*_prj")"}),
              HasSubstr("adapter.exclude_modules: no module"));
  EXPECT_THAT(adapter_complaint({"adapter.exclude_modules=all-linear"}),
              HasSubstr("only adapter.target_modules takes this value"));
}

TEST(Adaptable, PatternsOfRanksMustBeOfAdaptedLayers) {
  EXPECT_THAT(adapter_complaint({R"(adapter.rank_pattern={"q_prj" = 4})"}),
              AllOf(HasSubstr("q_prj"), HasSubstr("q_proj")));
  EXPECT_THAT(adapter_complaint({R"(adapter.alpha_pattern={"v_prj" = 4})"}),
              AllOf(HasSubstr("v_prj"), HasSubstr("v_proj")));
  EXPECT_THAT(adapter_complaint({R"(adapter.rank_pattern={"q_proj" = 4})", R"(adapter.target_modules=["k_proj"])"}),
              HasSubstr("has no adapter"));
}

// As in peft, which has no limit. But a rank above every layer's width is a mistake.
TEST(Adaptable, ARankAboveALayersWidthIsNoted) {
  const auto notes = [](const std::vector<std::string>& keys) {
    std::vector<std::string> sets = kSmallLlama;
    sets.insert(sets.end(), {"adapter.kind=lora", R"(adapter.target_modules=["q_proj", "k_proj"])"});
    sets.insert(sets.end(), keys.begin(), keys.end());
    return tiny_job(std::move(sets), 1).notes;
  };
  EXPECT_THAT(notes({"adapter.rank=9"}),
              Contains(AllOf(HasSubstr("rank 9 is above the width 8 of model.layers.0.self_attn.k_proj"),
                             HasSubstr("(and that of 2 more layers)"))));
  EXPECT_THAT(notes({R"(adapter.rank_pattern={"1.self_attn.k_proj" = 9})"}),
              Contains(HasSubstr("rank 9 is above the width 8 of model.layers.1.self_attn.k_proj, but B A")));
  EXPECT_THAT(notes({"adapter.rank=8"}), Not(Contains(HasSubstr("above the width"))));
  EXPECT_THAT(
      adapter_complaint({R"(adapter.target_modules=["q_proj", "k_proj"])", "adapter.rank=41"}),
      HasSubstr("rank 41 is above the width 40 of model.layers.0.self_attn.q_proj, and all layers are narrower"));
}

TEST(Adaptable, LayersMustBeOfTheModel) {
  EXPECT_THAT(adapter_complaint({R"(adapter.target_modules=["q_proj"])", "adapter.layers_to_transform=[0, 3]"}),
              HasSubstr("no layer 3: its layers are 0 to 2"));
}

TEST(Adaptable, SomethingMustBeLeftToTrain) {
  EXPECT_THAT(adapter_complaint({R"(adapter.exclude_modules=".*")"}), HasSubstr("no target left"));
  const std::string other = (tests::source_dir() / "tests/golden/adapters/gpt2/adapter").string();
  EXPECT_THAT(adapter_complaint({"adapter.path=" + other}),
              AllOf(HasSubstr("an adapter of another model"), HasSubstr("q_proj")));
}

TEST(Freezable, APatternWithoutAMatchNamesTheNearestTensors) {
  const auto refused = [](const std::string& freeze) {
    return complaint_about(kSmallLlama, {"training.freeze=" + freeze});
  };
  EXPECT_THAT(refused(R"("model.embed_token.weight")"), HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(refused(R"(["model.norm.*", "*.h.0.*"])"),
              AllOf(HasSubstr("like *.h.0.*"), HasSubstr("the nearest are model.layers.*.")));
  const std::string projections = "the nearest are model.layers.*.self_attn.q_proj.weight, ";
  EXPECT_THAT(refused("*q_prj*"), HasSubstr(projections));
  EXPECT_THAT(refused("model.layers.[0-2].self_atn.q_proj.*"), HasSubstr(projections));
  EXPECT_THAT(refused("*embed_token.weigh?"), HasSubstr("the nearest are model.embed_tokens.weight, "));
  EXPECT_THAT(refused("mlp.up_pro.*"), HasSubstr("the nearest are model.layers.*.mlp.up_proj.weight"))
      << "the name begins with more";
  EXPECT_THAT(refused("*.q_prj"), HasSubstr("the nearest are model.layers.*.self_attn.q_proj.weight"))
      << "the name ends with more";
  EXPECT_THAT(refused(R"(["model.*", ""])"), HasSubstr("training.freeze"));
}

TEST(Freezable, SomethingMustBeLeftToTrain) {
  EXPECT_THAT(complaint_about(kSmallLlama, {R"(training.freeze="*")"}), HasSubstr("nothing would be trained"));
}

// A table that two units share may be frozen under its second name.
TEST(Freezable, ASharedTensorHasTwoNames) {
  std::vector<std::string> sets = kSmallGpt2;
  sets.emplace_back(R"(training.freeze="lm_head.weight")");
  const Job job = tiny_job(std::move(sets), 1);
  EXPECT_LT(job.model->trained_parameters(), job.model->parameters());
}

TEST(Quantised, FrozenFormatNeedsFrozenMatrices) {
  EXPECT_THAT(complaint_about({"model.preset=tiny-llama"}, {"model.frozen_format=nf4"}),
              HasSubstr("nothing is frozen"));
  EXPECT_THAT(complaint_about({"model.preset=tiny-llama"}, {"model.frozen_format=nf4", "training.freeze=*norm*"}),
              HasSubstr("none of them is"));
}

TEST(Quantised, MatricesStoredInFourBitsAreNotFullyTrained) {
  const std::string model = (tests::source_dir() / "tests/golden/nf4/llama/model").string();
  const std::vector<std::string> sets = {"model.path=" + model, "data.seq_len=16", "training.max_steps=1"};
  const auto job = [&](std::vector<std::string> keys) {
    keys.insert(keys.begin(), sets.begin(), sets.end());
    const Recipe recipe = load_recipe({}, keys);
    return make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
  };
  EXPECT_FAILURE(job({"adapter.kind=lora", R"(adapter.modules_to_save=["q_proj"])"}), Exit::usage,
                 AllOf(HasSubstr("q_proj"), HasSubstr("4 bits")));
  // A full training run reports what it trains.
  EXPECT_THAT(job({}).notes, Contains(HasSubstr("18672 of 54000 parameters are trained")));
  EXPECT_THAT(job({"adapter.kind=lora"}).notes, Not(Contains(HasSubstr("4 bits"))));
}

}  // namespace
}  // namespace strata::runtime
