#include "models/layers/norm_part.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "models/layers/slots.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::View;
using testing::Doubles;
using testing::UnitRunner;
using testing::Weights;

constexpr std::size_t kHidden = 30;
constexpr float kEps = 0.03f;  // large enough to see whether it is used

// The piece alone, as a unit: y = norm(x) + x, so that both gradients that meet in dx are there.
class NormUnit final : public Unit {
 public:
  NormUnit(NormKind kind, const RunShape& run)
      : Unit("norm"), piece_([&] {
          add_parameter("norm.ahead", {3}, false, {1, 0});  // its tensors do not lie first
          const std::size_t gain = add_parameter("norm.weight", {kHidden}, false, {1, 0});
          const bool biased = kind == NormKind::layer;
          const std::size_t bias = biased ? add_parameter("norm.bias", {kHidden}, false, {0, 0}) : 0;
          end_part();
          return NormPart(kind, norm_of_rows(run.tokens(), kHidden, kEps), gain, bias);
        }()) {
    Slots save, work;
    mean_ = save.add(run.tokens(), DType::fp32);
    rstd_ = save.add(run.tokens(), DType::fp32);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(piece_.scratch_bytes());
    no_bias_ = work.add(kHidden, run.dtype);
    spare_ = work.add(run.tokens() * kHidden, run.dtype);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }
  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass, const PartRange&) const override { return {}; }
  void forward(device::Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    const View spare = spare_.of(c.workspace);
    zero(lane, mean_.of(saved));  // which not every kind writes
    piece_.forward(lane, c.parameters, x, spare, mean_.of(saved), rstd_.of(saved), no_bias_.of(c.workspace));
    if (y) dropout(lane, {}, spare, x, y);
  }
  void backward(device::Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const View spare = spare_.of(c.workspace);
    cast(lane, dy, spare);  // dx may be dy
    zero(lane, gradients.sub(0, 3));
    piece_.backward(lane, c.parameters, spare, x, mean_.of(saved), rstd_.of(saved), dy, dx, gradients,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace));
  }

 private:
  NormPart piece_;
  Slot mean_, rstd_, scratch_, no_bias_, spare_;
  UnitBytes bytes_;
};

struct Norm {
  Norm(NormKind kind, DType dtype, int threads = 1)
      : run{2, 21, dtype, threads}, unit(std::make_unique<NormUnit>(kind, run)), runner(*unit, run, kHidden) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

constexpr NormKind kKinds[] = {NormKind::layer, NormKind::layer_without_bias, NormKind::root_mean_square};

TEST(NormPartTest, EachKindMatchesTheReference) {
  for (const NormKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Norm norm(kind, DType::fp32);
    expect_block_matches(
        norm.runner, "norm.",
        [&](const Weights& w, const Doubles& x) {
          const Doubles& gain = w.at("weight");
          const Doubles zeros(kHidden);
          const Doubles y = kind == NormKind::root_mean_square ? testing::rmsnorm(x, gain, kEps)
                            : kind == NormKind::layer          ? testing::layernorm(x, gain, w.at("bias"), kEps)
                                                               : testing::layernorm(x, gain, zeros, kEps);
          return testing::sum(y, x);
        },
        "ahead");
  }
}

TEST(NormPartTest, IsIndependentOfThePlan) {
  for (const NormKind kind : kKinds)
    for (const DType dtype : {DType::fp32, DType::bf16})
      testing::expect_block_is_independent_of_the_plan([&](int threads) { return Norm(kind, dtype, threads); });
}

TEST(NormPartTest, KindsAreWhatFamiliesNameThem) {
  EXPECT_EQ(norm_kind(true, false), NormKind::layer);
  EXPECT_EQ(norm_kind(true, true), NormKind::layer);
  EXPECT_EQ(norm_kind(false, true), NormKind::layer_without_bias);
  EXPECT_EQ(norm_kind(false, false), NormKind::root_mean_square);
}

}  // namespace
}  // namespace strata::models
