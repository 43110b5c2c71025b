// W + s B A against double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/weights/adapter/adapter_weights.h"
#include "runtime/weights/quantised_weights.h"
#include "tests/failure.h"
#include "tests/runtime/weights/adapted_models.h"
#include "tests/runtime/weights/index_weights.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kIn = 8, kOut = 12, kRank = 3;
const std::string kLayer = "model.layers.0.mlp.up_proj";

class MergedWeightsTest : public testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<const models::Adapter> adapter() {
    models::Adapter out{.rank = kRank, .alpha = 6};
    out.target_modules = {{"up_proj"}, {}};
    out.dora = GetParam();
    return std::make_shared<models::Adapter>(out);
  }
  double value(const std::string& tensor, std::size_t element) const {
    return IndexWeights::value(1, tensor_of(*adapted_, tensor), element);
  }
  double sum(std::size_t o, std::size_t i) const {
    double out = value(kLayer + ".weight", o * kIn + i);
    for (std::size_t r = 0; r < kRank; ++r)
      out += 2 * value(kLayer + ".lora_B.weight", o * kRank + r) * value(kLayer + ".lora_A.weight", r * kIn + i);
    return out;
  }
  double wanted(std::size_t o, std::size_t i) const {
    if (!GetParam()) return sum(o, i);
    double squares = 0;
    for (std::size_t j = 0; j < kIn; ++j) squares += sum(o, j) * sum(o, j);
    return value(kLayer + std::string(models::kMagnitude), o) / std::sqrt(squares) * sum(o, i);
  }
  std::vector<float> read(const std::string& tensor, std::size_t begin, std::size_t count) const {
    std::vector<float> out(count);
    merged_->read(1, tensor_of(*plain_, tensor), begin, out);
    return out;
  }

  const std::unique_ptr<models::Model> adapted_ = small_llama(adapter()), plain_ = small_llama();
  const std::unique_ptr<WeightSource> merged_ = merged_weights(std::make_unique<IndexWeights>(), *adapted_, *plain_);
};

TEST_P(MergedWeightsTest, TheAdapterIsAddedToItsLayer) {
  const std::vector<float> all = read(kLayer + ".weight", 0, kOut * kIn);
  for (std::size_t o = 0; o < kOut; ++o)
    for (std::size_t i = 0; i < kIn; ++i) EXPECT_NEAR(all[o * kIn + i], wanted(o, i), 1e-5) << o << ' ' << i;
  const std::vector<float> part = read(kLayer + ".weight", 13, 20);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 13)) << "read in pieces";
}

TEST_P(MergedWeightsTest, OtherLayersStay) {
  const std::string other = "model.layers.0.mlp.gate_proj.weight";
  const std::vector<float> all = read(other, 0, kOut * kIn);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(value(other, i)));
}

INSTANTIATE_TEST_SUITE_P(, MergedWeightsTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "DoRA" : "LoRA"; });

// W + 2 B A of a layer of unit 1, for W stored as [out, in], or as [in, out] if `input_major`.
std::vector<float> merged(const models::Model& adapted, const std::string& layer, bool input_major) {
  const auto value = [&](const char* tensor, std::size_t element) {
    return double{IndexWeights::value(1, tensor_of(adapted, layer + tensor), element)};
  };
  std::vector<float> out(kOut * kIn);
  for (std::size_t o = 0; o < kOut; ++o)
    for (std::size_t i = 0; i < kIn; ++i) {
      const std::size_t at = input_major ? i * kOut + o : o * kIn + i;
      double sum = value(".weight", at);
      for (std::size_t r = 0; r < kRank; ++r)
        sum += 2 * value(".lora_B.weight", o * kRank + r) * value(".lora_A.weight", r * kIn + i);
      out[at] = static_cast<float>(sum);
    }
  return out;
}

void expect_merged(const models::Model& adapted, const models::Model& plain, const std::vector<std::string>& layers,
                   bool input_major) {
  const auto weights = merged_weights(std::make_unique<IndexWeights>(), adapted, plain);
  for (const std::string& layer : layers) {
    std::vector<float> read(kOut * kIn);
    weights->read(1, tensor_of(plain, layer + ".weight"), 0, read);
    EXPECT_THAT(read, testing::Pointwise(testing::FloatNear(1e-5f), merged(adapted, layer, input_major))) << layer;
  }
}

std::shared_ptr<const models::Adapter> adapter_of(std::vector<std::string> modules) {
  models::Adapter out{.rank = kRank, .alpha = 6};
  out.target_modules = {std::move(modules), {}};
  return std::make_shared<models::Adapter>(out);
}

TEST(MergedWeights, EachLayerHasItsOwnAdapter) {
  const std::string other = "model.layers.0.mlp.gate_proj";
  expect_merged(*small_llama(adapter_of({"up_proj", "gate_proj"})), *small_llama(), {kLayer, other, kLayer}, false);
}

TEST(MergedWeights, AMatrixMayBeStoredInputsFirst) {
  expect_merged(*small_gpt2(adapter_of({"c_fc"})), *small_gpt2(), {"transformer.h.0.mlp.c_fc"}, true);
}

// Notes which elements are announced.
class Announced final : public ForwardedWeights {
 public:
  using Places = std::vector<std::array<std::size_t, 4>>;
  explicit Announced(Places& places) : ForwardedWeights(std::make_unique<IndexWeights>()), places_(places) {}
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    places_.push_back({unit, parameter, begin, count});
  }

 private:
  Places& places_;
};

TEST(MergedWeights, ReadAheadReachesTheSource) {
  const auto adapted = small_llama(adapter_of({"up_proj"})), plain = small_llama();
  const std::string after = "model.layers.0.mlp.down_proj.weight";  // the adapter's tensors are before it
  ASSERT_NE(tensor_of(*adapted, after), tensor_of(*plain, after));
  Announced::Places places;
  merged_weights(quantised_weights(std::make_unique<Announced>(places), *adapted), *adapted, *plain)
      ->prefetch(1, tensor_of(*plain, after), 5, 30);
  EXPECT_THAT(places, testing::ElementsAre(std::array<std::size_t, 4>{1, tensor_of(*adapted, after), 5, 30}));
}

// A source whose adapter was trained on a base with a certain hash.
class Based final : public WeightSource {
 public:
  explicit Based(std::string hash) : hash_(std::move(hash)) {}
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    weights_.read(unit, parameter, begin, out);
  }
  Base base() const override { return {hash_, "/base"}; }

 private:
  std::string hash_;
  IndexWeights weights_;
};

TEST(VerifyBase, RefusesAnotherBase) {
  const auto model = small_llama(std::make_shared<models::Adapter>());
  BaseHash hash(*model);
  for (std::size_t unit = 0; unit < model->units.size(); ++unit)
    for (std::size_t p = 0; p < model->units[unit]->parameters().size(); ++p) {
      const models::Parameter& parameter = model->units[unit]->parameters()[p];
      if (parameter.trained()) continue;
      std::vector<float> values(parameter.size());
      IndexWeights().read(unit, p, 0, values);
      hash.add(unit, p, 0, values);
    }
  EXPECT_NO_THROW(verify_base(Based(hash.of_rank()), *model));
  EXPECT_NO_THROW(verify_base(Based(""), *model)) << "any base";
  EXPECT_FAILURE(verify_base(Based(std::string(hash.of_rank().size(), '0')), *model), Exit::usage,
                 testing::HasSubstr("/base"));
}

}  // namespace
}  // namespace strata::runtime
