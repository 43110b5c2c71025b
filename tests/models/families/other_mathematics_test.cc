#include "models/families/other_mathematics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/files/config.h"
#include "models/model.h"
#include "tests/failure.h"

namespace strata::models {
namespace {

using ::testing::HasSubstr;

TEST(OtherMathematicsTest, ScalesOfAttentionAreComparedWithTheClassesSizesIfTheFileLeavesThemOut) {
  const auto refuse = [](const std::string& family, const std::string& more) {
    refuse_other_mathematics(Config::parse(fmt::format(R"({{"model_type":"{}",{}}})", family, more), "config.json"));
  };
  struct Sizes {
    const char *family, *head_dim, *scale, *layers_root;
  };
  for (const Sizes& one : {Sizes{"gpt2", "64", "0.125", "3.4641016151377544"},
                           {"bert", "64", "0.125", "3.4641016151377544"},
                           {"distilbert", "64", "0.125", "2.449489742783178"},
                           {"modernbert", "64", "0.125", "4.69041575982343"},
                           {"llama", "128", "0.08838834764831845", "5.656854249492381"},
                           {"qwen3", "128", "0.08838834764831845", "5.656854249492381"}}) {
    SCOPED_TRACE(one.family);
    EXPECT_NO_THROW(refuse(one.family, fmt::format(R"("softmax_scale":{},"query_pre_attn_scalar":{},"scale_depth":{})",
                                                   one.scale, one.head_dim, one.layers_root)));
    for (const char* wrong : {"0.3", "1e9", "0"})
      EXPECT_FAILURE(refuse(one.family, fmt::format(R"("softmax_scale":{})", wrong)), Exit::usage,
                     HasSubstr("softmax_scale"));
    EXPECT_FAILURE(refuse(one.family, R"("query_pre_attn_scalar":0)"), Exit::usage, HasSubstr("query_pre_attn"));
    EXPECT_NO_THROW(refuse(one.family, R"("softmax_scale":null)"));
  }
  // Without heads there is no scale to compare with.
  EXPECT_FAILURE(refuse("gpt2", R"("n_head":0,"softmax_scale":7)"), Exit::usage, HasSubstr("softmax_scale"));
}

TEST(OtherMathematicsTest, WhatAQuerySeesIsTheFamilysOwn) {
  for (const std::string family : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "bert", "distilbert", "modernbert"}) {
    const bool decoder = family.find("bert") == std::string::npos;
    for (const std::string value : {"true", "false", "null"}) {
      const Config config =
          Config::parse(fmt::format(R"({{"model_type":"{}","is_causal":{}}})", family, value), "config.json");
      if (value == "null" || value == (decoder ? "true" : "false"))
        EXPECT_NO_THROW(refuse_other_mathematics(config)) << family << value;
      else
        EXPECT_FAILURE(refuse_other_mathematics(config), Exit::usage,
                       HasSubstr("is_causal of config.json is " + value));
    }
  }
}

// transformers' setter: half of local_attention, which it goes over.
TEST(OtherMathematicsTest, ModernBertsWindowHasTwoNames) {
  const auto attention = [](const std::string& window) {
    const auto model = make_model(
        Config::parse(R"({"model_type":"modernbert","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":2,
                          "intermediate_size":12,"vocab_size":5,"max_position_embeddings":32,)" +
                          window + "}",
                      "config.json"),
        {1, 32, device::DType::fp32, 1});
    const Unit& block = *model->units[3];
    return block.work(Pass::forward, {0, block.size()}).attention_flops;
  };
  EXPECT_EQ(attention(R"("sliding_window":2)"), attention(R"("local_attention":4)"));
  EXPECT_EQ(attention(R"("local_attention":16,"sliding_window":2)"), attention(R"("local_attention":4)"));
  EXPECT_NE(attention(R"("local_attention":16)"), attention(R"("local_attention":4)"));
}

}  // namespace
}  // namespace strata::models
