#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/inspect/inspect.h"

namespace strata::launcher {
namespace {

std::string of_model(const std::string& more) {
  return classes_line(models::Config::parse(R"({"model_type": "bert", )" + more + "}", "config.json"));
}

TEST(ClassLineTest, DescribesATokenFile) {
  EXPECT_EQ(labels_line({.count = 1, .problem = "single_label_classification", .names = {"no", "a\nb"}}),
            "labels: single_label_classification of 1 document, 2 classes (no, a\\nb)\n");
  EXPECT_EQ(labels_line({.count = 2, .problem = "regression", .pairs = true, .max_length = 64}),
            "labels: regression of 2 documents, pairs of texts, at most 64 tokens\n");
  runtime::TokenSidecar::Labels many{.count = 20, .problem = "token_classification"};
  for (int i = 0; i < 20; ++i) many.names.push_back(std::to_string(i));
  EXPECT_THAT(labels_line(many), testing::HasSubstr("20 classes (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)"));
}

TEST(ClassLineTest, DescribesAModel) {
  const std::string classes = R"("id2label": {"0": "no", "1": "yes"})";
  EXPECT_EQ(of_model(R"("architectures": ["BertForSequenceClassification"], )" + classes),
            "predicts: 2 classes (no, yes), one per text\n");
  EXPECT_EQ(of_model(R"("architectures": ["BertForTokenClassification"], )" + classes +
                     R"(, "strata_trained_on": {"tokenizer": "bert", "pairs": false, "max_length": 64})"),
            "predicts: 2 classes (no, yes), one per word; trained on tokens of bert, at most 64 tokens\n");
  EXPECT_EQ(
      of_model(R"("architectures": ["BertForSequenceClassification"], "problem_type": "regression", "num_labels": 1,
                        "strata_trained_on": {"tokenizer": null, "tokenizer_hash": null, "pairs": null})"),
      "predicts: a number per text\n");
  EXPECT_EQ(of_model(R"("architectures": ["BertForMaskedLM"])"), "");
  EXPECT_EQ(of_model(classes), "");
}

}  // namespace
}  // namespace strata::launcher
