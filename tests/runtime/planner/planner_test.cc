#include "runtime/planner/planner.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "runtime/execute/executor.h"
#include "runtime/plan/offsets.h"
#include "runtime/plan/validator.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// Units that use the first tensor of an earlier one, whichever units these are.
void share_at_random(FakeSizes& sizes) {
  const int units = static_cast<int>(sizes.parameters.size());
  for (int unit = 1; unit < units - (sizes.tied ? 1 : 0); ++unit)
    if (*rc::gen::arbitrary<bool>())
      sizes.shares.push_back({static_cast<std::size_t>(unit), static_cast<std::size_t>(*rc::gen::inRange(0, unit)), 0});
}

PlanCase random_case() {
  FakeSizes sizes;
  const int layers = *rc::gen::inRange(1, 7);
  for (int u = 0; u < layers + 2; ++u) {
    auto& lengths = sizes.parameters.emplace_back();
    const int tensors = *rc::gen::inRange(1, 5);
    for (int i = 0; i < tensors; ++i) lengths.push_back(*rc::gen::inRange(1, 40000));
  }
  sizes.saved = *rc::gen::inRange<std::size_t>(1, 100000);
  sizes.forward_workspace = *rc::gen::inRange<std::size_t>(0, 50000);
  sizes.backward_workspace = *rc::gen::inRange<std::size_t>(0, 50000);
  sizes.loss_workspace = *rc::gen::inRange<std::size_t>(0, 100000);
  sizes.tied = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) share_at_random(sizes);
  if (sizes.tied) {  // the table, whole or in tiles
    auto& table = sizes.parameters[0];
    table[0] = 64 * 32;
    if (*rc::gen::arbitrary<bool>()) {
      table[0] = 32 * 32;
      table.insert(table.begin() + 1, {16 * 32, 16 * 32});
    }
  }
  Recompute recompute;
  recompute.kind =
      *rc::gen::element(Recompute::Kind::none, Recompute::Kind::block, Recompute::Kind::sqrt, Recompute::Kind::list);
  if (recompute.kind == Recompute::Kind::list) recompute.blocks = {*rc::gen::inRange(0, layers)};
  PlanCase c = make_case(sizes, *rc::gen::element(1, 2, 3, 4, 7, 64), *rc::gen::inRange(1, 5), *rc::gen::inRange(0, 4),
                         *rc::gen::element(device::DType::fp32, device::DType::bf16), *rc::gen::arbitrary<bool>(),
                         *rc::gen::arbitrary<bool>(), *rc::gen::inRange(0, 5), recompute);
  const auto tier = [] { return *rc::gen::element(Tier::device, Tier::device, Tier::host, Tier::nvme); };
  Placement& placement = c.request.placement;
  placement.parameters.tier = tier();
  placement.gradients.tier = tier();
  placement.optimizer.tier = tier();
  placement.activations = tier();
  c.request.update_chunk = *rc::gen::element(1, 3, 512) * kShardAlignment;
  c.request.read_ahead = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) c.request.tile_bytes = *rc::gen::inRange<std::size_t>(1, 300000);
  if (*rc::gen::arbitrary<bool>()) c.request.checkpoint_staging = 8192;
  if (*rc::gen::arbitrary<bool>()) c.request.shape.device.kind = device::Kind::cuda;
  return c;
}

// Bytes that reads bring for the update of the first unit: beside the update that the step before left, or in any step.
double first_state_read(const StepPlan& plan, When when) {
  double bytes = 0;
  for (const Task& task : plan.tasks)
    if (task.kind == TaskKind::read && task.unit == 0 && task.when == when) bytes += task.cost.read_bytes;
  return bytes;
}

