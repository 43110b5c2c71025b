// Compares encoders with transformers. tests/golden/make_encoders.py describes the folders.
#include "models/families/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "tests/failure.h"
#include "tests/models/families/tiny_model.h"
#include "tests/models/recorded.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using testing::describe;
using testing::Doubles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Learnt;
using testing::make;
using testing::Recorded;
using testing::shared_by;
using testing::tiny;

class EncoderTest : public ::testing::TestWithParam<const char*> {
 protected:
  const Recorded recorded_{GetParam()};
};

TEST_P(EncoderTest, MatchesTransformers) {
  const Learnt learnt = recorded_.learn(recorded_.packed(0, 64));
  recorded_.expect_loss(learnt.loss);
  // The table's gradient is the sum of the embedding's and the head's.
  std::map<std::string, Doubles> gradients(learnt.gradients.begin(), learnt.gradients.end());
  Doubles& table = gradients.at(learnt.gradients.front().first);
  table = testing::sum(std::move(table), gradients.at("shared"));
  gradients.erase("shared");
  recorded_.expect_gradients(gradients, testing::norm_of(table), 5);  // besides tokens, labels, types, lengths, loss
}

TEST_P(EncoderTest, ResultsDoNotDependOnADocumentsPlace) {
  const Learnt here = recorded_.learn(recorded_.packed(0, 57)), there = recorded_.learn(recorded_.packed(7, 64));
  EXPECT_NEAR(here.loss, there.loss, 1e-7 * here.loss);
  EXPECT_LT(testing::relative_error(here.all(), there.all()), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderTest, ::testing::Values("bert", "roberta", "distilbert", "modernbert"),
                         [](const auto& each) { return std::string(each.param); });

TEST(EncoderFamiliesTest, BertHasTheParametersOfTransformers) {
  const auto model = make(tiny("bert"), {{"architectures", R"(["BertForMaskedLM"])"}});
  ASSERT_EQ(model->units.size(), 5u);
  EXPECT_THAT(describe(*model->units[0]),
              ElementsAre("bert.embeddings.word_embeddings.weight 50x32 normal(0.02) decay",
                          "bert.embeddings.position_embeddings.weight 24x32 normal(0.02) decay",
                          "bert.embeddings.token_type_embeddings.weight 2x32 normal(0.02) decay"));
  EXPECT_THAT(describe(*model->units[1]),
              ElementsAre("bert.embeddings.LayerNorm.weight 32 1 -", "bert.embeddings.LayerNorm.bias 32 0 -"));
  const std::string p = "bert.encoder.layer.1.";
  EXPECT_THAT(
      describe(*model->units[3]),
      ElementsAre(p + "attention.self.query.weight 32x32 normal(0.02) decay",
                  p + "attention.self.key.weight 32x32 normal(0.02) decay",
                  p + "attention.self.value.weight 32x32 normal(0.02) decay", p + "attention.self.query.bias 32 0 -",
                  p + "attention.self.key.bias 32 0 -", p + "attention.self.value.bias 32 0 -",
                  p + "attention.output.dense.weight 32x32 normal(0.02) decay",
                  p + "attention.output.dense.bias 32 0 -", p + "attention.output.LayerNorm.weight 32 1 -",
                  p + "attention.output.LayerNorm.bias 32 0 -",
                  p + "intermediate.dense.weight 48x32 normal(0.02) decay", p + "intermediate.dense.bias 48 0 -",
                  p + "output.dense.weight 32x48 normal(0.02) decay", p + "output.dense.bias 32 0 -",
                  p + "output.LayerNorm.weight 32 1 -", p + "output.LayerNorm.bias 32 0 -"));
  EXPECT_THAT(describe(*model->units[4]),
              ElementsAre("cls.predictions.transform.LayerNorm.weight 32 1 -",
                          "cls.predictions.transform.LayerNorm.bias 32 0 -", "cls.predictions.bias 50 0 -",
                          "cls.predictions.transform.dense.weight 32x32 normal(0.02) decay",
                          "cls.predictions.transform.dense.bias 32 0 -"));
  EXPECT_EQ(shared_by(model->loss_unit()), "cls.predictions.decoder.weight: 0 0 [0, 4096)");
  EXPECT_EQ(model->optional_prefix, "bert.");
  EXPECT_EQ(model->family, "bert");

  const auto untied = make(tiny("bert"), {{"tie_word_embeddings", "false"}});
  EXPECT_EQ(shared_by(untied->loss_unit()), "none");
  EXPECT_EQ(describe(*untied->units.back()).back(), "cls.predictions.decoder.weight 50x32 normal(0.02) decay");
}

TEST(EncoderFamiliesTest, RobertasPositionsStartAfterThePadding) {
  for (const char* family : {"roberta", "xlm-roberta"}) {
    const auto model = make(tiny(family));
    EXPECT_EQ(model->family, family);
    EXPECT_EQ(model->max_positions, 22u);
    EXPECT_EQ(describe(*model->units[0])[1], "roberta.embeddings.position_embeddings.weight 24x32 normal(0.02) decay");
    EXPECT_EQ(describe(*model->units[3])[0],
              "roberta.encoder.layer.1.attention.self.query.weight 32x32 normal(0.02) decay");
    EXPECT_THAT(describe(*model->units[4]),
                ElementsAre("lm_head.layer_norm.weight 32 1 -", "lm_head.layer_norm.bias 32 0 -", "lm_head.bias 50 0 -",
                            "lm_head.dense.weight 32x32 normal(0.02) decay", "lm_head.dense.bias 32 0 -"));
    EXPECT_EQ(shared_by(model->loss_unit()), "lm_head.decoder.weight: 0 0 [0, 4096)");
    EXPECT_EQ(make(tiny(family), {{"pad_token_id", "4"}})->max_positions, 19u);
    EXPECT_FAILURE(make(tiny(family), {{"pad_token_id", "23"}}), Exit::usage,
                   AllOf(HasSubstr("pad_token_id is 23"), HasSubstr("max_position_embeddings=24")));
    EXPECT_FAILURE(make(tiny(family), {}, 23), Exit::usage, AllOf(HasSubstr("data.seq_len is 23"), HasSubstr("22")));
  }
}

TEST(EncoderFamiliesTest, DistilBertHasTheParametersOfTransformers) {
  const auto model = make(tiny("distilbert"));
  ASSERT_EQ(model->units.size(), 5u);
  EXPECT_THAT(describe(*model->units[0]),
              ElementsAre("distilbert.embeddings.word_embeddings.weight 50x32 normal(0.02) decay",
                          "distilbert.embeddings.position_embeddings.weight 24x32 normal(0.02) decay"));
  const std::string p = "distilbert.transformer.layer.0.";
  EXPECT_THAT(describe(*model->units[2]),
              ElementsAre(p + "attention.q_lin.weight 32x32 normal(0.02) decay",
                          p + "attention.k_lin.weight 32x32 normal(0.02) decay",
                          p + "attention.v_lin.weight 32x32 normal(0.02) decay", p + "attention.q_lin.bias 32 0 -",
                          p + "attention.k_lin.bias 32 0 -", p + "attention.v_lin.bias 32 0 -",
                          p + "attention.out_lin.weight 32x32 normal(0.02) decay", p + "attention.out_lin.bias 32 0 -",
                          p + "sa_layer_norm.weight 32 1 -", p + "sa_layer_norm.bias 32 0 -",
                          p + "ffn.lin1.weight 48x32 normal(0.02) decay", p + "ffn.lin1.bias 48 0 -",
                          p + "ffn.lin2.weight 32x48 normal(0.02) decay", p + "ffn.lin2.bias 32 0 -",
                          p + "output_layer_norm.weight 32 1 -", p + "output_layer_norm.bias 32 0 -"));
  EXPECT_THAT(
      describe(*model->units[4]),
      ElementsAre("vocab_layer_norm.weight 32 1 -", "vocab_layer_norm.bias 32 0 -", "vocab_projector.bias 50 0 -",
                  "vocab_transform.weight 32x32 normal(0.02) decay", "vocab_transform.bias 32 0 -"));
  EXPECT_EQ(shared_by(model->loss_unit()), "vocab_projector.weight: 0 0 [0, 4096)");
}

TEST(EncoderFamiliesTest, RefuseUnsupportedKeysByName) {
  const auto refused = [](const std::string& family, const std::string& key, const std::string& value,
                          const std::string& words) {
    SCOPED_TRACE(family + " " + key);
    EXPECT_FAILURE(make(tiny(family), {{key, value}}), Exit::usage, AllOf(HasSubstr(key), HasSubstr(words)));
  };
  for (const char* family : {"bert", "roberta", "xlm-roberta"}) {
    refused(family, "hidden_act", "\"gelu_new\"", "gelu_new\", which is not supported");
    refused(family, "position_embedding_type", "\"relative_key\"", "relative positions");
    refused(family, "is_decoder", "true", "only false");
    refused(family, "add_cross_attention", "true", "cross-attention");
    refused(family, "num_attention_heads", "5", "hidden_size=32");
    refused(family, "hidden_dropout_prob", "1.0", "below 1");
    refused(family, "attention_probs_dropout_prob", "-0.5", "at least 0");
    refused(family, "logit_softcap", "30.0", "soft cap");
  }
  refused("distilbert", "activation", "\"relu\"", "gelu");
  refused("distilbert", "n_heads", "5", "dim=32");
  refused("distilbert", "logit_softcap", "30.0", "soft cap");
  // In transformers 5, such a table is trained like any other.
  const Config sines = Config::parse(tiny("distilbert"), "config.json");
  Config given = sines;
  given.override_key("sinusoidal_pos_embds", "true");
  testing::expect_same(*make_model(sines, {1, 8, device::DType::fp32, 1}),
                       *make_model(given, {1, 8, device::DType::fp32, 1}));
  EXPECT_THAT(given.notes(), ::testing::Contains(HasSubstr("trained, as in transformers 5")));
  // A head that is not supported is refused by name.
  refused("bert", "architectures", R"(["BertForQuestionAnswering"])", "BertForQuestionAnswering, whose head");
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    const Config config = Config::parse(tiny(family), "config.json");
    RunShape run{1, 1, device::DType::fp32, 1, false};
    run.cache = 8;
    EXPECT_FAILURE(make_model(config, run), Exit::usage, HasSubstr("does not generate"));
  }
}

}  // namespace
}  // namespace strata::models
