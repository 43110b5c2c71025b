#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "runtime/weights/adapter/adapter_weights.h"
#include "tests/runtime/weights/adapted_models.h"
#include "tests/runtime/weights/index_weights.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kMagnitudesIn = 8, kMagnitudesOut = 12;
const std::string kMagnitudesLayer = "model.layers.0.mlp.up_proj", kConv1d = "transformer.h.0.mlp.c_fc";

TEST(Magnitudes, AreTheLengthsOfTheRows) {
  models::Adapter adapter{.rank = 2};
  adapter.dora = true;
  const auto model = small_llama(std::make_shared<models::Adapter>(adapter));
  const auto weights = with_magnitudes(std::make_unique<IndexWeights>(), *model);
  const std::size_t matrix = tensor_of(*model, kMagnitudesLayer + ".weight");
  std::vector<float> read(kMagnitudesOut - 3);
  weights->read(1, tensor_of(*model, kMagnitudesLayer + std::string(models::kMagnitude)), 3, read);
  for (std::size_t o = 3; o < kMagnitudesOut; ++o) {
    double squares = 0;
    for (std::size_t i = 0; i < kMagnitudesIn; ++i)
      squares += std::pow(double{IndexWeights::value(1, matrix, o * kMagnitudesIn + i)}, 2);
    EXPECT_NEAR(read[o - 3], std::sqrt(squares), 1e-6) << o;
  }
  std::vector<float> other(5);
  weights->read(1, matrix, 7, other);
  for (std::size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i], IndexWeights::value(1, matrix, 7 + i));
}

TEST(Magnitudes, RowsOfAMatrixStoredInputsFirstAreItsColumns) {
  models::Adapter adapter{.rank = 2};
  adapter.dora = true;
  adapter.target_modules = {{"c_fc"}, {}};
  const auto model = small_gpt2(std::make_shared<models::Adapter>(adapter));
  const auto weights = with_magnitudes(std::make_unique<IndexWeights>(), *model);
  const std::size_t matrix = tensor_of(*model, kConv1d + ".weight");
  std::vector<float> read(kMagnitudesOut);
  weights->read(1, tensor_of(*model, kConv1d + std::string(models::kMagnitude)), 0, read);
  for (std::size_t o = 0; o < kMagnitudesOut; ++o) {
    double squares = 0;
    for (std::size_t i = 0; i < kMagnitudesIn; ++i)
      squares += std::pow(double{IndexWeights::value(1, matrix, i * kMagnitudesOut + o)}, 2);
    EXPECT_NEAR(read[o], std::sqrt(squares), 1e-6) << o;
  }
}

TEST(Magnitudes, WithoutDoraTheSourceIsReturned) {
  const auto model = small_llama(std::make_shared<models::Adapter>());
  auto source = std::make_unique<IndexWeights>();
  const WeightSource* const address = source.get();
  EXPECT_EQ(with_magnitudes(std::move(source), *model).get(), address);
}

}  // namespace
}  // namespace strata::runtime