// What the first update needs comes in while the step before still computes, and goes home when nothing else waits for
// the drive. Nothing else is moved; memory grows by that, and by what is then on its way besides: three chunks.
TEST(Planner, TheFirstUnitsStateIsReadAhead) {
  for (const auto dtype : {device::DType::fp32, device::DType::bf16}) {
    PlanCase c = make_case(large_first(), 2, 3, 2, dtype, false, true, 2, {});
    c.request.placement.optimizer.tier = Tier::nvme;
    c.request.update_chunk = kShardAlignment;
    const StepPlan without = make_plan(c.request);
    c.request.read_ahead = true;
    const StepPlan with = make_plan(c.request);
    EXPECT_EQ(find_violation(with, kUnlimited).value_or(""), "");
    EXPECT_EQ(with.io_bytes.read, without.io_bytes.read);
    EXPECT_EQ(with.io_bytes.written, without.io_bytes.written);
    const double bytes = first_state_read(without, When::pending);
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(first_state_read(without, When::always), 0);
    EXPECT_EQ(first_state_read(with, When::pending), 0);
    EXPECT_EQ(first_state_read(with, When::always), bytes);
    // Three chunks of the units behind are on their way, with their gradients, while the first ones are updated.
    const auto chunk = static_cast<double>(c.request.update_chunk * (3 * sizeof(float) + 2 * sizeof(float)));
    EXPECT_LE(static_cast<double>(with.memory[1].peak),
              static_cast<double>(without.memory[1].peak) + bytes + 3 * chunk);
    std::size_t last_read = 0, first_write = with.tasks.size();
    for (std::size_t t = with.tasks.size(); t-- > 0;) {
      if (with.tasks[t].kind == TaskKind::read && with.tasks[t].when == When::pending)
        last_read = std::max(last_read, t);
      if (with.tasks[t].kind == TaskKind::write && with.tasks[t].unit == 0) first_write = t;
    }
    EXPECT_GT(first_write, last_read);
  }
}

// The call that wrote what the task reduces.
int source_of(const StepPlan& plan, const Task& reduce) {
  const auto wrote = [&](const Task& task) {
    const bool writes = task.kind == TaskKind::loss || task.kind == TaskKind::backward;
    return writes && task.unit == reduce.unit && task.micro_batch == reduce.micro_batch;
  };
  return static_cast<int>(std::find_if(plan.tasks.begin(), plan.tasks.end(), wrote) - plan.tasks.begin());
}

// Gradients travel while backward runs on: their reduction waits for no later call than the one that wrote them, and
// the next call does not wait for it.
TEST(Planner, AReductionRunsBesideTheCallAfterItsOwn) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage)
    for (const int accumulation : {1, 3})
      for (const bool tied : {false, true}) {
        const PlanCase c =
            make_case(small(tied), 2, accumulation, zero_stage, device::DType::bf16, false, false, 2, {});
        const StepPlan plan = make_plan(c.request);
        int call = -1, call_before = -1;
        for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
          const Task& task = plan.tasks[static_cast<std::size_t>(t)];
          if (task.lane == LaneId::compute) call_before = std::exchange(call, t);
          for (const int wait : task.waits) {
            const Task& other = plan.tasks[static_cast<std::size_t>(wait)];
            if (task.kind == TaskKind::reduce && other.lane == LaneId::compute) {
              EXPECT_LE(wait, source_of(plan, task)) << "stage " << zero_stage << ", unit " << task.unit;
            }
            if (task.lane == LaneId::compute && other.kind == TaskKind::reduce) {
              EXPECT_LT(source_of(plan, other), call_before) << "stage " << zero_stage << ", unit " << task.unit;
            }
          }
        }
      }
}

// Of the task's waits, those for tasks of the step before.
std::vector<int> waits_across(const StepPlan& plan, std::size_t t) {
  std::vector<int> across;
  for (const int wait : plan.tasks[t].waits)
    if (static_cast<std::size_t>(wait) >= t) across.push_back(wait);
  return across;
}

// If every rank holds whole parameters, those that the others updated are gathered while the next step begins: its
// forward of each unit waits for that unit alone.
TEST(Planner, UpdatedParametersAreGatheredBesideTheNextStep) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    const PlanCase c = make_case(small(false), 2, 2, zero_stage, device::DType::bf16, false, false, 2, {});
    const StepPlan plan = make_plan(c.request);
    int awaited = 0;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      if (task.kind != TaskKind::forward && task.kind != TaskKind::loss) continue;
      const std::vector<int> across = waits_across(plan, t);
      if ((zero_stage != 1 && zero_stage != 2) || task.micro_batch > 0) {
        EXPECT_TRUE(across.empty()) << "stage " << zero_stage;
        continue;
      }
      ASSERT_EQ(across.size(), 1u) << "stage " << zero_stage << ", unit " << task.unit;
      const Task& gather = plan.tasks[static_cast<std::size_t>(across[0])];
      EXPECT_EQ(gather.kind, TaskKind::gather);
      EXPECT_EQ(gather.unit, task.unit);
      ++awaited;
    }
    EXPECT_EQ(awaited, zero_stage == 1 || zero_stage == 2 ? static_cast<int>(c.model->units.size()) : 0);
  }
}

