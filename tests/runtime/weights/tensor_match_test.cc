#include "runtime/weights/tensor_match.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "models/files/config.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::unique_ptr<models::Model> bert(models::Objective objective) {
  models::RunShape shape{1, 4, device::DType::fp32, 1};
  shape.objective = objective;
  return models::make_model(
      models::Config::parse(R"({"model_type":"bert","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
                                "intermediate_size":8,"max_position_embeddings":4,"vocab_size":5,"type_vocab_size":2,
                                "id2label":{"0":"a","1":"b"}})",
                            "config.json"),
      shape);
}

std::vector<std::string> names_of(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& unit : model.units)
    for (const models::Parameter& parameter : unit->parameters()) names.push_back(parameter.name);
  return names;
}

std::size_t read(const TensorMatch& match) {
  std::size_t count = 0;
  for (const auto& places : match.places)
    for (const auto& place : places) count += place.has_value();
  return count;
}

TEST(TensorMatchTest, FindsTensorsInAnyOrder) {
  const auto model = bert(models::Objective::masked_lm);
  auto names = names_of(*model);
  std::reverse(names.begin(), names.end());
  const TensorMatch match = match_tensors(*model, names, false);
  EXPECT_EQ(read(match), names.size());
  EXPECT_EQ(names[*match.places[0][0]], model->units[0]->parameters()[0].name);
  EXPECT_THAT(match.initialised, IsEmpty());
  EXPECT_THAT(match.missing, IsEmpty());
  EXPECT_THAT(match.unknown, IsEmpty());
}

TEST(TensorMatchTest, TheOutputBiasHasTwoNames) {
  const auto model = bert(models::Objective::masked_lm);
  auto names = names_of(*model);
  const auto bias = std::find(names.begin(), names.end(), "cls.predictions.bias");
  ASSERT_NE(bias, names.end());
  *bias = "cls.predictions.decoder.bias";
  TensorMatch match = match_tensors(*model, names, false);
  EXPECT_EQ(read(match), names.size());
  EXPECT_THAT(match.initialised, IsEmpty());
  EXPECT_THAT(match.unknown, IsEmpty());
  // If both exist, the decoder's is used, in any order.
  names.emplace_back("cls.predictions.bias");
  for (int order = 0; order < 2; ++order) {
    match = match_tensors(*model, names, false);
    EXPECT_EQ(read(match), names.size() - 1);
    ASSERT_THAT(match.left_out, testing::SizeIs(1));
    EXPECT_EQ(names[match.left_out[0]], "cls.predictions.bias");
    std::reverse(names.begin(), names.end());
  }
}

// Of a tied table, safetensors.torch.save_model() may keep only the output layer's name.
TEST(TensorMatchTest, ATiedTableHasTwoNames) {
  for (const char* config :
       {R"({"model_type":"bert","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":8,
            "max_position_embeddings":4,"vocab_size":5,"type_vocab_size":2})",
        R"({"model_type":"roberta","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":8,
            "max_position_embeddings":8,"vocab_size":5,"type_vocab_size":1,"pad_token_id":1})",
        R"({"model_type":"modernbert","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
            "intermediate_size":8,"max_position_embeddings":4,"vocab_size":5})",
        R"({"model_type":"gpt2","n_embd":4,"n_head":2,"n_layer":1,"n_positions":4,"vocab_size":2})",
        R"({"model_type":"llama","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":8,
            "max_position_embeddings":4,"vocab_size":5,"tie_word_embeddings":true})"}) {
    const auto model = models::make_model(models::Config::parse(config, "config.json"), {1, 4, device::DType::fp32, 1});
    const auto& shared = model->units.back()->shared();
    ASSERT_TRUE(shared) << config;
    auto names = names_of(*model);
    const std::string table = model->units[shared->unit]->parameters()[shared->parameter].name;
    const auto place = std::ranges::find(names, table);
    ASSERT_NE(place, names.end()) << table;
    *place = shared->name;
    TensorMatch match = match_tensors(*model, names, false);
    EXPECT_EQ(match.places[shared->unit][shared->parameter], place - names.begin());
    EXPECT_THAT(match.missing, IsEmpty()) << config;
    EXPECT_THAT(match.unknown, IsEmpty()) << config;
    *place = "another";
    EXPECT_THAT(match_tensors(*model, names, false).missing, ElementsAre(table));
    // With both names, the table's own is read.
    *place = table;
    names.push_back(shared->name);
    match = match_tensors(*model, names, false);
    EXPECT_EQ(names[*match.places[shared->unit][shared->parameter]], table);
  }
}

