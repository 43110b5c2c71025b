#include "models/model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "models/files/config.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using device::DType;
using testing::make;
using testing::tiny;

TEST(ModelTest, ParametersLieAlignedAndApartAndTheirPartsCoverThem) {
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3", "bert", "distilbert"}) {
    const auto model = make(tiny(family));
    for (const auto& unit : model->units) {
      std::size_t end = 0;
      for (const Parameter& p : unit->parameters()) {
        EXPECT_EQ(p.offset % kParameterAlignment, 0u) << p.name;
        EXPECT_GE(p.offset, end) << p.name;
        end = p.offset + p.size();
        // No tensor of these sizes is cut.
        EXPECT_TRUE(std::ranges::any_of(unit->parts(), [&](const Part& part) {
          return part.begin <= p.offset && end <= part.end;
        })) << p.name;
      }
      EXPECT_GE(unit->size(), end);
      EXPECT_EQ(unit->size() % kParameterAlignment, 0u);
      std::size_t boundary = 0;
      for (const Part& part : unit->parts()) EXPECT_EQ(part.begin, std::exchange(boundary, part.end)) << unit->name();
      EXPECT_EQ(boundary, unit->size());
    }
    const bool encoder = std::string_view(family).ends_with("bert");
    const Unit& block = *model->units[encoder ? 2 : 1];
    EXPECT_EQ(block.parts().size(), 4u) << family;
    EXPECT_EQ(block.saving_parts(), encoder ? 4u : 3u) << family;
  }
}

TEST(ModelTest, CountsTheWorkOfAToken) {
  const auto preset = [](const char* name, std::size_t seq) {
    return make_model(Config::parse(preset_config(name), name), {1, seq, DType::fp32, 1})->flops_per_token(seq);
  };
  // 4 blocks of 12 * 128^2 and a head of 512 * 128; attention 4 blocks * 128 * seq, a tied table counted once.
  EXPECT_EQ(preset("tiny-gpt2", 64), 6.0 * (4 * 196608 + 65536) + 12.0 * 4 * 128 * 64);
  // q and o 128^2 each, k and v 64 * 128 each, three matrices of 352 * 128; the embedding is looked up.
  EXPECT_EQ(preset("tiny-llama", 32), 6.0 * (4 * (2 * 16384 + 2 * 8192 + 3 * 45056) + 65536) + 12.0 * 4 * 128 * 32);
}

double flops_of(const std::vector<device::ProductShape>& products) {
  double flops = 0;
  for (const device::ProductShape& s : products)
    flops += 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return flops;
}

// A unit's work equals that of its products. Its parts add up to the whole, and a loss's steps to its call, except for
// the logits, which the steps compute twice.
TEST(ModelTest, UnitsReportTheirCosts) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3"})
    for (const char* tied : {"true", "false"}) {
      // The table has three tiles.
      const auto model = make(tiny(family), {{"tie_word_embeddings", tied}, {"vocab_size", "8200"}});
      for (const auto& unit : model->units) {
        SCOPED_TRACE(fmt::format("{}, {}", family, unit->name()));
        std::vector<device::ProductShape> products;
        unit->list_products(products);
        double flops = 0;
        for (const Pass pass : {Pass::forward, Pass::backward}) {
          const Work whole = unit->work(pass, unit->all_parts());
          Work sum;
          for (std::size_t part = 0; part < unit->parts().size(); ++part) {
            const Work w = unit->work(pass, {part, part + 1});
            sum = {sum.flops + w.flops, sum.attention_flops + w.attention_flops, sum.bytes + w.bytes};
          }
          flops += whole.flops;
          EXPECT_DOUBLE_EQ(sum.flops, whole.flops);
          EXPECT_DOUBLE_EQ(sum.attention_flops, whole.attention_flops);
          EXPECT_DOUBLE_EQ(sum.bytes, whole.bytes);
          EXPECT_GT(whole.bytes, 0);
          EXPECT_EQ(whole.attention_flops > 0, unit->name().starts_with("block"));
        }
        EXPECT_EQ(flops, flops_of(products));
      }
      const LossUnit& loss = model->loss_unit();
      ASSERT_EQ(loss.table_tiles(), 3u);
      double forward = 0, both = 0;
      for (const std::size_t rows : {4096, 4096, 8}) {
        forward += loss.step_work(LossStep::statistics, rows * 32).flops;
        both += loss.step_work(LossStep::gradients, rows * 32).flops;
      }
      EXPECT_EQ(forward, loss.loss_work(false).flops);
      EXPECT_EQ(both, loss.loss_work(true).flops);
      EXPECT_EQ(loss.step_work(LossStep::norm, 32).flops + loss.step_work(LossStep::finish, 32).flops, 0);
    }
}

// In a layer with a window, a query sees few keys.
TEST(ModelTest, WindowsOfSingleLayersCostLess) {
  constexpr double kSeq = 24, kWindow = 6, kHeads = 4, kHeadDim = 8, kBatch = 1;
  const auto model =
      make(tiny("qwen2"), {{"use_sliding_window", "true"}, {"sliding_window", "6"}, {"max_window_layers", "1"}}, 24);
  const auto attention = [&](std::size_t unit, Pass pass) {
    return model->units[unit]->work(pass, model->units[unit]->all_parts()).attention_flops;
  };
  // There are two products over the keys below the diagonal: a band as wide as the window, without its first triangle.
  const double each = 4 * kBatch * kHeads * kHeadDim;
  EXPECT_DOUBLE_EQ(attention(1, Pass::forward), each * kSeq * kSeq / 2);
  EXPECT_DOUBLE_EQ(attention(2, Pass::forward), each * (kWindow * kSeq - kWindow * kWindow / 2));
  EXPECT_DOUBLE_EQ(attention(2, Pass::backward), 2.5 * attention(2, Pass::forward));
}

// Facts that a planner uses: the first unit has no input, the last has a loss, and tables have fp32 moments.
TEST(ModelTest, UnitsDescribeTheirInputsAndOutputs) {
  for (const char* family : {"gpt2", "llama"}) {
    const auto model = make(tiny(family));
    for (std::size_t u = 0; u < model->units.size(); ++u) {
      const Unit& unit = *model->units[u];
      EXPECT_EQ(unit.ports().input, u > 0) << unit.name();
      EXPECT_EQ(unit.as_loss() != nullptr, u + 1 == model->units.size()) << unit.name();
      for (const Parameter& p : unit.parameters()) EXPECT_EQ(p.fp32_moments, u == 0) << p.name;
      EXPECT_EQ(unit.shared().has_value(), unit.as_loss() && model->family == "gpt2") << unit.name();
    }
    EXPECT_EQ(&model->loss_unit(), model->units.back()->as_loss());
  }
}

}  // namespace
}  // namespace strata::models