// What the host writes waits until the step before needs it no more, and what it reads for nothing behind the
// consensus: the update goes on when the step has ended.
TEST(Planner, TheHostWaitsForTheConsensusAndThenForTheUpdate) {
  const PlanCase c = make_case(small(false), 1, 2, 0, device::DType::bf16, false, false, 2, {});
  const StepPlan plan = make_plan(c.request);
  const Task &write = plan.tasks.front(), &read = plan.tasks.back();
  ASSERT_EQ(write.kind, TaskKind::host_write);
  ASSERT_EQ(read.kind, TaskKind::host_read);
  ASSERT_EQ(read.waits.size(), 1u);
  EXPECT_EQ(plan.tasks[static_cast<std::size_t>(read.waits[0])].kind, TaskKind::consensus);
  ASSERT_EQ(write.waits.size(), 1u);
  EXPECT_EQ(plan.tasks[static_cast<std::size_t>(write.waits[0])].kind, TaskKind::update);
  for (std::size_t t = 1; t < plan.tasks.size(); ++t)
    EXPECT_TRUE(waits_across(plan, t).empty()) << "task " << t << " begins behind the host's, which has waited";
}

// Sharded parameters of the first units are gathered as soon as these are updated, beside the updates of the others:
// what is gathered before the host writes waits for its own unit's update at most, and for no later one's.
TEST(Planner, TheFirstUnitsAreGatheredBesideTheLastUpdates) {
  const PlanCase c = make_case(small(false), 8, 2, 3, device::DType::bf16, false, false, 1, {});
  const StepPlan plan = make_plan(c.request);
  std::size_t t = 0;
  for (; plan.tasks[t].kind != TaskKind::host_write; ++t) {
    const Task& task = plan.tasks[t];
    EXPECT_EQ(task.kind, TaskKind::gather);
    bool own = false;
    for (const int wait : waits_across(plan, t)) {
      const Task& other = plan.tasks[static_cast<std::size_t>(wait)];
      if (other.kind != TaskKind::update) continue;
      EXPECT_LE(other.unit, task.unit);
      own = own || other.unit == task.unit;
    }
    EXPECT_TRUE(own) << "unit " << task.unit;
  }
  EXPECT_EQ(t, 2u) << "the first unit's, and one ahead";
}

// A checkpoint reads what the step before left while the next one computes: each unit's update waits for its own unit.
TEST(Planner, AnUpdateWaitsForTheCheckpointToReadItsUnit) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    PlanCase c = make_case(small(false), 2, 2, 2, device::DType::bf16, false, false, 2, {});
    c.request.placement.optimizer.tier = tier;
    c.request.checkpoint_staging = 4096;
    const StepPlan plan = make_plan(c.request);
    std::set<int> saved;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t)
      for (const int wait : plan.tasks[t].waits) {
        const Task &task = plan.tasks[t], &other = plan.tasks[static_cast<std::size_t>(wait)];
        if (other.lane != LaneId::checkpoint) continue;
        EXPECT_EQ(other.kind, TaskKind::save) << "nothing waits until the checkpoint is durable";
        EXPECT_EQ(task.unit, other.unit);
        EXPECT_EQ(task.kind, tier == Tier::nvme ? TaskKind::write : TaskKind::update);
        saved.insert(other.unit);
      }
    EXPECT_EQ(saved.size(), c.model->units.size());
  }
}

// Thousands of random plans are proven, one by one.
TEST(Planner, EveryPlanIsValid) {
  ::setenv("RC_PARAMS", "max_success=2500", 0);
  const bool held = rc::check("no violation", [] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    const auto violation = find_violation(plan, {plan.memory[0].peak, plan.memory[1].peak, plan.memory[2].peak});
    if (violation) RC_FAIL(*violation);
  });
  EXPECT_TRUE(held);
}

