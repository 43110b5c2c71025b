#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/choices.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

StepPlan planned(Recipe recipe, int ranks, AccumulationOrder order, device::Kind kind = device::Kind::cpu) {
  recipe.memory.order = order;
  return make_job(open_workload(recipe), ranks, {{kUnlimited, kUnlimited, kUnlimited}, kUnlimited, {kind}}).plan;
}

std::size_t device_peak(const StepPlan& plan) {
  return plan.memory[0].peak;
}

// A step with one task that reads this many bytes in order.
StepPlan fake(std::size_t device, std::size_t host, double bytes, bool vertical, std::uint64_t sent = 0) {
  StepPlan plan{};
  plan.vertical = vertical;
  plan.memory[0].peak = device;
  plan.memory[1].peak = host;
  plan.comm_bytes.all_gather = sent;
  Task& task = plan.tasks.emplace_back();
  task.kind = TaskKind::forward;
  task.lane = LaneId::compute;
  task.cost.bytes = bytes;
  return plan;
}

struct Memories {
  std::size_t device, host;
};
// Horizontal order needs 1,000 bytes on the device and one second.
bool vertical_of(const Memories& memory, double seconds, std::size_t limit = kUnlimited, std::size_t capacity = 10'000,
                 std::uint64_t sent = 0) {
  const double rate = nominal_profile(fake(0, 0, 0, false)).bytes_per_s;
  const StepPlan horizontal = fake(1000, 0, rate, false, 100);
  const StepPlan vertical = fake(memory.device, memory.host, seconds * rate, true, sent);
  return takes_vertical({horizontal, 1000 <= capacity}, {vertical, memory.device <= capacity}, [&] { return limit; });
}

