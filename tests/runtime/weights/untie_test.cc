#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "models/files/safetensors.h"
#include "models/model.h"
#include "runtime/weights/tensor_match.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using models::Objective;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class UntieTest : public testing::Test {
 protected:
  // Tensors of two by four elements with a single value.
  void write(const std::vector<std::pair<std::string, float>>& tensors) {
    std::vector<models::TensorSpec> specs;
    for (const auto& [name, value] : tensors) specs.push_back({name, device::DType::fp32, {2, 4}});
    std::string file = models::safetensors_header(specs);
    for (const auto& [name, value] : tensors) {
      const std::vector<float> values(8, value);
      file.append(reinterpret_cast<const char*>(values.data()), specs[0].bytes());
    }
    folder_.write("model.safetensors", file);
  }
  models::Config untied(const std::string& more = "", std::optional<Objective> objective = {}) const {
    auto config = models::Config::parse(
        R"({"model_type":"gpt2","n_embd":4,"n_head":2,"n_layer":1,"n_positions":4,"vocab_size":2)" + more + "}",
        "config.json");
    untie_if_different(config, folder_.path(), objective);
    return config;
  }

  tests::ScratchFolder folder_;
};

TEST_F(UntieTest, ReadsDifferentTablesSeparately) {
  write({{"transformer.wte.weight", 1}, {"lm_head.weight", 2}});
  const models::Config config = untied();
  EXPECT_FALSE(config.bool_or("tie_word_embeddings", true));
  EXPECT_THAT(config.notes(), ElementsAre(AllOf(HasSubstr("lm_head.weight differs from transformer.wte.weight"),
                                                HasSubstr("as in transformers"))));
  EXPECT_FALSE(untied(R"(,"tie_word_embeddings":true)").bool_or("tie_word_embeddings", true));
  write({{"wte.weight", 1}, {"lm_head.weight", 2}});  // of a model without a head, to which somebody added one
  EXPECT_FALSE(untied().bool_or("tie_word_embeddings", true));
}

TEST_F(UntieTest, KeepsEqualTablesTied) {
  for (const auto& tensors :
       std::vector<std::vector<std::pair<std::string, float>>>{{{"transformer.wte.weight", 1}, {"lm_head.weight", 1}},
                                                               {{"transformer.wte.weight", 1}, {"head.weight", 2}},
                                                               {{"lm_head.weight", 1}}}) {
    write(tensors);
    EXPECT_TRUE(untied().bool_or("tie_word_embeddings", true)) << tensors.back().first;
    EXPECT_THAT(untied().notes(), IsEmpty());
  }
}

TEST_F(UntieTest, DoesNotCompareUnreadTables) {
  write({{"transformer.wte.weight", 1}, {"lm_head.weight", 2}});
  EXPECT_TRUE(untied("", Objective::sequence_classification).bool_or("tie_word_embeddings", true));
  EXPECT_THAT(untied(R"(,"tie_word_embeddings":false)").notes(), IsEmpty());
  folder_.write("model.safetensors", "broken");
  EXPECT_TRUE(untied().bool_or("tie_word_embeddings", true));
}

// The key alone would be refused if the file lacks one of the two names.
TEST_F(UntieTest, SaysHowToUntie) {
  const auto model = models::make_model(untied(), {1, 1, device::DType::fp32, 1});
  const std::string key = "model.config.tie_word_embeddings = false";
  EXPECT_EQ(how_to_untie(*model, {}), key);
  EXPECT_EQ(how_to_untie(*model, folder_.path()), key) << "without a file";
  for (const char* table : {"wte.weight", "transformer.wte.weight"}) {
    write({{table, 1}, {"lm_head.weight", 1}});
    EXPECT_EQ(how_to_untie(*model, folder_.path()), key);
    write({{table, 1}});
    EXPECT_EQ(how_to_untie(*model, folder_.path()), command_to_untie(folder_.path()));
  }
  write({{"lm_head.weight", 1}});
  EXPECT_EQ(how_to_untie(*model, folder_.path()), command_to_untie(folder_.path()));
  EXPECT_THAT(command_to_untie(folder_.path()), HasSubstr("copytree(argv[1], argv[2]")) << "with the tokenizer's files";
}

TEST_F(UntieTest, SaysHowToUntieAnEncoder) {
  const auto config = models::Config::parse(
      R"({"model_type":"bert","hidden_size":4,"num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":8,
          "max_position_embeddings":4,"vocab_size":2})",
      "config.json");
  models::RunShape shape{1, 1, device::DType::fp32, 1};
  shape.objective = Objective::masked_lm;
  const auto model = models::make_model(config, shape);
  write({{"bert.embeddings.word_embeddings.weight", 1}});
  EXPECT_EQ(how_to_untie(*model, folder_.path()), command_to_untie(folder_.path(), true));
  EXPECT_THAT(command_to_untie(folder_.path(), true), HasSubstr("AutoModelForMaskedLM"));
  write({{"bert.embeddings.word_embeddings.weight", 1}, {"cls.predictions.decoder.weight", 1}});
  EXPECT_EQ(how_to_untie(*model, folder_.path()), "model.config.tie_word_embeddings = false");
}

}  // namespace
}  // namespace strata::runtime
