// Documents that share a sequence do not affect each other in complete models.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tests/models/packed_learning.h"
#include "tests/models/reference.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Buffer;
using testing::Columns;
using testing::Doubles;
using testing::Learnt;

// Sets the same parameters for any sequence.
Learnt learn(const std::string& json, const Columns& columns, DType dtype = DType::fp32) {
  std::mt19937_64 random(3);
  const auto fill = [&](const Unit& unit, Buffer& flat) {
    for (const Parameter& p : unit.parameters())
      for (std::size_t i = 0; i < p.size(); ++i)
        flat.set(p.offset + i, (p.init.deviation > 0 ? 0 : static_cast<double>(p.init.constant)) +
                                   std::normal_distribution<double>(0, 0.2)(random));
  };
  return testing::learn(Config::parse(json, "config.json"), columns, 0.125f, fill, dtype);
}

class DocumentsTest : public ::testing::TestWithParam<const char*> {};

// fp32 sums are grouped differently, which changes a few units in their last place: 1e-6 of a gradient's norm.
TEST_P(DocumentsTest, ASequenceLearnsLikeItsSeparateDocuments) {
  std::mt19937_64 random(7);
  Columns packed;
  for (const std::size_t length : {5, 70, 1, 2, 40}) packed.add_document(length, random);
  packed.add_leftover(10);
  const Learnt together = learn(GetParam(), packed);
  double loss = 0;
  Doubles sum(together.all().size());
  for (std::size_t row = 0; row < packed.documents.size(); ++row) {
    if (packed.documents[row].end == 0 || packed.documents[row].first != row) continue;
    const Learnt alone = learn(GetParam(), packed.alone(row));
    loss += alone.loss;
    sum = testing::sum(std::move(sum), alone.all());
  }
  EXPECT_GT(loss, 1);
  EXPECT_NEAR(together.loss, loss, 1e-6 * loss);
  EXPECT_LT(testing::relative_error(together.all(), sum), 2e-6);
}

// The forward of a document, alone at the start of an otherwise empty sequence, and next to others.
TEST_P(DocumentsTest, ForwardBitsDoNotDependOnADocumentsPlace) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    std::mt19937_64 random(7);
    Columns packed;
    for (const std::size_t length : {5, 70, 1, 42}) packed.add_document(length, random);
    packed.add_leftover(10);
    const Learnt together = learn(GetParam(), packed, dtype);
    const std::size_t hidden = together.hidden.size() / packed.tokens.size();
    for (std::size_t row = 0; row < packed.documents.size(); ++row) {
      if (packed.documents[row].end == 0 || packed.documents[row].first != row) continue;
      Columns front = packed.alone(row);
      const std::size_t rows = front.tokens.size();
      front.add_leftover(packed.tokens.size() - rows);
      const Doubles alone = learn(GetParam(), front, dtype).hidden;
      const auto from = together.hidden.begin() + static_cast<std::ptrdiff_t>(row * hidden);
      EXPECT_TRUE(std::equal(from, from + static_cast<std::ptrdiff_t>(rows * hidden), alone.begin()))
          << name_of(dtype) << ", the document at row " << row;
    }
  }
}

// Neither the contents of leftover rows nor a document's neighbours change a bit of its gradients.
TEST_P(DocumentsTest, RowsOutsideDocumentsHaveNoEffect) {
  std::mt19937_64 random(7);
  Columns packed;
  for (const std::size_t length : {33, 70}) packed.add_document(length, random);
  packed.add_leftover(9);
  Columns other = packed;
  for (std::size_t i = 103; i < 112; ++i) other.tokens[i] = 7;
  const Learnt once = learn(GetParam(), packed), again = learn(GetParam(), other);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_EQ(once.gradients, again.gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Families, DocumentsTest,
    ::testing::Values(
        R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":2,"n_positions":128,"vocab_size":50,
            "resid_pdrop":0,"attn_pdrop":0,"embd_pdrop":0})",
        R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":10,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":128,"vocab_size":50})",
        R"({"model_type":"mistral","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":128,"vocab_size":50,
            "sliding_window":20})",
        R"({"model_type":"qwen3","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":128,"vocab_size":50,
            "sliding_window":20,"use_sliding_window":true,"max_window_layers":1})",
        R"({"model_type":"bert","hidden_size":36,"num_attention_heads":3,"intermediate_size":48,"num_hidden_layers":2,
            "max_position_embeddings":128,"vocab_size":50,"hidden_dropout_prob":0,"attention_probs_dropout_prob":0})",
        R"({"model_type":"roberta","hidden_size":36,"num_attention_heads":3,"intermediate_size":48,
            "num_hidden_layers":2,"max_position_embeddings":130,"type_vocab_size":1,"pad_token_id":1,"vocab_size":50,
            "hidden_dropout_prob":0,"attention_probs_dropout_prob":0})",
        R"({"model_type":"distilbert","dim":36,"n_heads":3,"hidden_dim":48,"n_layers":2,"dropout":0,
            "attention_dropout":0,"max_position_embeddings":128,"vocab_size":50})"));

}  // namespace
}  // namespace strata::models
