#include "models/layers/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "models/files/presets.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using device::DType;
using testing::constants;
using testing::kSeq;
using testing::make;
using testing::tiny;

// Frequencies from the table's row of position 1.
std::vector<double> frequencies(const Model& model, std::size_t positions, std::size_t half) {
  const std::vector<float> table = constants(model);
  EXPECT_EQ(table.size(), 2 * positions * half);
  std::vector<double> out;
  for (std::size_t i = 0; i < half; ++i)
    out.push_back(std::atan2(double{table[(positions + 1) * half + i]}, double{table[half + i]}));
  return out;
}

TEST(RotaryTableTest, FrequenciesAreThoseOfTransformers) {
  const std::vector<double> plain =
      frequencies(*make(tiny("llama"), {{"rope_parameters", R"({"rope_theta":16.0})"}}), kSeq, 4);
  const std::vector<double> halved = frequencies(
      *make(tiny("llama"), {{"rope_theta", "16"}, {"rope_scaling", R"({"type":"linear","factor":2.0})"}}), kSeq, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain[i], std::pow(2.0, -static_cast<double>(i)), 1e-7);  // 16^(-2i/8)
    EXPECT_NEAR(halved[i], plain[i] / 2, 1e-7);
  }

  // Llama 3.2's, as transformers' _compute_llama3_parameters has them; by hand from its formula: turns of 8,192
  // positions above 4 stay, below 1 are divided by 32, between them it interpolates.
  Config config = Config::parse(preset_config("llama-1b"), "llama-1b");
  config.override_key("num_hidden_layers", "1");
  config.override_key("vocab_size", "64");
  const auto model = make_model(config, {1, 4, DType::fp32, 1});
  const std::vector<double> scaled = frequencies(*model, 4, 32);
  const std::pair<std::size_t, double> expected[] = {{0, 1.0},
                                                     {14, 0.0032114459947525913},
                                                     {15, 0.001290547928209264},
                                                     {16, 0.00042955679655936815},
                                                     {17, 9.70828780262767e-05},
                                                     {18, 1.9461638184831125e-05},
                                                     {31, 9.418306725434909e-08}};
  for (const auto& [i, frequency] : expected) EXPECT_NEAR(scaled[i] / frequency, 1, 1e-6) << "frequency " << i;
}

TEST(RotaryTableTest, GoesAsFarAsTheSequence) {
  const auto model = make(tiny("llama"));
  const std::vector<float> table = constants(*model);
  const std::size_t half = 4;
  ASSERT_EQ(table.size(), 2 * kSeq * half);
  for (std::size_t p = 0; p < kSeq; ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / half);
      // The angle is a product of floats, up to 15: half a unit of 2^-20 in its last place.
      EXPECT_NEAR(table[p * half + i], std::cos(angle), 2e-6);
      EXPECT_NEAR(table[(kSeq + p) * half + i], std::sin(angle), 2e-6);
    }
  EXPECT_EQ(make(tiny("gpt2"))->constants_bytes, 0u);
}

}  // namespace
}  // namespace strata::models
