#include "models/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace strata::models {
namespace {

using ::testing::HasSubstr;

ModuleNames list(std::vector<std::string> names) {
  return {std::move(names), {}};
}

constexpr const char* kQuery = "model.layers.11.self_attn.q_proj";

TEST(Adapter, NamesAreCompleteOrStartAfterADot) {
  const auto of = [](ModuleNames names, const char* module) {
    return low_rank_for({.target_modules = std::move(names)}, module).rank > 0;
  };
  EXPECT_TRUE(of(list({"q_proj"}), kQuery));
  EXPECT_TRUE(of(list({"k_proj", "self_attn.q_proj"}), kQuery));
  EXPECT_TRUE(of(list({kQuery}), kQuery));
  EXPECT_FALSE(of(list({"proj"}), kQuery));
  EXPECT_FALSE(of(list({"layers.1.self_attn.q_proj"}), kQuery));
  EXPECT_TRUE(of({{}, "all-linear"}, kQuery));
  EXPECT_TRUE(of({{}, R"(.*\.(q|v)_proj)"}, kQuery));
  EXPECT_FALSE(of({{}, R"((q|v)_proj)"}, kQuery)) << "the whole name";
}

TEST(Adapter, OmitsLayersThatAreExcludedOrSavedInFull) {
  EXPECT_EQ(low_rank_for({.exclude_modules = list({"q_proj"})}, kQuery).rank, 0u);
  EXPECT_EQ(low_rank_for({.exclude_modules = {{}, ".*[.]11[.].*"}}, kQuery).rank, 0u);
  EXPECT_EQ(low_rank_for({.exclude_modules = {{}, "all-linear"}}, kQuery).rank, 8u) << "a pattern, as in peft";
  const Adapter saves{.modules_to_save = {"classifier"}};
  EXPECT_EQ(low_rank_for(saves, "classifier").rank, 0u);
  EXPECT_EQ(low_rank_for(saves, "classifier.dense").rank, 0u);
  EXPECT_EQ(low_rank_for(saves, "pre_classifier").rank, 8u);
  EXPECT_TRUE(is_fully_trained(saves, "classifier.dense.bias"));
  EXPECT_TRUE(is_fully_trained(saves, "pre_classifier.weight")) << "as in peft, which compares the name's end";
  EXPECT_FALSE(is_fully_trained(saves, "encoder.weight"));
  const auto classes = with_classifiers_saved({.modules_to_save = {"score"}});
  EXPECT_EQ(classes->modules_to_save, (std::vector<std::string>{"score", "classifier"}));
}

TEST(Adapter, SelectsLayersByNumber) {
  Adapter adapter{.target_modules = list({"q_proj"}), .layers_to_transform = {3, 11}};
  EXPECT_EQ(low_rank_for(adapter, kQuery).rank, 8u);
  EXPECT_EQ(low_rank_for(adapter, "model.layers.1.self_attn.q_proj").rank, 0u);
  adapter.target_modules = list({"model.layers.1.self_attn.q_proj"});
  EXPECT_EQ(low_rank_for(adapter, "model.layers.1.self_attn.q_proj").rank, 8u) << "given by its full name";
}

TEST(Adapter, TheFirstMatchingPatternSetsRankAndAlpha) {
  const Adapter adapter{.rank = 4,
                        .alpha = 6,
                        .rank_pattern = {{"v_proj", 2}, {"layers[.]11[.].*", 9}, {"q_proj", 5}},
                        .alpha_pattern = {{"q_proj", 18}}};
  EXPECT_EQ(low_rank_for(adapter, kQuery).rank, 9u);
  EXPECT_EQ(low_rank_for(adapter, kQuery).scale, 2.0f);
  const LowRank other = low_rank_for(adapter, "model.layers.0.mlp.up_proj");
  EXPECT_EQ(other.rank, 4u);
  EXPECT_EQ(other.scale, 1.5f);
  EXPECT_EQ(low_rank_for({.rank = 9, .alpha = 6, .rslora = true}, kQuery).scale, 2.0f);
}

TEST(Adapter, RefusesUnsupportedPatternSyntax) {
  const auto complaint = [](const std::string& pattern) -> std::string {
    try {
      check_pattern("adapter.target_modules", pattern);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint(R"(.*\.layers\.(?:1|2)\.(?!mlp).*_proj)"), "");
  EXPECT_THAT(complaint("(?<=q)_proj"), HasSubstr("look-behind"));
  EXPECT_THAT(complaint("(?P<name>q)_proj"), HasSubstr("named groups"));
  EXPECT_THAT(complaint("(q_proj"), HasSubstr("not a valid regular expression"));
  EXPECT_THAT(complaint("*"), HasSubstr("not a valid regular expression"));
  EXPECT_THAT(complaint(".*c_att[]n]"), HasSubstr("a set that begins with a bracket"));
  EXPECT_THAT(complaint(".*+q_proj"),
              HasSubstr("adapter.target_modules = .*+q_proj: a regular expression with possess"));
  EXPECT_THAT(complaint(std::string(20000, '(') + "a" + std::string(20000, ')')), HasSubstr("40001 characters"));
}

// Trying every way to match would take far too long.
TEST(Adapter, MatchesAnyPatternQuickly) {
  for (const char* pattern : {"([a-z._0-9]+)+!", ".*.*.*.*.*.*.*.*!"})
    EXPECT_EQ(low_rank_for({.target_modules = {{}, pattern}}, kQuery).rank, 0u) << pattern;
  EXPECT_GT(low_rank_for({.target_modules = {{}, R"(.*\.(?!12\.)\d+\..*_proj)"}}, kQuery).rank, 0u);
}

}  // namespace
}  // namespace strata::models
