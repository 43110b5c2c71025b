#include "models/layers/heads/prediction_transform.h"

#include <gtest/gtest.h>

#include <memory>

#include "device/ops/dropout.h"
#include "models/layers/slots.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::UnitRunner;
using testing::Weights;

constexpr std::size_t kPredictionTransformHidden = 30;

// The piece alone, as a unit.
class TransformUnit final : public Unit {
 public:
  explicit TransformUnit(const RunShape& run)
      : Unit("transform"), piece_([&] {
          Linear::Tensor dense{kPredictionTransformHidden,
                               add_parameter("dense.weight", {kPredictionTransformHidden, kPredictionTransformHidden},
                                             true, {0, 0.02f})};
          dense.bias = add_parameter("dense.bias", {kPredictionTransformHidden}, false, {0, 0});
          end_part();
          return PredictionTransform(run.tokens(), kPredictionTransformHidden, dense, true, run);
        }()) {
    Slots save, work;
    inner_ = save.add(run.tokens() * kPredictionTransformHidden, run.dtype);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(piece_.scratch_bytes(run.threads));
    d_inner_ = work.add(run.tokens() * kPredictionTransformHidden, run.dtype);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }
  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>& out) const override { piece_.list_products(out); }
  Work work(Pass, const PartRange&) const override { return {}; }
  void forward(device::Lane& lane, const Context& c, std::size_t, device::ConstView x, device::View y,
               device::View saved) const override {
    const device::View wanted = y ? y : d_inner_.of(c.workspace);
    piece_.forward(lane, c.parameters, x, inner_.of(saved), wanted, scratch_.of(c.workspace));
  }
  void backward(device::Lane& lane, const Context& c, std::size_t, device::ConstView x, device::ConstView saved,
                device::ConstView dy, device::View dx, const GradientRange& gradients) const override {
    const device::View d_inner = d_inner_.of(c.workspace);
    dropout(lane, {}, dy, {}, d_inner);  // a copy
    piece_.backward(lane, c.parameters, x, inner_.of(saved), d_inner, dx, gradients, scratch_.of(c.workspace));
  }

 private:
  PredictionTransform piece_;
  Slot inner_, scratch_, d_inner_;
  UnitBytes bytes_;
};

struct Transform {
  explicit Transform(DType dtype, int threads = 1)
      : run{2, 21, dtype, threads},
        unit(std::make_unique<TransformUnit>(run)),
        runner(*unit, run, kPredictionTransformHidden) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

TEST(PredictionTransformTest, MatchesTheReference) {
  Transform transform(DType::fp32);
  expect_block_matches(transform.runner, "dense.", [](const Weights& w, const Doubles& x) {
    Doubles y = testing::linear(x, kPredictionTransformHidden, w.at("weight"), w.at("bias"), false);
    for (double& v : y) v = testing::gelu_erf(v);
    return y;
  });
}

TEST(PredictionTransformTest, IsIndependentOfThePlan) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    testing::expect_block_is_independent_of_the_plan([&](int threads) { return Transform(dtype, threads); });
}

TEST(PredictionTransformTest, SixteenBitsAreWithinTheirFormat) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Transform narrow(dtype), wide(DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 4);
  }
}

}  // namespace
}  // namespace strata::models
