#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"
#include "models/layers/slots.h"
#include "runtime/execute/executor.h"
#include "runtime/planner/planner.h"
#include "runtime/tasks/collectives/reduce.h"
#include "runtime/weights/weights.h"
#include "tests/comm/run_threads.h"

namespace strata::runtime {
namespace {

using device::ConstView;
using device::DType;
using device::View;

constexpr std::size_t kVocabulary = 200, kHidden = 48, kSeq = 8, kTable = kVocabulary * kHidden, kAhead = 4096;

// Adds rows of a table, selected by position. The table is its own, after another tensor, or another unit's.
class Adder final : public models::Unit {
 public:
  Adder(const std::string& name, std::optional<models::SharedParameter> shared)
      : Unit(name), offset_(shared ? shared->elements.begin : kAhead) {
    add_parameter(name + ".ahead", {kAhead}, false, {});
    end_part();
    if (!shared) add_parameter(name + ".table", {kVocabulary, kHidden}, false, {});
    end_part();
    use(std::move(shared));
    scratch_ = work_.add_bytes(device::embedding_backward_workspace(kSeq, kVocabulary));
  }
  models::UnitBytes bytes() const override { return {.backward_workspace = work_.bytes()}; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  models::Work work(models::Pass, const models::PartRange&) const override { return {}; }
  // The last part does the whole forward, and the first part the whole backward.
  void forward(device::Lane& lane, const models::Context& c, std::size_t part, ConstView x, View y,
               View) const override {
    if (part + 1 < parts().size()) return;
    cast(lane, x, y);
    embedding_add(lane, kSeq, kHidden, c.batch.positions, (shared() ? c.shared : c.parameters).sub(offset_, kTable), y);
  }
  void backward(device::Lane& lane, const models::Context& c, std::size_t part, ConstView, ConstView, ConstView dy,
                View dx, const models::GradientRange& own) const override {
    if (part > 0) return;
    const models::GradientRange& table = shared() ? c.shared_gradients : own;
    const View gradient = table.sub(offset_, kTable);
    zero(lane, own.sub(0, kAhead));
    if (shared()) zero(lane, table.sub(offset_ + kTable, shared()->elements.end - offset_ - kTable));
    embedding_backward(lane, kSeq, kHidden, c.batch.positions, {0, kVocabulary, kVocabulary}, dy, gradient,
                       scratch_.of(c.workspace));
    if (dx.data != dy.data) cast(lane, dy, dx);
  }

 private:
  std::size_t offset_;
  models::Slots work_;
  models::Slot scratch_;
};

// An embedding, two units that add rows of a table, and a head. `shares`: how many units after the first adder use its
// table: the second adder, and then the head.
class Chain final : public models::Model {
 public:
  Chain(DType dtype, int shares) {
    family = "chain";
    vocabulary = kVocabulary;
    hidden = kHidden;
    max_positions = kSeq;
    heads = head_dim = 1;
    const models::RunShape run{1, kSeq, dtype, 1};
    batch = {.tokens = run.tokens()};
    const auto table = [&](int least) -> std::optional<models::SharedParameter> {
      if (shares < least) return std::nullopt;
      return models::share("shared", units, 1, 1);
    };
    units.push_back(make_embedding({"wte", "", kVocabulary, 0, kHidden, {}, 0}, run));
    units.push_back(std::make_unique<Adder>("first", std::nullopt));
    units.push_back(std::make_unique<Adder>("second", table(1)));
    units.push_back(make_head({"norm", "", "decoder", kVocabulary, kHidden, 1e-5f, {}, table(2)}, run));
  }
  void fill_constants(std::byte*) const override {}
};

// All tables of a chain have the same initial values, whether they are shared or not.
class SameTables final : public WeightSource {
 public:
  explicit SameTables(const models::Model& model) : model_(model) {}
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const models::Parameter& p = model_.units[unit]->parameters()[parameter];
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = p.name == "norm" ? 1 : 0.3f * std::sin(0.37f * static_cast<float>(begin + i));
  }

 private:
  const models::Model& model_;
};

struct Way {
  int ranks, accumulation, zero_stage;
  Tier gradients = Tier::device, optimizer = Tier::device;
  bool vertical = false;
};
void PrintTo(const Way& w, std::ostream* out) {
  *out << fmt::format("{} ranks, {} micro-batches, stage {}, gradients in tier {}, optimizer in {}, {}", w.ranks,
                      w.accumulation, w.zero_stage, static_cast<int>(w.gradients), static_cast<int>(w.optimizer),
                      w.vertical ? "vertical" : "horizontal");
}

using Weights = std::vector<std::vector<float>>;  // by unit

Weights weights_of(const models::Model& model) {
  Weights out;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    auto& values = out.emplace_back(model.units[unit]->size());
    const auto parameters = model.units[unit]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p)
      SameTables(model).read(unit, p, 0, std::span(values).subspan(parameters[p].offset, parameters[p].size()));
  }
  return out;
}

