#include "models/layers/norm_part.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/ops/elementwise.h"
#include "models/layers/slots.h"
#include "tests/device/arrays.h"
#include "tests/models/block_checks.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::View;
using testing::Doubles;
using testing::UnitRunner;
using testing::Weights;

constexpr std::size_t kNormPartHidden = 30;
constexpr float kEps = 0.03f;  // large enough to show whether it is used

// The part as a unit of its own: y = norm(x) + x, so that dx combines both gradients.
class NormUnit final : public Unit {
 public:
  NormUnit(NormKind kind, const RunShape& run)
      : Unit("norm"), piece_([&] {
          add_parameter("norm.ahead", {3}, false, {1, 0});  // its tensors do not come first
          const std::size_t gain = add_parameter("norm.weight", {kNormPartHidden}, false, {1, 0});
          const bool biased = kind == NormKind::layer;
          const std::size_t bias = biased ? add_parameter("norm.bias", {kNormPartHidden}, false, {0, 0}) : 0;
          end_part();
          return NormPart(kind, norm_of_rows(run.tokens(), kNormPartHidden, kEps), gain, bias, run.row_blocks());
        }()) {
    Slots save, work;
    mean_ = save.add(run.tokens(), DType::fp32);
    rstd_ = save.add(run.tokens(), DType::fp32);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(piece_.scratch_bytes());
    no_bias_ = work.add(kNormPartHidden, run.dtype);
    spare_ = work.add(run.tokens() * kNormPartHidden, run.dtype);
    sums_ = work.add(piece_.sums(), DType::fp32);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }
  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass, const PartRange&) const override { return {}; }
  void forward(device::Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    const View spare = spare_.of(c.workspace);
    zero(lane, mean_.of(saved));  // not every kind writes it
    piece_.forward(lane, c.parameters, x, spare, mean_.of(saved), rstd_.of(saved), no_bias_.of(c.workspace));
    if (y) dropout(lane, {}, spare, x, y);
  }
  void backward(device::Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const View spare = spare_.of(c.workspace);
    cast(lane, dy, spare);  // dx may be dy
    zero(lane, gradients.sub(0, 3));
    piece_.backward(lane, c.parameters, spare, x, mean_.of(saved), rstd_.of(saved), dy, dx, gradients,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace), sums_.of(c.workspace));
  }

 private:
  NormPart piece_;
  Slot mean_, rstd_, scratch_, no_bias_, spare_, sums_;
  UnitBytes bytes_;
};

struct NormPartNorm {
  NormPartNorm(NormKind kind, DType dtype, int threads = 1, std::size_t blocks = 1)
      : run{.batch = 2, .seq = 21, .dtype = dtype, .threads = threads, .shards = {0, blocks, blocks}},
        unit(std::make_unique<NormUnit>(kind, run)),
        runner(*unit, run, kNormPartHidden) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Unit> unit;
  UnitRunner runner;
};

constexpr NormKind kKinds[] = {NormKind::layer, NormKind::layer_without_bias, NormKind::root_mean_square};

TEST(NormPartTest, EachKindMatchesTheReference) {
  for (const auto& [kind, blocks] : {std::pair{NormKind::layer, 1},
                                     {NormKind::layer_without_bias, 1},
                                     {NormKind::root_mean_square, 1},
                                     {NormKind::layer, 4},
                                     {NormKind::layer_without_bias, 64},
                                     {NormKind::root_mean_square, 4}}) {
    SCOPED_TRACE(static_cast<int>(kind));
    NormPartNorm norm(kind, DType::fp32, 1, static_cast<std::size_t>(blocks));
    expect_block_matches(
        norm.runner, "norm.",
        [&](const Weights& w, const Doubles& x) {
          const Doubles& gain = w.at("weight");
          const Doubles zeros(kNormPartHidden);
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
      testing::expect_block_is_independent_of_the_plan([&](int threads) { return NormPartNorm(kind, dtype, threads); });
}

// The results of two ranks with half of the rows each add up to the bits of one rank with all rows.
TEST(NormPartTest, BlocksOfTwoRanksAddUp) {
  constexpr std::size_t kRows = 44, kBlocks = 8;
  using device::testing::Array;
  for (const NormKind kind : kKinds)
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      Array parameters = Array::random(dtype, 2 * kNormPartHidden, 1),
            x = Array::random(dtype, kRows * kNormPartHidden, 2), dy = Array::random(dtype, kRows * kNormPartHidden, 3),
            no_bias(dtype, kNormPartHidden);
      const std::size_t trained = kind == NormKind::layer ? 2 * kNormPartHidden : kNormPartHidden;
      Array dx(dtype, kRows * kNormPartHidden), gradients(dtype, trained), shared(dtype, trained),
          dx_shared(dtype, dx.size());
      Array partials(DType::fp32, 2 * trained);
      device::testing::in_lane(2, [&](device::Lane& lane) {
        const auto run = [&](const ShardRange& blocks, View to, View d_input, View left) {
          const std::size_t rows = kRows * blocks.count / kBlocks, first = rows * (blocks.first / blocks.count);
          const NormPart norm(kind, norm_of_rows(rows, kNormPartHidden, kEps), 0, kNormPartHidden, blocks);
          Array mean(DType::fp32, rows), rstd(DType::fp32, rows), sums(DType::fp32, norm.sums()),
              scratch(DType::fp32, norm.scratch_bytes() / 4 + 1), y(dtype, rows * kNormPartHidden);
          const auto own = [&](View all) { return all.sub(first * kNormPartHidden, rows * kNormPartHidden); };
          norm.forward(lane, {parameters.view()}, own(x.view()), y.view(), mean.view(), rstd.view(), no_bias.view());
          norm.backward(lane, {parameters.view()}, own(dy.view()), own(x.view()), mean.view(), rstd.view(), {},
                        own(d_input), {to}, scratch.view(), no_bias.view(), sums.view());
          if (left) norm.write_partial_gradients(lane, sums.view(), left);
          lane.synchronize();
          return norm.crossing();
        };
        EXPECT_EQ(run({0, kBlocks, kBlocks}, gradients.view(), dx.view(), {}), 0u);
        for (std::size_t rank = 0; rank < 2; ++rank)
          EXPECT_EQ(run({rank * 4, 4, kBlocks}, {}, dx_shared.view(), partials.view().sub(rank * trained, trained)),
                    trained);
        tree_sum(lane, 2, partials.view(), {}, shared.view());
      });
      EXPECT_TRUE(shared == gradients) << static_cast<int>(kind) << device::name_of(dtype);
      EXPECT_TRUE(dx_shared == dx) << static_cast<int>(kind) << device::name_of(dtype);
    }
}

TEST(NormPartTest, BiasAndCentringDetermineTheKind) {
  EXPECT_EQ(norm_kind(true, false), NormKind::layer);
  EXPECT_EQ(norm_kind(true, true), NormKind::layer);
  EXPECT_EQ(norm_kind(false, true), NormKind::layer_without_bias);
  EXPECT_EQ(norm_kind(false, false), NormKind::root_mean_square);
}

}  // namespace
}  // namespace strata::models
