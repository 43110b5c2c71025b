#include <gtest/gtest.h>

#include <memory>

#include "device/ops/elementwise.h"
#include "models/layers/heads/head_parts.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::UnitRunner;
using testing::Weights;

constexpr std::size_t kHeadInputHidden = 30;
constexpr float kHeadInputEps = 1e-3f;

// The piece as a unit by itself: the transform and the norm after it.
class HeadInputUnit final : public Unit {
 public:
  explicit HeadInputUnit(const RunShape& run) : Unit("input"), piece_(run, kHeadInputHidden) {
    const auto d = static_cast<std::int64_t>(kHeadInputHidden);
    Linear::Tensor dense{kHeadInputHidden, add_parameter("input.dense.weight", {d, d}, true, {0, 0.02f})};
    dense.bias = add_parameter("input.dense.bias", {d}, false, {0, 0});
    const std::size_t gain = add_parameter("input.norm.weight", {d}, false, {1, 0});
    const std::size_t bias = add_parameter("input.norm.bias", {d}, false, {0, 0});
    end_part();
    piece_.set_transform(dense, true, run);
    piece_.set_norm({NormKind::layer, norm_of_rows(run.tokens(), kHeadInputHidden, kHeadInputEps), gain, bias});
    HeadWorkspace::Shape shape{};
    shape.rows = run.tokens();
    shape.hidden = kHeadInputHidden;
    shape.dtype = run.dtype;
    shape.scratch_bytes = piece_.scratch_bytes(run.threads);
    shape.transforms = true;
    places_ = HeadWorkspace(shape);
    Slots work;
    (void)work.add_bytes(places_.bytes);
    d_normed_ = work.add(run.tokens() * kHeadInputHidden, run.dtype);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }
  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>& out) const override { piece_.list_products(out); }
  Work work(Pass, const PartRange&) const override { return {}; }
  void forward(device::Lane& lane, const Context& c, std::size_t, device::ConstView x, device::View y,
               device::View) const override {
    piece_.forward(lane, c, places_, x, {});
    if (y) cast(lane, places_.normed.of(c.workspace), y);
  }
  // The head computes both in one call.
  void backward(device::Lane& lane, const Context& c, std::size_t, device::ConstView x, device::ConstView,
                device::ConstView dy, device::View dx, const GradientRange& gradients) const override {
    const device::View d_normed = d_normed_.of(c.workspace);
    cast(lane, dy, d_normed);
    piece_.forward(lane, c, places_, x, {});
    piece_.backward(lane, c, places_, x, d_normed, dx, gradients, {});
  }

 private:
  HeadInput piece_;
  HeadWorkspace places_;
  Slot d_normed_;
  UnitBytes bytes_;
};

struct Input {
  explicit Input(DType dtype, int threads = 1)
      : run{2, 21, dtype, threads}, unit(std::make_unique<HeadInputUnit>(run)), runner(*unit, run, kHeadInputHidden) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

TEST(HeadInputTest, MatchesTheReference) {
  Input input(DType::fp32);
  expect_block_matches(input.runner, "input.", [](const Weights& w, const Doubles& x) {
    Doubles y = testing::linear(x, kHeadInputHidden, w.at("dense.weight"), w.at("dense.bias"), false);
    for (double& v : y) v = testing::gelu_erf(v);
    return testing::layernorm(y, w.at("norm.weight"), w.at("norm.bias"), kHeadInputEps);
  });
}

TEST(HeadInputTest, IsIndependentOfThePlan) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    testing::expect_block_is_independent_of_the_plan([&](int threads) { return Input(dtype, threads); });
}

TEST(HeadInputTest, SixteenBitErrorsAreWithinTheirFormat) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Input narrow(dtype), wide(DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 4);
  }
}

}  // namespace
}  // namespace strata::models
