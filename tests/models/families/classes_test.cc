// Compares classifiers with transformers. tests/golden/make_classes.py describes the folders.
#include "models/classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/models/recorded.h"

namespace strata::models {
namespace {

using testing::Columns;
using testing::Doubles;
using testing::Learnt;
using testing::Recorded;

class ClassesTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The documents, from row `first` on, in `rows` rows.
  Columns packed(std::size_t first, std::size_t rows) const {
    return recorded_.packed(first, rows, std::string(GetParam()).ends_with("_regression"));
  }
  // picks: the loss uses only the rows that have a label, and some empty rows.
  Learnt learn(Columns columns, bool picks) const {
    std::vector<std::uint32_t> rows;
    if (picks) {
      std::vector<std::int32_t> labels;
      for (std::uint32_t row = 0; row < columns.labels.size(); ++row) {
        if (columns.labels[row] == device::kIgnoredLabel) continue;
        rows.push_back(row);
        labels.push_back(columns.labels[row]);
      }
      rows.resize(rows.size() + 3);
      labels.resize(columns.labels.size(), device::kIgnoredLabel);
      columns.labels = labels;
    }
    return recorded_.learn(columns, rows);
  }
  void expect_transformers(const Learnt& learnt) const {
    recorded_.expect_loss(learnt.loss);
    const std::map<std::string, Doubles> gradients(learnt.gradients.begin(), learnt.gradients.end());
    double largest = 0;
    for (const auto& [name, gradient] : gradients) largest = std::max(largest, testing::norm_of(gradient));
    recorded_.expect_gradients(gradients, largest, 4);  // in addition to tokens, labels, lengths and the loss
  }

  const Recorded recorded_{"classes/" + std::string(GetParam())};
};

TEST_P(ClassesTest, MatchesTransformers) {
  expect_transformers(learn(packed(0, 40), false));
}

TEST_P(ClassesTest, NeedsOnlyTheRowsOfTheLoss) {
  expect_transformers(learn(packed(3, 40), true));
}

INSTANTIATE_TEST_SUITE_P(Families, ClassesTest,
                         ::testing::Values("bert_single", "bert_multi", "roberta_multi", "roberta_regression",
                                           "distilbert_regression", "distilbert_single", "gpt2_single", "llama_single",
                                           "bert_tokens", "roberta_tokens", "distilbert_tokens", "gpt2_tokens",
                                           "modernbert_first", "modernbert_mean", "modernbert_tokens"),
                         [](const auto& each) { return std::string(each.param); });

TEST(ReadClassesTest, AgreesWithTransformers) {
  const auto read = [](const std::string& json) {
    return read_classes(Config::parse(json, "made"), Objective::sequence_classification);
  };
  EXPECT_EQ(read("{}").names, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  EXPECT_FALSE(read("{}").named);
  EXPECT_EQ(read(R"({"num_labels": 1})").target, device::ClassTarget::number);
  const Classes two = read(R"({"id2label": {"0": "no", "1": "yes"}, "problem_type": "multi_label_classification"})");
  EXPECT_EQ(two.names, (std::vector<std::string>{"no", "yes"}));
  EXPECT_TRUE(two.named);
  EXPECT_EQ(two.target, device::ClassTarget::many);
  EXPECT_FAILURE(read(R"({"problem_type": "ranking"})"), Exit::usage, ::testing::HasSubstr("\"ranking\""));
  EXPECT_EQ(read(R"({"num_labels": 9000, "problem_type": "multi_label_classification"})").names.size(), 9000u);
}

// For an error in id2label, the message names config.json rather than the labels whose class is therefore missing.
TEST(ClassNamesTest, NumbersNamesFromZero) {
  const auto read = [](const std::string& json) {
    return read_classes(Config::parse(json, "config.json"), Objective::sequence_classification);
  };
  using ::testing::AllOf;
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  EXPECT_THAT(read(R"({"id2label": {"1": "b", "0": "a"}})").names, ElementsAre("a", "b"));
  EXPECT_THAT(read(R"({"id2label": {"0": 0, "1": 1.5, "2": true}})").names, ElementsAre("0", "1.5", "true"));
  EXPECT_THAT(read(R"({"id2label": {}})").names, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_FAILURE(read(R"({"id2label": ["a", "b"]})"), Exit::corrupt,
                 AllOf(HasSubstr("id2label of config.json is [\"a\",\"b\"]"), HasSubstr("{\"0\": \"no\"")));
  EXPECT_FAILURE(read(R"({"id2label": {"0": "a", "2": "c"}})"), Exit::corrupt,
                 HasSubstr("id2label of config.json has the keys 0, 2, but no \"1\""));
  EXPECT_FAILURE(read(R"({"id2label": {"1": "a", "2": "c"}})"), Exit::corrupt, HasSubstr("but no \"0\""));
  EXPECT_FAILURE(read(R"({"id2label": {"0": "a", "1": "c"}, "num_labels": 3})"), Exit::corrupt,
                 HasSubstr("num_labels of config.json is 3, and id2label names 2 classes (a, c)"));
  EXPECT_FAILURE(read(R"({"id2label": {"0": "a", "1": "b", "2": "a"}})"), Exit::corrupt,
                 AllOf(HasSubstr("id2label.2 of config.json is \"a\", as is that of class 0"),
                       HasSubstr("--set model.config.id2label.2=LABEL_2")));
  Config twice = Config::parse(R"({"id2label": {"0": "a", "1": "b"}})", "config.json");
  twice.override_key("id2label.0", "\"b\"");
  EXPECT_FAILURE(read_classes(twice, Objective::token_classification), Exit::usage,
                 HasSubstr("is \"b\", as is that of class 0"));
  twice.override_key("id2label.1", "\"a\"");
  EXPECT_THAT(read_classes(twice, Objective::token_classification).names, ElementsAre("b", "a"));
  Config given = Config::parse(R"({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})", "config.json");
  given.override_key("num_labels", "4");
  EXPECT_EQ(read_classes(given, Objective::sequence_classification).names.size(), 4u);
}

}  // namespace
}  // namespace strata::models