// The executor's meter counts buffers as they come and go; it must find what was predicted, in every step.
TEST(Planner, PredictedMemoryIsMeasured) {
  const bool held = rc::check("predicted equals measured", [] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    MemoryMeter meter(plan);
    for (int step = 0; step < 2; ++step)
      for (std::size_t t = 0; t < plan.tasks.size(); ++t) meter.issue(t);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      RC_ASSERT(meter.peak()[tier].peak == plan.memory[tier].peak);
      RC_ASSERT(meter.peak()[tier].by_kind == plan.memory[tier].by_kind);
    }
  });
  EXPECT_TRUE(held);
}

// Gathered units: never more than prefetch + 1, besides those that others share; every use is of gathered parameters.
TEST(Planner, PrefetchBoundsGatheredUnits) {
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

// Nobody needs the unit's parameters whole.
bool may_come_in_parts(const models::Model& model, const StepPlan& plan, std::size_t unit) {
  const std::size_t last = model.units.size() - 1;
  const bool by_tiles = model.loss_unit().table_tiles() > 0;
  const auto& sharers = plan.layout.units[unit].sharers;
  return model.units[unit]->parts().size() > 1 && (unit == last ? by_tiles : !model.units[unit]->shared()) &&
         std::all_of(sharers.begin(), sharers.end(),
                     [&](int sharer) { return by_tiles && static_cast<std::size_t>(sharer) == last; });
}

// A unit that is larger than its buffer comes part by part: every part, padding included, is gathered, its gradient
// summed, and at most two parts are there at once.
TEST(Planner, LargeUnitsComeInParts) {
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
                         plan.layout.units[unit].padded * size_of(plan.dtype) > c.request.tile_bytes;
      if (task.kind == TaskKind::gather) {
        RC_ASSERT((task.part >= 0) == tiled);
        if (tiled) parts.insert(task.buffer(Role::parameters));
        gathered[unit] = std::max(gathered[unit], task.end);
      }
      if (task.kind == TaskKind::reduce && (plan.fast || task.micro_batch == 0))
        (task.shared ? shared : summed)[unit] += task.end - task.begin;
    }
    for (std::size_t u = 0; u < units; ++u) {
      RC_ASSERT(gathered[u] == plan.layout.units[u].padded);
      RC_ASSERT(summed[u] == plan.layout.units[u].padded);
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

TEST(Planner, PartsNeedLessThanUnits) {
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

// Offsets stay close to what lives at once: on the average, and for the worst that chance comes upon. Parts of unequal
// sizes that live in a chain, each over the next, pack worst where little else is alive.
TEST(Planner, PackingIsTight) {
  double ratios = 0;
  int count = 0;
  const bool held = rc::check("no peak is twice the bytes alive", [&] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    const auto lives = occupations_of(plan);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      std::size_t most = 0;
      for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
        std::size_t alive = 0;
        for (std::size_t b = 0; b < lives.size(); ++b)
          if (static_cast<std::size_t>(plan.buffers[b].tier) == tier && lives[b].first <= t && t <= lives[b].last)
            alive += plan.buffers[b].bytes;
        most = std::max(most, alive);
      }
      const std::size_t peak = plan.memory[tier].peak;
      RC_ASSERT(peak >= most);
      RC_ASSERT(peak <= 2 * most);
      if (most == 0) continue;
      ratios += static_cast<double>(peak) / static_cast<double>(most);
      ++count;
    }
  });
  EXPECT_TRUE(held);
  EXPECT_LT(ratios / count, 1.02) << "of " << count << " tiers";
}

struct Bytes {
  std::uint64_t all_to_all, all_gather;
};

Bytes bytes_of(int zero_stage, int ranks, int accumulation, bool vertical, bool fast) {
  const PlanCase c =
      make_case(small(false), ranks, accumulation, zero_stage, device::DType::bf16, fast, vertical, 0, {});
  const StepPlan plan = make_plan(c.request);
  return {plan.comm_bytes.all_to_all, plan.comm_bytes.all_gather};
}

