// Encoders against transformers: tests/golden/make_encoders.py says what the folders hold.
#include "models/families/encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "tests/models/recorded.h"

namespace strata::models {
namespace {

using testing::Doubles;
using testing::Learnt;
using testing::Recorded;

class EncoderTest : public ::testing::TestWithParam<const char*> {
 protected:
  const Recorded recorded_{GetParam()};
};

TEST_P(EncoderTest, DocumentsTeachWhatTransformersSays) {
  const Learnt learnt = recorded_.learn(recorded_.packed(0, 64));
  recorded_.expect_loss(learnt.loss);
  // The table's gradient is the embedding's and the head's.
  std::map<std::string, Doubles> gradients(learnt.gradients.begin(), learnt.gradients.end());
  Doubles& table = gradients.at(learnt.gradients.front().first);
  table = testing::sum(std::move(table), gradients.at("shared"));
  gradients.erase("shared");
  recorded_.expect_gradients(gradients, testing::norm_of(table), 5);  // beside tokens, labels, types, lengths, loss
}

TEST_P(EncoderTest, WhereDocumentsLieDoesNotShow) {
  const Learnt here = recorded_.learn(recorded_.packed(0, 57)), there = recorded_.learn(recorded_.packed(7, 64));
  EXPECT_NEAR(here.loss, there.loss, 1e-7 * here.loss);
  EXPECT_LT(testing::relative_error(here.all(), there.all()), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderTest, ::testing::Values("bert", "roberta", "distilbert", "modernbert"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace strata::models