// The chain's fp32 weights after one step of SGD at rate 1, which are those before it less the gradient.
Weights after_a_step(DType dtype, int shares, const Way& way) {
  const Chain chain(dtype, shares);
  Weights all = weights_of(chain);
  Recipe::Zero zero;
  zero.stage = way.zero_stage;
  PlanRequest request{&chain, {1, kSeq, dtype, 1}, Mesh{way.ranks}, way.accumulation, placement_of(zero)};
  request.placement.gradients.tier = way.gradients;
  request.placement.optimizer.tier = way.optimizer;
  request.vertical = way.vertical;
  request.algorithm = device::Algorithm::sgd;
  request.update_chunk = kShardAlignment;
  request.segments = segments_of({}, chain);
  const StepPlan plan = make_plan(request);
  comm::run_threads(way.ranks, [&](comm::World& world) {
    const Chain mine(dtype, shares);  // a product belongs to one compute lane
    Executor executor(plan, mine, world, {.algorithm = device::Algorithm::sgd, .weight_decay = 0}, 1);
    load_same_weights(executor, mine, plan, SameTables(mine), 1, world);
    for (int g = 0; g < way.accumulation; ++g) {
      const models::BatchRows batch = executor.batch(g);
      const auto first = static_cast<std::uint32_t>(g * way.ranks + world.rank()) * 5;
      for (std::uint32_t i = 0; i < kSeq; ++i) {
        batch.tokens[i] = (first + 3 * i) % kVocabulary;
        batch.labels[i] = static_cast<std::int32_t>((first + 7 * i) % kVocabulary);
        batch.positions[i] = (first + i * i) % kVocabulary;  // some rows occur more than once
        batch.documents[i] = {0, kSeq};
      }
    }
    device::StepScalars scalars{};
    scalars.loss_gradient = 1.0f / kSeq;
    scalars.unscale = scalars.learning_rate = 1;
    (void)executor.step(scalars, false);
    executor.drain();
    for (std::size_t unit = 0; unit < all.size(); ++unit) {
      const models::ElementRange held = executor.storage().held(unit, StateKind::master);
      const std::size_t end = std::min(held.end, all[unit].size());
      if (held.begin >= end || (world.rank() > 0 && held.begin == 0)) continue;
      executor.storage().read_state(unit, StateKind::master, 0,
                                    std::as_writable_bytes(std::span(all[unit]).subspan(held.begin, end - held.begin)));
    }
  });
  return all;
}

// The amount that the step subtracted from the table at `offset` of the unit.
std::vector<float> gradient(const Weights& before, const Weights& after, std::size_t unit, std::size_t offset) {
  std::vector<float> out(kTable);
  for (std::size_t i = 0; i < kTable; ++i) out[i] = before[unit][offset + i] - after[unit][offset + i];
  return out;
}

class Sharing : public testing::TestWithParam<Way> {};

// The gradient of a shared table is the sum of the gradients of separate equal tables. The tolerance: differences of
// fp32 weights below 1, each exact to 2^-25, for sums of at most twelve gradients with the same rounding.
TEST_P(Sharing, AddsTheGradientsOfAllUnits) {
  const Chain apart(DType::fp32, 0);
  const Weights before = weights_of(apart), alone = after_a_step(DType::fp32, 0, GetParam());
  const std::size_t decoder = apart.units[3]->parameters()[1].offset;
  const auto own = gradient(before, alone, 1, kAhead), second = gradient(before, alone, 2, kAhead),
             head = gradient(before, alone, 3, decoder);
  for (const auto& each : {own, second, head})
    EXPECT_GT(*std::max_element(each.begin(), each.end()), 1e-3f) << "a table that does not learn proves nothing";
  for (const int shares : {1, 2}) {
    const auto shared = gradient(before, after_a_step(DType::fp32, shares, GetParam()), 1, kAhead);
    for (std::size_t i = 0; i < kTable; ++i)
      ASSERT_NEAR(shared[i], own[i] + second[i] + (shares > 1 ? head[i] : 0), 1e-6f) << shares << ", element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Sharing,
                         ::testing::Values(Way{1, 1, 0}, Way{1, 1, 0, Tier::host, Tier::host}, Way{1, 4, 0},
                                           Way{2, 2, 1}, Way{3, 1, 3}));

// The bits do not depend on how the four micro-batches are processed.
TEST(SharingTest, HasTheSameBitsInEveryPlan) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int shares : {1, 2}) {
      const Weights one = after_a_step(dtype, shares, {1, 4, 0});
      for (const int ranks : {1, 2, 4})
        for (int zero_stage = 0; zero_stage <= 3; ++zero_stage)
          for (const bool away : {false, true}) {
            const Tier tier = away ? Tier::host : Tier::device;
            const Way way{ranks, 4 / ranks, zero_stage, tier, tier, zero_stage % 2 == 1};
            const Weights other = after_a_step(dtype, shares, way);
            for (std::size_t unit = 0; unit < one.size(); ++unit)
              ASSERT_EQ(std::memcmp(one[unit].data(), other[unit].data(), one[unit].size() * sizeof(float)), 0)
                  << "unit " << unit << ", " << testing::PrintToString(way);
          }
    }
}

}  // namespace
}  // namespace strata::runtime
