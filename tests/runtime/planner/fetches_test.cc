#include "runtime/planner/fetches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/plan/passes.h"
#include "runtime/plan/proof/proof.h"
#include "runtime/planner/planner.h"
#include "tests/runtime/plan_case.h"
#include "tests/runtime/planner/random_case.h"

namespace strata::runtime {
namespace {

// At most prefetch + 1 units are gathered at once, besides shared ones. Every use is of gathered parameters.
TEST(Fetches, PrefetchLimitsGatheredUnits) {
  const bool held = rc::check("at most prefetch + 1", [] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    const auto lives = lifetimes_of(plan);
    std::set<int> gathered;
    for (const Task& task : plan.tasks)
      if (task.kind == TaskKind::gather && task.buffer(Role::shard) >= 0 &&
          !(plan.layout.units[static_cast<std::size_t>(task.unit)].sharers.size() > 0 && task.part < 0))
        gathered.insert(task.buffer(Role::parameters));
    for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
      const auto alive = std::count_if(gathered.begin(), gathered.end(), [&](int b) {
        const Lifetime& life = lives[static_cast<std::size_t>(b)];
        return life.first <= t && t <= life.last;
      });
      RC_ASSERT(alive <= c.request.prefetch + 1);
    }
  });
  EXPECT_TRUE(held);
}

// Whether no unit needs its complete parameters.
bool may_come_in_parts(const models::Model& model, const StepPlan& plan, std::size_t unit) {
  const std::size_t last = model.units.size() - 1;
  const bool by_tiles = model.loss_unit().table_tiles() > 0;
  const auto& sharers = plan.layout.units[unit].sharers;
  return model.units[unit]->parts().size() > 1 && (unit == last ? by_tiles : !model.units[unit]->shared()) &&
         std::all_of(sharers.begin(), sharers.end(),
                     [&](int sharer) { return by_tiles && static_cast<std::size_t>(sharer) == last; });
}

// A unit that is larger than its buffer is gathered in parts, padding included. Each part's gradient is summed, and at
// most two parts are present at once.
TEST(Fetches, LargeUnitsAreGatheredInParts) {
  const bool held = rc::check("parts", [] {
    PlanCase c = random_case();
    c.request.placement = stage(3);
    c.request.tile_bytes = *rc::gen::inRange<std::size_t>(1, 200000);
    const StepPlan plan = make_plan(c.request);
    RC_PRE(plan.sharded_parameters());
    const auto lives = lifetimes_of(plan);
    const auto units = plan.layout.units.size();
    std::vector<std::size_t> gathered(units), summed(units);
    std::set<int> parts;
    std::vector<std::size_t> shared(units);  // by sharer
    for (const Task& task : plan.tasks) {
      const auto unit = static_cast<std::size_t>(std::max(task.unit, 0));
      const bool tiled = may_come_in_parts(*c.model, plan, unit) &&
                         plan.layout.units[unit].padded() * size_of(plan.dtype) > c.request.tile_bytes;
      if (task.kind == TaskKind::gather) {
        RC_ASSERT((task.part >= 0) == tiled);
        if (tiled) parts.insert(task.buffer(Role::parameters));
        gathered[unit] = std::max(gathered[unit], task.end);
      }
      if (task.kind == TaskKind::reduce && (plan.fast || task.micro_batch == 0))
        (task.shared ? shared : summed)[unit] += task.end - task.begin;
    }
    for (std::size_t u = 0; u < units; ++u) {
      RC_ASSERT(gathered[u] == plan.layout.units[u].padded());
      RC_ASSERT(summed[u] == plan.layout.units[u].padded());
      const auto& used = plan.layout.units[u].shared;
      RC_ASSERT(shared[u] == (used ? used->elements.size() : 0));
    }
    for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t)
      RC_ASSERT(std::count_if(parts.begin(), parts.end(), [&](int b) {
                  const Lifetime& life = lives[static_cast<std::size_t>(b)];
                  return life.first <= t && t <= life.last;
                }) <= 2);
  });
  EXPECT_TRUE(held);
}

TEST(Fetches, PartsNeedLessThanUnits) {
  std::size_t previous = std::numeric_limits<std::size_t>::max();
  for (const std::size_t tile_bytes : {0, 400000, 1}) {  // none, the embedding, all
    FakeSizes sizes = small(true);
    for (auto& lengths : sizes.parameters) lengths.insert(lengths.end(), {60000, 60000});
    sizes.parameters[0].push_back(100000);
    PlanCase c = make_case(sizes, 8, 2, 3, device::DType::bf16, false, false, 0, {});
    c.request.tile_bytes = tile_bytes;
    const auto memory = make_plan(c.request).memory[0].by_kind;
    const std::size_t moved =
        memory[static_cast<std::size_t>(Kind::parameters)] + memory[static_cast<std::size_t>(Kind::staging)];
    EXPECT_LT(moved, previous) << tile_bytes;
    previous = moved;
  }
}