// Psi: padded elements of the model; every figure is times (W - 1) / W.
TEST(Planner, CommunicationFollowsTheFormulas) {
  for (const int w : {2, 4})
    for (const int g : {1, 3}) {
      const FakeModel model(small(false));
      std::uint64_t psi = 0, blocks = 0;
      const Layout layout = make_layout(model, w);
      for (std::size_t u = 0; u < layout.units.size(); ++u) {
        psi += layout.units[u].shard * static_cast<std::uint64_t>(w - 1);
        if (u > 0 && u + 1 < layout.units.size()) blocks += layout.units[u].shard * static_cast<std::uint64_t>(w - 1);
      }
      const auto steps = static_cast<std::uint64_t>(g);
      EXPECT_EQ(bytes_of(0, w, g, false, false).all_to_all, steps * psi * 2);
      EXPECT_EQ(bytes_of(0, w, g, false, false).all_gather, psi * 4) << "fp32 gradient sums";
      for (const int s : {1, 2}) {
        EXPECT_EQ(bytes_of(s, w, g, false, false).all_to_all, steps * psi * 2);
        EXPECT_EQ(bytes_of(s, w, g, false, false).all_gather, psi * 2) << "updated parameters";
      }
      EXPECT_EQ(bytes_of(3, w, g, false, false).all_to_all, steps * psi * 2);
      // Blocks twice per micro-batch, embedding and head once; no look-ahead, so nothing is reused but neighbours.
      EXPECT_LE(bytes_of(3, w, g, false, false).all_gather, steps * (psi + blocks) * 2);
      EXPECT_GT(bytes_of(3, w, g, false, false).all_gather, steps * psi * 2);
      EXPECT_LE(bytes_of(3, w, g, true, false).all_gather, (psi + blocks) * 2);
      for (int s = 0; s < 4; ++s) EXPECT_EQ(bytes_of(s, w, g, true, true).all_to_all, psi * 2) << "fast: once a step";
    }
}

// Look-ahead turns gathers into reuses: at most prefetch + 1 visits may lie between two needs of a unit. The visits of
// a micro-batch are embedding, blocks 0 to 2, head, blocks 2 to 0, embedding, of which the last needs no parameters.
TEST(Planner, GathersWithinTheLookAheadAreReused) {
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

TEST(Planner, StagesNeedLessAndLess) {
  std::size_t previous = std::numeric_limits<std::size_t>::max();
  for (int s = 0; s < 4; ++s) {
    FakeSizes sizes = small(false);
    for (auto& lengths : sizes.parameters) lengths.push_back(400000);
    const PlanCase c = make_case(sizes, 8, 2, s, device::DType::bf16, false, false, 0, {});
    const std::size_t peak = make_plan(c.request).memory[0].peak;
    EXPECT_LT(peak, previous) << "stage " << s;
    previous = peak;
  }
}

TEST(Planner, RecomputationTradesActivations) {
  const auto activations = [](Recompute::Kind kind) {
    FakeSizes sizes = small(true);
    for (int extra = 0; extra < 13; ++extra) sizes.parameters.insert(sizes.parameters.begin() + 1, {5000});
    const PlanCase c = make_case(sizes, 1, 1, 0, device::DType::bf16, false, false, 2, {kind, {}});
    return make_plan(c.request).memory[0].by_kind[static_cast<std::size_t>(Kind::activations)];
  };
  EXPECT_LT(activations(Recompute::Kind::sqrt), activations(Recompute::Kind::none));
  EXPECT_LT(activations(Recompute::Kind::block), activations(Recompute::Kind::none));
}

TEST(Planner, AttentionCostsTheSquaresOfDocuments) {
  PlanCase c = make_case(small(false), 2, 2, 0, device::DType::bf16, false, false, 2, {});
  const auto work = [&](double mean_squares) {
    c.request.mean_squares = mean_squares;
    std::pair<double, double> sum{0, 0};  // of attention; of all else
    for (const Task& task : make_plan(c.request).tasks)
      sum = {sum.first + task.cost.attention_flops, sum.second + task.cost.flops + task.cost.bytes};
    return sum;
  };
  const auto whole = work(0);
  EXPECT_GT(whole.first, 0);
  EXPECT_EQ(work(16 * 16), whole) << "sequences of 16 tokens";
  EXPECT_EQ(work(4 * 16), std::pair(whole.first / 4, whole.second)) << "four documents each";
}

TEST(Planner, UnknownBlockIsRefused) {
  const FakeModel model(small(true));  // of three blocks
  EXPECT_THROW(segments_of({Recompute::Kind::list, {3}}, model), Error);
  EXPECT_NO_THROW(segments_of({Recompute::Kind::list, {2}}, model));
}

}  // namespace
}  // namespace strata::runtime
