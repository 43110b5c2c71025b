#include "models/layers/rotary_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "models/files/config.h"
#include "tests/failure.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using device::DType;
using testing::constants;
using testing::kSeq;
using testing::make;
using testing::tiny;

// The frequencies follow from the table's row for position 1.
std::vector<double> frequencies(const Model& model, std::size_t positions, std::size_t half) {
  const std::vector<float> table = constants(model);
  EXPECT_EQ(table.size(), 2 * positions * half);
  std::vector<double> out;
  for (std::size_t i = 0; i < half; ++i)
    out.push_back(std::atan2(double{table[(positions + 1) * half + i]}, double{table[half + i]}));
  return out;
}

TEST(RotaryTableTest, FrequenciesMatchTransformers) {
  const std::vector<double> plain =
      frequencies(*make(tiny("llama"), {{"rope_parameters", R"({"rope_theta":16.0})"}}), kSeq, 4);
  const std::vector<double> halved = frequencies(
      *make(tiny("llama"), {{"rope_theta", "16"}, {"rope_scaling", R"({"type":"linear","factor":2.0})"}}), kSeq, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain[i], std::pow(2.0, -static_cast<double>(i)), 1e-7);  // 16^(-2i/8)
    EXPECT_NEAR(halved[i], plain[i] / 2, 1e-7);
  }

  // Llama 3.2's frequencies from the formula of transformers' _compute_llama3_parameters: those with more than 4 turns
  // in 8,192 positions stay, those with less than 1 are divided by 32, and others are interpolated.
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

struct Stretched {
  const char *model_type, *keys;
  std::size_t head_dim;
  double attention_factor;
  std::vector<std::pair<std::size_t, double>> frequencies;
};

// Results of transformers' ROPE_INIT_FUNCTIONS["yarn"]: for Qwen2.5 with four times its 32,768 positions, and for a
// model with all other keys.
TEST(RotaryTableTest, YarnMatchesTransformers) {
  const Stretched models[] = {
      {"qwen2",
       R"("max_position_embeddings":131072,"rope_theta":1000000.0,
          "rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768})",
       128,
       1.138629436111989,
       {{0, 1.0},
        {10, 0.11547820270061493},
        {23, 0.006978305988013744},
        {24, 0.005375321488827467},
        {30, 0.0010643609566614032},
        {39, 6.490394298452884e-05},
        {40, 4.4456985051510856e-05},
        {63, 3.102344408034696e-07}}},
      {"llama",
       R"("max_position_embeddings":8192,"rope_parameters":{"rope_type":"yarn","factor":8.0,"mscale":1.2,
          "mscale_all_dim":0.7,"original_max_position_embeddings":1024,"beta_fast":16,"beta_slow":2,"truncate":false})",
       64,
       1.0907608459448856,
       {{0, 1.0},
        {5, 0.23713736236095428},
        {8, 0.10000000149011612},
        {12, 0.016548309475183487},
        {13, 0.009537463076412678},
        {20, 0.00039528473280370235},
        {31, 1.666901880525984e-05}}},
  };
  for (const Stretched& s : models) {
    SCOPED_TRACE(s.model_type);
    const auto model =
        make(fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":1,"num_key_value_heads":1,
                             "head_dim":{},"intermediate_size":8,"num_hidden_layers":1,"vocab_size":8,{}}})",
                         s.model_type, s.head_dim, s.keys));
    const std::size_t half = s.head_dim / 2;
    const std::vector<double> seen = frequencies(*model, kSeq, half);
    for (const auto& [i, frequency] : s.frequencies) EXPECT_NEAR(seen[i] / frequency, 1, 2e-7) << "frequency " << i;
    const std::vector<float> table = constants(*model);
    for (std::size_t k = 0; k < kSeq * half; ++k)
      EXPECT_NEAR(std::hypot(table[k], table[kSeq * half + k]), s.attention_factor, 3e-7);
  }
}

// With transformers' defaults, these are other ways to write the same configuration.
TEST(RotaryTableTest, YarnsKeysHaveDefaults) {
  const auto yarn = [](const std::string& more, const std::string& outer = "") {
    Config config = Config::parse(R"({"rope_scaling":{"rope_type":"yarn")" + more + "}" + outer + "}", "config.json");
    return read_rotary_table(config, 64, 4096);
  };
  const RotaryTable plain = yarn(R"(,"factor":4.0,"original_max_position_embeddings":1024)");
  EXPECT_EQ(plain.scaling, RotaryTable::Scaling::yarn);
  EXPECT_EQ(plain.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_TRUE(plain == yarn(R"(,"factor":null,"original_max_position_embeddings":1024)"));
  EXPECT_TRUE(plain == yarn(R"(,"factor":4.0)", R"(,"original_max_position_embeddings":1024)"));
  EXPECT_TRUE(plain == yarn(R"(,"factor":4,"original_max_position_embeddings":1024,"beta_fast":0,"beta_slow":null,
                              "mscale":0.7,"attention_factor":null,"truncate":true)"));
  EXPECT_EQ(yarn(R"(,"factor":4.0)").original_positions, 4096);
  EXPECT_EQ(yarn(R"(,"factor":4.0,"attention_factor":1.5,"mscale":1.0,"mscale_all_dim":0.5)").attention_factor, 1.5);
  EXPECT_EQ(yarn(R"(,"factor":0.5)").attention_factor, 1);
  for (const char* key : {"beta_fast", "beta_slow", "attention_factor", "original_max_position_embeddings"})
    EXPECT_FAILURE(yarn(fmt::format(R"(,"factor":4.0,"{}":-1.0)", key)), Exit::usage, ::testing::HasSubstr(key));
  EXPECT_FAILURE(yarn(""), Exit::corrupt, ::testing::HasSubstr("rope_scaling.factor"));
}

// One of ModernBERT's two kinds of attention may be stretched. With groups, the key of the whole model is not read.
TEST(RotaryTableTest, EachKindOfAttentionHasItsOwnAngles) {
  const auto read = [](const std::string& json, const char* kind) {
    return read_rotary_table(Config::parse(json, "config.json"), 64, 4096, kind, "local_rope_theta", 10000);
  };
  const std::string both =
      R"({"local_rope_theta":50.0,"rope_parameters":{"sliding_attention":{"type":"yarn","factor":4.0,
          "truncate":false},
          "full_attention":{"rope_theta":9.0}}})";
  EXPECT_EQ(read(both, "sliding_attention").scaling, RotaryTable::Scaling::yarn);
  EXPECT_EQ(read(both, "sliding_attention").theta, 50);
  EXPECT_TRUE(read(both, "sliding_attention").truncate) << "transformers itself reads the one in rope_parameters";
  EXPECT_EQ(read(both, "full_attention").scaling, RotaryTable::Scaling::none);
  EXPECT_EQ(read(both, "full_attention").theta, 9);
  const std::string over =
      R"({"rope_scaling":{"rope_type":"linear","factor":2.0},"rope_parameters":{"sliding_attention":{"rope_theta":7.0,
          "rope_type":"yarn","factor":3.0}}})";
  EXPECT_EQ(read(over, "sliding_attention").scaling, RotaryTable::Scaling::linear);
  EXPECT_EQ(read(over, "sliding_attention").factor, 2);
  EXPECT_EQ(read(over, "sliding_attention").theta, 7);
}

TEST(RotaryTableTest, CoversTheSequence) {
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
