#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/adapter.h"
#include "models/files/config.h"
#include "models/model.h"
#include "models/parameter.h"
#include "tests/models/families/tiny_model.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

TEST(FreezeTest, PatternsMatchCompleteNames) {
  const std::vector<std::string> patterns = {"model.layers.[01].*", "*.norm?.weight", "lm_head.weight"};
  for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.layers.1.x", "a.norm1.weight", "lm_head.weight"})
    EXPECT_TRUE(is_frozen_by(patterns, name)) << name;
  for (const char* name :
       {"model.layers.2.x", "model.layers.10.x", "a.norm.weight", "lm_head.weights", "x.lm_head.weight"})
    EXPECT_FALSE(is_frozen_by(patterns, name)) << name;
  EXPECT_FALSE(is_frozen_by({}, "lm_head.weight"));
  const std::vector<std::string> escaped = {R"(model\.layers*)"};
  EXPECT_FALSE(is_frozen_by(escaped, "model.layers.0.x")) << "a backslash is an ordinary character";
}

TEST(FreezeTest, AGlobNamesATensorOfAllLayers) {
  EXPECT_EQ(glob_of_layers("model.layers.12.mlp.up_proj.weight"), "model.layers.*.mlp.up_proj.weight");
  EXPECT_EQ(glob_of_layers("h.0.ln_1.7"), "h.*.ln_1.*");
  EXPECT_EQ(glob_of_layers("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(glob_of_layers(""), "");
}

// Three parts with two tensors of a trained pool and two of a frozen one.
class Half final : public Unit {
 public:
  Half() : Unit("half") {
    freeze({"*.frozen"});
    first = add_parameter("a.frozen", {300}, false, {});
    second = add_parameter("b.trained", {100}, false, {});
    end_part();
    third = add_parameter("c.frozen", {10, 10}, false, {});
    end_part();
    fourth = add_parameter("d.trained", {256}, false, {});
    end_part();
  }
  UnitBytes bytes() const override { return {}; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass, const PartRange& parts) const override { return {.flops = share_of(6, parts)}; }
  void forward(device::Lane&, const Context&, std::size_t, device::ConstView, device::View,
               device::View) const override {}
  void backward(device::Lane&, const Context&, std::size_t, device::ConstView, device::ConstView, device::ConstView,
                device::View, const GradientRange&) const override {}
  std::size_t first, second, third, fourth;
};

TEST(FreezeTest, TensorsLieInTheirPoolsPartByPart) {
  const Half unit;
  EXPECT_EQ(unit.size(), 512u);
  EXPECT_EQ(unit.size(PoolKind::frozen), 768u);
  EXPECT_TRUE(is_frozen(unit.first) && is_frozen(unit.third));
  EXPECT_FALSE(is_frozen(unit.second) || is_frozen(unit.fourth));
  EXPECT_EQ(place_in_pool(unit.third), 512u);
  EXPECT_EQ(unit.fourth, 256u);
  ASSERT_EQ(unit.parts().size(), 3u);
  const Part& middle = unit.parts()[1];
  EXPECT_EQ(middle.size(), 0u);
  EXPECT_EQ(middle.frozen.begin, 512u);
  EXPECT_EQ(middle.frozen.end, 768u);
  EXPECT_EQ(unit.parts()[2].begin, 256u);
  EXPECT_EQ(unit.parts()[2].frozen.size(), 0u);
  EXPECT_EQ(unit.work(Pass::forward, {0, 2}).flops, 4);
}

TEST(FreezeTest, FrozenTensorsHaveNoGradient) {
  std::vector<float> trained(512, 1), frozen(256, 2);
  const auto bytes = [](std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); };
  const ParameterRange parameters{{bytes(trained), 512}, 0, {bytes(frozen), 256}, 512};
  EXPECT_EQ(parameters.sub(256, 4).as<float>()[0], 1);
  EXPECT_EQ(parameters.sub(offset_in(PoolKind::frozen, 512), 4).as<float>()[0], 2) << "of the part that is at hand";
  const GradientRange gradients{{bytes(trained), 512}, 0};
  EXPECT_TRUE(gradients.sub(256, 4));
  EXPECT_FALSE(gradients.sub(offset_in(PoolKind::frozen, 512), 4));
}

constexpr std::size_t kEndHidden = 32;

// A block of a tiny model. The first one of a ModernBERT has no norm before attention.
struct BlockCase {
  const char* family;
  const char* name = "block 1";
};
constexpr BlockCase kBlockCases[] = {{"llama"}, {"qwen3"}, {"gpt2"}, {"modernbert"}, {"modernbert", "block 0"},
                                     {"bert"}};

const Unit& block_of(const Model& model, const BlockCase& which) {
  return **std::ranges::find_if(model.units, [&](const auto& unit) { return unit->name() == which.name; });
}

// A block of which something is trained.
struct TrainedBlock {
  TrainedBlock(const BlockCase& which, const RunShape& run)
      : model(make_model(Config::parse(testing::tiny(which.family), "config.json"), run)),
        unit(block_of(*model, which)),
        runner(unit, run, kEndHidden, model.get()) {
    for (testing::Buffer* buffer : {&runner.parameters, &runner.frozen})
      for (std::size_t i = 0; i < buffer->size(); ++i) buffer->set(i, runner.uniform(0.3));
  }
  std::unique_ptr<Model> model;
  const Unit& unit;
  testing::UnitRunner runner;
};

RunShape end_shape(std::size_t shards) {
  return {.batch = 1, .seq = testing::kSeq, .dtype = device::DType::fp32, .threads = 1, .shards = {0, shards, shards}};
}

// A block in which backward ends has the same gradients as one below which backward continues. Operands are NaN before
// each call, so a missing activation shows.
void expect_gradients_as_if_backward_went_on(TrainedBlock& ends, TrainedBlock& goes_on) {
  goes_on.runner.forward();
  goes_on.runner.backward();
  const auto gradients = goes_on.runner.gradients.bits();
  ends.runner.forward();
  EXPECT_TRUE(ends.runner.y.bits() == goes_on.runner.y.bits());
  ends.runner.backward();
  EXPECT_TRUE(ends.runner.gradients.bits() == gradients);
  for (const bool by_parts : {false, true}) {
    ends.runner.by_parts = by_parts;
    ends.runner.recompute();
    ends.runner.backward(true);
    EXPECT_TRUE(ends.runner.gradients.bits() == gradients) << "recomputed; part by part: " << by_parts;
  }
  const UnitBytes bytes = ends.unit.bytes(), more = goes_on.unit.bytes();
  EXPECT_LE(bytes.saved, more.saved);
  EXPECT_LE(bytes.backward_workspace, more.backward_workspace);
  EXPECT_LE(bytes.saved + bytes.forward_workspace, more.saved + more.forward_workspace) << "what is not kept, passes";
  std::vector<device::ProductShape> products;
  ends.unit.list_products(products);
  double flops = 0;
  for (const device::ProductShape& s : products)
    flops += 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const Work forward = ends.unit.work(Pass::forward, ends.unit.all_parts()),
             backward = ends.unit.work(Pass::backward, ends.unit.all_parts());
  const bool dora =
      std::ranges::any_of(ends.unit.linear_layers(), [](const auto& layer) { return layer.low_rank.dora; });
  if (!dora) {  // its lengths are no products
    EXPECT_EQ(forward.flops + backward.flops, flops);
  }
}

std::string tokens_table(const Model& model) {
  return model.units[0]->parameters()[0].name;
}

TEST(FreezeTest, BackwardEndsAtAnyTensorOfABlock) {
  for (const BlockCase& which : kBlockCases)
    for (const std::size_t shards : {1u, 2u}) {
      const auto all = make_model(Config::parse(testing::tiny(which.family), "config.json"), end_shape(shards));
      const auto block = block_of(*all, which).parameters();
      for (std::size_t first = 0; first < block.size(); ++first)
        for (const std::size_t last : {first, block.size() - 1}) {
          SCOPED_TRACE(
              fmt::format("{}, {} shards: {} to {}", which.family, shards, block[first].name, block[last].name));
          RunShape run = end_shape(shards);
          for (const auto& unit : all->units)
            for (const Parameter& p : unit->parameters())
              if (std::none_of(block.begin() + static_cast<std::ptrdiff_t>(first),
                               block.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                               [&](const Parameter& trained) { return trained.name == p.name; }))
                run.freeze.push_back(p.name);
          TrainedBlock ends(which, run);
          std::erase(run.freeze, tokens_table(*all));
          TrainedBlock goes_on(which, run);
          expect_gradients_as_if_backward_went_on(ends, goes_on);
        }
    }
}

TEST(FreezeTest, BackwardEndsAtAnyAdapterOfABlock) {
  for (const BlockCase& which : kBlockCases)
    for (const std::size_t shards : {1u, 2u})
      for (const bool dora : {false, true})
        for (const double dropout : {0.0, 0.25}) {
          const auto all = make_model(Config::parse(testing::tiny(which.family), "config.json"), end_shape(shards));
          for (const Unit::LinearLayer& layer : block_of(*all, which).linear_layers()) {
            SCOPED_TRACE(fmt::format("{}, {} shards: {}, {}, {}", which.family, shards, layer.name, dora, dropout));
            Adapter adapter{.rank = 4, .target_modules = {{layer.name}, {}}, .dropout = dropout, .dora = dora};
            RunShape run = end_shape(shards);
            run.adapter = std::make_shared<const Adapter>(adapter);
            TrainedBlock ends(which, run);
            const std::string table = tokens_table(*all);
            adapter.modules_to_save = {table.substr(0, table.rfind('.'))};
            run.adapter = std::make_shared<const Adapter>(adapter);
            TrainedBlock goes_on(which, run);
            expect_gradients_as_if_backward_went_on(ends, goes_on);
          }
        }
}

// A Llama's block, which trains the tensors above the named one, keeps these bytes for 16 tokens: it is 32 wide, with 4
// heads of 8, 2 key-value heads and an MLP of 48.
TEST(FreezeTest, ABlockKeepsWhatBackwardReads) {
  constexpr std::size_t kRow = testing::kSeq * sizeof(float), kNormed = 32 * kRow, kHeads = (32 + 2 * 16) * kRow,
                        kLengths = 4 * kRow, kInner = 96 * kRow, kActive = 48 * kRow;
  const auto from = [](const std::string& layer) {
    RunShape run = end_shape(1);
    run.adapter = std::make_shared<const Adapter>(Adapter{.rank = 4, .target_modules = {{"layers.1." + layer}, {}}});
    const auto model = make_model(Config::parse(testing::tiny("llama"), "config.json"), run);
    const Unit& block = *model->units[2];
    return std::tuple{block.bytes().saved, block.input_in_backward(), block.first_backward_part(),
                      block.work(Pass::backward, block.all_parts()).attention_flops > 0};
  };
  constexpr std::size_t kUp = kNormed + kInner + kActive, kProjection = 2 * kNormed + kRow + kUp;
  EXPECT_EQ(from("mlp.down_proj"), (std::tuple{kActive, false, 3u, false}));
  EXPECT_EQ(from("mlp.up_proj"), (std::tuple{kUp, false, 2u, false}));
  EXPECT_EQ(from("self_attn.o_proj"), (std::tuple{kProjection, false, 1u, false}));
  EXPECT_EQ(from("self_attn.v_proj"), (std::tuple{kNormed + kHeads + kLengths + kProjection, false, 0u, true}));
}

}  // namespace
}  // namespace strata::models