TEST(TensorMatchTest, OmitsAnotherObjectivesHeadAndInitialisesItsOwn) {
  const auto model = bert(models::Objective::sequence_classification);
  auto names = names_of(*bert(models::Objective::masked_lm));
  names.emplace_back("encoder.of.another");
  const TensorMatch match = match_tensors(*model, names, false);
  EXPECT_THAT(match.initialised, ElementsAre("bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight",
                                             "classifier.bias"));
  EXPECT_THAT(match.missing, IsEmpty());
  ASSERT_FALSE(match.left_out.empty());
  for (const std::size_t i : match.left_out) EXPECT_THAT(names[i], testing::StartsWith("cls.predictions."));
  EXPECT_THAT(match.unknown, ElementsAre(names.size() - 1));
}

// Tensors outside the head must exist. Tensors that a new head replaces are neither read nor unknown.
TEST(TensorMatchTest, MissingAndNew) {
  const auto model = bert(models::Objective::sequence_classification);
  auto names = names_of(*model);
  const std::string first = names.front();
  names.erase(names.begin());
  EXPECT_THAT(match_tensors(*model, names, false).missing, ElementsAre(first));
  const TensorMatch reinitialised = match_tensors(*model, names_of(*model), true);
  EXPECT_THAT(reinitialised.initialised, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(reinitialised.unknown, IsEmpty());
  EXPECT_THAT(reinitialised.left_out, IsEmpty());
}

// Names may lack the body's prefix, as in a stored BertModel, and norms may have their TensorFlow names.
TEST(TensorMatchTest, OtherSpellings) {
  const auto model = bert(models::Objective::masked_lm);
  auto names = names_of(*model);
  for (std::string& name : names) {
    if (name.starts_with("bert.")) name.erase(0, 5);
    if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
  }
  const TensorMatch match = match_tensors(*model, names, false);
  EXPECT_EQ(read(match), names.size());
  EXPECT_THAT(match.unknown, IsEmpty());
}

TEST(TensorMatchTest, PrefixesOfWrappers) {
  const std::vector<std::string> compiled{"_orig_mod.wte.weight", "_orig_mod.h.0.attn.weight"};
  EXPECT_EQ(prefix_of_wrapper(compiled, "wte.weight"), "_orig_mod.");
  EXPECT_EQ(prefix_of_wrapper(compiled, "lm_head.weight"), "");
  EXPECT_EQ(prefix_of_wrapper(std::vector<std::string>{"module.wte.weight", "other"}, "wte.weight"), "");
  EXPECT_EQ(prefix_of_wrapper(std::vector<std::string>{"wte.weight", "wte.bias"}, "wte.weight"), "");
}

TEST(TensorMatchTest, LayersAreMatrices) {
  EXPECT_EQ(layer_of("bert.pooler.dense.weight", 2), "bert.pooler.dense");
  for (const auto& [name, dimensions] : {std::pair{"bert.pooler.dense.bias", 1}, {"norm.weight", 1}, {"ids", 2}})
    EXPECT_EQ(layer_of(name, static_cast<std::size_t>(dimensions)), std::nullopt) << name;
}

}  // namespace
}  // namespace strata::runtime