// Tiles move as many bytes as whole units, except for pages at their boundaries. Each pass reads each byte once.
TEST(Fetches, TilesAreReadOncePerPass) {
  for (const int ranks : {1, 2, 8})
    for (const Tier tier : {Tier::host, Tier::nvme}) {
      const auto read = [&](std::size_t tile_bytes) {
        FakeSizes sizes = small(false);
        for (auto& lengths : sizes.parameters) lengths.insert(lengths.end(), {600000, 600000});
        PlanCase c = make_case(sizes, ranks, 2, 3, device::DType::bf16, false, false, 0, {});
        c.request.placement.parameters.tier = tier;
        c.request.tile_bytes = tile_bytes;
        const StepPlan plan = make_plan(c.request);
        EXPECT_EQ(find_violation(plan, kUnlimited).value_or(""), "");
        EXPECT_EQ(std::any_of(plan.tasks.begin(), plan.tasks.end(), [](const Task& task) { return task.part >= 0; }),
                  tile_bytes > 0);
        return static_cast<double>(plan.io_bytes.read[static_cast<std::size_t>(tier)]);
      };
      EXPECT_LE(read(1), 1.2 * read(0)) << ranks;  // a whole block stays between its forward and its backward
    }
}

// Look-ahead turns gathers into reuses: at most prefetch + 1 visits may lie between two needs of a unit. The visits of
// a micro-batch are embedding, blocks 0 to 2, head, blocks 2 to 0, embedding, of which the last needs no parameters.
TEST(Fetches, GathersWithinTheLookAheadAreReused) {
  const auto gathers = [](int prefetch) {
    const PlanCase c = make_case(small(false), 2, 2, 3, device::DType::bf16, false, false, prefetch, {});
    std::vector<int> of_unit(c.model->units.size());
    for (const Task& task : make_plan(c.request).tasks)
      if (task.kind == TaskKind::gather) ++of_unit[static_cast<std::size_t>(task.unit)];
    return of_unit;
  };
  using testing::ElementsAre;
  EXPECT_THAT(gathers(0), ElementsAre(2, 4, 4, 4, 2)) << "whenever it is needed";
  EXPECT_THAT(gathers(1), ElementsAre(2, 4, 4, 2, 2)) << "the last block is still there after the head";
  EXPECT_THAT(gathers(2), ElementsAre(2, 3, 4, 2, 2)) << "and the first one when the next micro-batch begins";
  EXPECT_THAT(gathers(3), ElementsAre(2, 3, 2, 2, 2));
  EXPECT_THAT(gathers(4), ElementsAre(2, 3, 1, 2, 2));
  EXPECT_THAT(gathers(8), ElementsAre(1, 1, 1, 1, 1));
}

class TierCopiesTest : public testing::Test {
 protected:
  int add(Tier tier) { return draft_.add_buffer("stored", Kind::optimizer, tier, 8192, true); }
  std::vector<TaskKind> kinds() const {
    std::vector<TaskKind> kinds;
    for (const Task& task : draft_.plan.tasks) kinds.push_back(task.kind);
    return kinds;
  }

  const PlanCase case_ = make_case(small(false), 2, 1, 3, device::DType::bf16, false, false, 1, {});
  Draft draft_{case_.request};
};

// State on NVMe passes through the host, together with state that is already there. State at the target stays.
TEST_F(TierCopiesTest, CopiesToTheDevicePassThroughTheHost) {
  const Slice of_drive = draft_.whole(add(Tier::nvme)), of_host = draft_.whole(add(Tier::host)),
              of_device = draft_.whole(add(Tier::device));
  const auto there = copy_to_tier(draft_, {of_drive, of_host, of_device}, Tier::device, 1, "state");
  EXPECT_EQ(kinds(), (std::vector{TaskKind::read, TaskKind::upload}));
  EXPECT_EQ(draft_.plan.tasks[1].uses.size(), 4u) << "both in one task";
  EXPECT_EQ(there[2].buffer, of_device.buffer);
  for (const Slice& slice : there) EXPECT_EQ(draft_.tier_of(slice.buffer), Tier::device);
}

TEST_F(TierCopiesTest, CopiesToTheDrivePassThroughTheHost) {
  const Slice stored = draft_.whole(add(Tier::nvme)), here = draft_.whole(add(Tier::device));
  copy_slices(draft_, {here, here}, {stored, here}, 1, "state");
  EXPECT_EQ(kinds(), (std::vector{TaskKind::download, TaskKind::write}));
  EXPECT_EQ(draft_.plan.tasks[1].uses[1].buffer, stored.buffer);
  EXPECT_EQ(draft_.plan.tasks[0].uses[1].buffer, draft_.plan.tasks[1].uses[0].buffer);
}

}  // namespace
}  // namespace strata::runtime
