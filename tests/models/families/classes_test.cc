// Classifiers against transformers: tests/golden/make_classes.py says what the folders hold.
#include "models/classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "tests/failure.h"
#include "tests/models/packed_learning.h"
#include "tests/models/reference.h"

namespace strata::models {
namespace {

using testing::Buffer;
using testing::Columns;
using testing::Doubles;
using testing::Learnt;

class ClassesTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<float> recorded(const std::string& name) const {
    const StoredTensor* tensor = documents_.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> out(tensor->elements());
    read_elements(*tensor, 0, out);
    return out;
  }
  // The recorded documents from row `first` on, with `rows` rows in all; labels as a batch has them.
  Columns packed(std::size_t first, std::size_t rows) const {
    const bool numbers = std::string(GetParam()).ends_with("_regression");
    Columns out;
    out.add_leftover(first);
    const std::vector<float> tokens = recorded("tokens"), labels = recorded("labels");
    std::size_t from = 0;
    for (const float length : recorded("lengths")) {
      const auto begin = static_cast<std::uint32_t>(out.tokens.size()), n = static_cast<std::uint32_t>(length);
      for (std::uint32_t i = 0; i < n; ++i, ++from) {
        out.tokens.push_back(static_cast<std::uint32_t>(tokens[from]));
        const bool bits = numbers && labels[from] != -100;
        out.labels.push_back(bits ? std::bit_cast<std::int32_t>(labels[from])
                                  : static_cast<std::int32_t>(labels[from]));
        out.positions.push_back(i);
        out.documents.push_back({begin, begin + n});
      }
    }
    out.add_leftover(rows - out.tokens.size());
    return out;
  }
  // picks: the loss takes the rows that have a label alone, and some that stand empty.
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
    const Safetensors weights = Safetensors::open(folder_ / "model");
    const auto fill = [&](const Unit& unit, Buffer& flat) {
      for (const Parameter& p : unit.parameters()) {
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        std::vector<float> values(p.size());
        read_elements(weights.require(p.name, shape), 0, values);
        for (std::size_t i = 0; i < values.size(); ++i) flat.set(p.offset + i, values[i]);
      }
    };
    return testing::learn(Config::read(folder_ / "model"), columns, 1.0f, fill, device::DType::fp32, rows);
  }
  void expect_transformers(const Learnt& learnt) const {
    const double loss = recorded("loss").at(0);
    EXPECT_NEAR(learnt.loss, loss, 1e-6 * loss);
    std::size_t seen = 4;  // tokens, labels, lengths, loss
    double largest = 0;
    for (const auto& [name, gradient] : learnt.gradients) largest = std::max(largest, testing::norm_of(gradient));
    for (const auto& [name, gradient] : learnt.gradients) {
      const std::vector<float> stored = recorded("gradient of " + name);
      ASSERT_EQ(gradient.size(), stored.size()) << name;
      ++seen;
      const Doubles want(stored.begin(), stored.end());
      // A key's bias moves all scores of a row alike: its gradient is 0, and what is found is rounding.
      if (name.ends_with("key.bias") || name.ends_with("k_lin.bias")) {
        EXPECT_LT(testing::norm_of(gradient), 1e-6 * largest) << name;
        continue;
      }
      // Sums in another order than PyTorch's: some 1e-6 of a gradient's norm.
      EXPECT_LT(testing::relative_error(gradient, want), 1e-5) << name;
    }
    EXPECT_EQ(seen, documents_.tensors().size()) << "a parameter of transformers' that the model lacks";
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden/classes" / std::string(GetParam());
  const Safetensors documents_ = Safetensors::open(folder_ / "documents.safetensors");
};

TEST_P(ClassesTest, DocumentsTeachWhatTransformersSays) {
  expect_transformers(learn(packed(0, 40), false));
}

TEST_P(ClassesTest, RowsThatTheLossTakesAreEnough) {
  expect_transformers(learn(packed(3, 40), true));
}

INSTANTIATE_TEST_SUITE_P(Families, ClassesTest,
                         ::testing::Values("bert_single", "bert_multi", "roberta_multi", "roberta_regression",
                                           "distilbert_regression", "distilbert_single", "gpt2_single", "llama_single",
                                           "bert_tokens", "roberta_tokens", "distilbert_tokens", "gpt2_tokens"),
                         [](const auto& each) { return std::string(each.param); });

TEST(ReadClassesTest, AsTransformersReadsThem) {
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
  EXPECT_FAILURE(read(R"({"num_labels": 32, "problem_type": "multi_label_classification"})"), Exit::usage,
                 ::testing::HasSubstr("at most 31"));
}

// What id2label is wrong in is said of config.json, not of the labels that no class is then found for.
TEST(ClassNamesTest, NamesCountFromZero) {
  const auto read = [](const std::string& json) {
    return read_classes(Config::parse(json, "config.json"), Objective::sequence_classification);
  };
  using ::testing::AllOf;
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  EXPECT_THAT(read(R"({"id2label": {"1": "b", "0": "a"}})").names, ElementsAre("a", "b"));
  EXPECT_THAT(read(R"({"id2label": {}})").names, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_FAILURE(read(R"({"id2label": ["a", "b"]})"), Exit::corrupt,
                 AllOf(HasSubstr("id2label of config.json is [\"a\",\"b\"]"), HasSubstr("{\"0\": \"no\"")));
  EXPECT_FAILURE(read(R"({"id2label": {"0": "a", "2": "c"}})"), Exit::corrupt,
                 HasSubstr("id2label of config.json has the keys 0, 2, and no \"1\""));
  EXPECT_FAILURE(read(R"({"id2label": {"1": "a", "2": "c"}})"), Exit::corrupt, HasSubstr("and no \"0\""));
  EXPECT_FAILURE(read(R"({"id2label": {"0": "a", "1": "c"}, "num_labels": 3})"), Exit::corrupt,
                 HasSubstr("num_labels of config.json is 3, and id2label names 2 classes (a, c)"));
  Config given = Config::parse(R"({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})", "config.json");
  given.override_key("num_labels", "4");
  EXPECT_EQ(read_classes(given, Objective::sequence_classification).names.size(), 4u);
}

}  // namespace
}  // namespace strata::models
