// Encoders against transformers: tests/golden/make_encoders.py says what the folders hold.
#include "models/families/encoder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "tests/models/packed_learning.h"
#include "tests/models/reference.h"

namespace strata::models {
namespace {

using testing::Buffer;
using testing::Columns;
using testing::Doubles;
using testing::Learnt;

class EncoderTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<float> recorded(const std::string& name) const {
    const StoredTensor* tensor = documents_.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> out(tensor->elements());
    read_elements(*tensor, 0, out);
    return out;
  }
  // The recorded documents, one behind the other from row `first` on, with `rows` rows in all.
  Columns packed(std::size_t first, std::size_t rows) const {
    Columns out;
    out.add_leftover(first);
    out.types.resize(first);
    const std::vector<float> tokens = recorded("tokens"), labels = recorded("labels"), types = recorded("types");
    std::size_t from = 0;
    for (const float length : recorded("lengths")) {
      const auto begin = static_cast<std::uint32_t>(out.tokens.size()), n = static_cast<std::uint32_t>(length);
      for (std::uint32_t i = 0; i < n; ++i, ++from) {
        out.tokens.push_back(static_cast<std::uint32_t>(tokens[from]));
        out.labels.push_back(static_cast<std::int32_t>(labels[from]));
        out.types.push_back(static_cast<std::uint32_t>(types[from]));
        out.positions.push_back(i);
        out.documents.push_back({begin, begin + n});
      }
    }
    out.add_leftover(rows - out.tokens.size());
    return out;
  }
  Learnt learn(const Columns& columns) const {
    const Safetensors weights = Safetensors::open(folder_ / "model");
    return testing::learn(Config::read(folder_ / "model"), columns, 1.0f, [&](const Unit& unit, Buffer& flat) {
      for (const Parameter& p : unit.parameters()) {
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        std::vector<float> values(p.size());
        read_elements(weights.require(p.name, shape), 0, values);
        for (std::size_t i = 0; i < values.size(); ++i) flat.set(p.offset + i, values[i]);
      }
    });
  }
  // The table's gradient is the embedding's and the head's.
  static std::map<std::string, Doubles> gradients_of(const Learnt& learnt) {
    std::map<std::string, Doubles> out(learnt.gradients.begin(), learnt.gradients.end());
    Doubles& table = out.at(learnt.gradients.front().first);
    table = testing::sum(std::move(table), out.at("shared"));
    out.erase("shared");
    return out;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden" / std::string(GetParam());
  const Safetensors documents_ = Safetensors::open(folder_ / "documents.safetensors");
};

// Sums in another order than PyTorch's, through two blocks: some 1e-6 of a gradient's norm.
constexpr double kGradient = 1e-5, kLoss = 1e-6;

TEST_P(EncoderTest, DocumentsTeachWhatTransformersSays) {
  const Learnt learnt = learn(packed(0, 64));
  const double loss = recorded("loss").at(0);
  EXPECT_NEAR(learnt.loss, loss, kLoss * loss);
  const std::map<std::string, Doubles> gradients = gradients_of(learnt);
  const Doubles& table = gradients.at(learnt.gradients.front().first);
  std::size_t seen = 4;  // tokens, labels, types, lengths
  for (const auto& [name, gradient] : gradients) {
    const std::vector<float> stored = recorded("gradient of " + name);
    const Doubles want(stored.begin(), stored.end());
    ASSERT_EQ(gradient.size(), want.size()) << name;
    ++seen;
    // A key's bias moves all scores of a row alike: its gradient is 0, and what is found is rounding.
    if (name.ends_with("key.bias") || name.ends_with("k_lin.bias")) {
      EXPECT_LT(testing::norm_of(gradient), 1e-6 * testing::norm_of(table)) << name;
      continue;
    }
    EXPECT_GT(testing::norm_of(want), 0) << name;
    EXPECT_LT(testing::relative_error(gradient, want), kGradient) << name;
  }
  EXPECT_EQ(seen + 1, documents_.tensors().size()) << "a parameter of transformers' that the model lacks";
}

TEST_P(EncoderTest, WhereDocumentsLieDoesNotShow) {
  const Learnt here = learn(packed(0, 57)), there = learn(packed(7, 64));
  EXPECT_NEAR(here.loss, there.loss, 1e-7 * here.loss);
  EXPECT_LT(testing::relative_error(here.all(), there.all()), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderTest, ::testing::Values("bert", "roberta", "distilbert", "modernbert"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace strata::models