TEST(Order, WeighsMemoryAgainstTime) {
  EXPECT_TRUE(vertical_of({1100, 0}, 1 / 1.06));
  EXPECT_FALSE(vertical_of({1100, 0}, 1 / 1.04));
  EXPECT_FALSE(vertical_of({2000, 0}, 1 / 1.4));
  EXPECT_TRUE(vertical_of({2000, 0}, 1 / 1.6));
  EXPECT_FALSE(vertical_of({1000, 1000}, 1 / 1.4)) << "the host's memory counts, too";
  EXPECT_TRUE(vertical_of({900, 0}, 1.04)) << "less memory, and barely slower";
  EXPECT_FALSE(vertical_of({900, 0}, 1.1));
  EXPECT_TRUE(vertical_of({1005, 0}, 1.005, kUnlimited, 10'000, 99)) << "nearly equal, and it moves less";
  EXPECT_FALSE(vertical_of({1005, 0}, 1.005, kUnlimited, 10'000, 101));
}

TEST(Order, PrefersOrdersThatFitTheLimits) {
  EXPECT_FALSE(vertical_of({1100, 0}, 0.1, kUnlimited, 1050)) << "it does not fit";
  EXPECT_TRUE(vertical_of({900, 0}, 10, kUnlimited, 950)) << "the only one that fits";
  EXPECT_FALSE(vertical_of({1100, 0}, 0.1, kUnlimited, 800)) << "neither fits: the smaller one counts";
  EXPECT_TRUE(vertical_of({1100, 0}, 0.1, 1100));
  EXPECT_FALSE(vertical_of({1100, 0}, 0.1, 1099));
  EXPECT_TRUE(vertical_of({900, 0}, 10, 950)) << "horizontal is faster, but exceeds the limit";
}

// The published results for these settings: at stage 3, vertical order needed 55 GiB and was 0.14% faster than
// horizontal order with 26 GiB.
TEST(Order, HigherStagesOfALargeModelNeedLessMemory) {
  std::size_t before = kUnlimited;
  for (int stage = 0; stage < 4; ++stage) {
    const std::vector<std::string> sets = {"model.preset=llama-8b",
                                           "data.seq_len=2048",
                                           "training.micro_batch_size=4",
                                           "training.gradient_accumulation_steps=16",
                                           "training.recompute=block",
                                           "training.precision=bf16",
                                           fmt::format("zero.stage={}", stage)};
    const Recipe recipe = load_recipe({}, sets);
    const std::size_t peak = device_peak(planned(recipe, 8, AccumulationOrder::automatic, device::Kind::cuda));
    EXPECT_LT(peak, before) << stage;
    before = peak;
  }
}

// The most memory that stage 3 may need beyond stage 2. The units gathered at once, next to all shards, may exceed all
// parameters of a small model. An uploaded shard lies next to the buffer into which it is gathered.
std::size_t gathered_meanwhile(const StepPlan& plan, const Recipe& recipe) {
  std::size_t whole = 0, shards = 0, largest = 0;
  for (const UnitLayout& unit : plan.layout.units) {
    whole += unit.padded();
    shards += unit.shard();
    largest = std::max(largest, unit.padded());
  }
  const auto at_once = static_cast<std::size_t>(recipe.memory.prefetch + 2);  // a shared table among them
  const std::size_t gathered = std::min(whole, at_once * largest);
  const std::size_t more = recipe.zero.parameters != Tier::device
                               ? at_once * largest / static_cast<std::size_t>(plan.ranks())
                           : gathered + shards > whole ? gathered + shards - whole
                                                       : 0;
  return more * device::size_of(plan.dtype);
}

// State in other tiers passes through the device, one unit at a time.
std::size_t staged(const StepPlan& plan, const Recipe& recipe) {
  const Recipe::Zero& zero = recipe.zero;
  if (std::ranges::all_of(std::array{zero.parameters, zero.gradients, zero.optimizer, zero.activations},
                          [](Tier tier) { return tier == Tier::device; }))
    return 0;
  std::size_t largest = 0;
  for (const UnitLayout& unit : plan.layout.units) largest = std::max(largest, unit.padded());
  return largest * device::size_of(plan.dtype);
}

// Apart from these, more offloading or sharding never takes more device memory. The tolerance is 1/64, because buffers
// are packed to within a few percent of the bytes alive at once.
RC_GTEST_PROP(OrderProperty, NoChoiceOfZeroRaisesTheDevicesPeak, ()) {
  std::vector<std::string> sets = {"model.preset=tiny-gpt2", "memory.nvme=/tmp", "memory.order=auto"};
  const auto set = [&](const char* key, const auto& value) { sets.push_back(fmt::format("{}={}", key, value)); };
  const auto tier = [] { return *rc::gen::element("device", "device", "host", "nvme"); };
  set("data.seq_len", *rc::gen::element(8, 32, 128));
  set("model.config.n_layer", *rc::gen::inRange(2, 10));
  set("model.config.n_embd", *rc::gen::element(64, 128, 256));
  set("model.config.vocab_size", *rc::gen::element(256, 2048));
  set("training.micro_batch_size", *rc::gen::inRange(1, 5));
  set("training.gradient_accumulation_steps", *rc::gen::inRange(1, 17));
  set("training.precision", *rc::gen::element("fp32", "bf16"));
  set("training.reduce", *rc::gen::element("ordered", "ordered", "fast"));
  set("training.recompute", *rc::gen::element("block", "sqrt"));
  set("optimizer.name", *rc::gen::element("adamw", "adamw", "adamw8bit", "lion", "sgd"));
  set("memory.prefetch", *rc::gen::inRange(0, 3));
  for (const char* key : {"zero.parameters", "zero.gradients", "zero.optimizer", "zero.activations"}) set(key, tier());
  set("zero.stage", *rc::gen::inRange(0, 4));
  const int ranks = *rc::gen::element(1, 2, 4, 8);
  const device::Kind kind = *rc::gen::element(device::Kind::cpu, device::Kind::cuda);
  const Recipe recipe = load_recipe({}, sets);
  const StepPlan plan = planned(recipe, ranks, AccumulationOrder::automatic, kind);
  for (const Recipe& other : with_less_moved(recipe, ranks)) {
    const std::size_t theirs = device_peak(planned(other, ranks, AccumulationOrder::automatic, kind));
    const bool gathers = plan.sharded_parameters() && other.zero.stage < 3;
    const std::size_t meanwhile = std::max(staged(plan, recipe), gathers ? gathered_meanwhile(plan, recipe) : 0);
    RC_ASSERT(device_peak(plan) <= theirs + theirs / 64 + meanwhile);
  }
}

}  // namespace
}  // namespace strata::runtime
