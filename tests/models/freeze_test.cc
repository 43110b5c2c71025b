#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "models/model.h"
#include "models/parameter.h"

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

}  // namespace
}  // namespace strata::models
