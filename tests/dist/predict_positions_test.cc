// Texts with up to, and with more than, the number of tokens for which a classifier has positions.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "base/error.h"
#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PredictPositions : public ClassifierCase {};

// The model says for how many tokens it has positions: RoBERTa's start after the padding token.
TEST_F(PredictPositions, UsesTheModelsNumberOfPositions) {
  folder_.write("bert/config.json",
                R"({"model_type": "roberta", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                    "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 900, "type_vocab_size": 2,
                    "pad_token_id": 9})");
  learn("one", {"--labels", "label"}, {"data.seq_len=30"});
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "out.jsonl", {"--max-length", "31"})), Exit::usage,
                   AllOf(HasSubstr("--max-length 31"), HasSubstr("above the 30 positions of ")));
  const auto all = predicted("one", {"--max-length", "30"});
  EXPECT_EQ(predicted("one"), all) << "as many as exist, if no number is given";
  folder_.write("bert/config.json",
                R"({"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 24,
                    "vocab_size": 900})");
  learn("last", {"--labels", "label"}, {"data.seq_len=24"});
  EXPECT_COMPLAINT(run(asked("last", "texts.jsonl", "other.jsonl", {"--max-length", "25"})), Exit::usage,
                   HasSubstr("above the 24 positions of "));
}

// Without --max-length nothing is truncated.
TEST_F(PredictPositions, RefusesLongerTexts) {
  std::string text = "good";
  for (int i = 0; i < 60; ++i) text += " film";
  folder_.write("long.jsonl", lines_[0] + "\n" + fmt::format(R"({{"text": "{}", "label": "?"}})", text) + "\n");
  tokenize("long", {"--labels", "label"}, "long.jsonl");
  EXPECT_COMPLAINT(
      run(command("train", "long")), Exit::usage,
      AllOf(HasSubstr("long.bin: document 2 has 184 tokens, more than data.seq_len"), HasSubstr("--max-length")));
  EXPECT_COMPLAINT(run(command("train", "long", {"data.seq_len=200"})), Exit::usage,
                   AllOf(HasSubstr("data.seq_len is 200"), HasSubstr("positions for only 40 tokens")));
  const Outcome cut = run({kStrata, "tokenize", "--tokenizer", file("bert"), "-o", file("cut.bin"), "--labels", "label",
                           "--max-length", "40", "--truncation", "do_not_truncate", file("long.jsonl")});
  EXPECT_NE(cut.code, 0);
  EXPECT_THAT(cut.all(), AllOf(HasSubstr("long.jsonl, line 2"), HasSubstr("184 tokens"), HasSubstr("cuts nothing")));
}

}  // namespace
}  // namespace strata::tests
