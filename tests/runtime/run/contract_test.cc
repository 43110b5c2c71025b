// The numerics contract (docs/architecture.md): the bits do not depend on stage, recomputation, order, prefetch,
// threads and world size. Every run here also has to allocate and send exactly what was planned.
#include "tests/runtime/run/contract.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <set>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/tiny_job.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

struct Variant {
  int ranks, stage;
  const char *recompute, *order;
  int prefetch, threads;
};

std::string name_of(const Variant& v) {
  return fmt::format("{} ranks, stage {}, recompute {}, {}, prefetch {}, {} threads", v.ranks, v.stage, v.recompute,
                     v.order, v.prefetch, v.threads);
}

// Four micro-batches per step on 1, 2 or 4 ranks, with combinations in which each stage meets each choice.
std::vector<Variant> variants() {
  std::vector<Variant> all;
  const struct {
    const char *recompute, *order;
    int prefetch, threads;
  } choices[] = {{"none", "horizontal", 2, 1}, {"block", "vertical", 0, 3}, {"sqrt", "horizontal", 1, 2},
                 {"sqrt", "vertical", 2, 1},   {"[1]", "horizontal", 3, 1}, {"none", "vertical", 1, 2}};
  for (const int ranks : {1, 2, 4})
    for (int stage = 0; stage < 4; ++stage)
      for (const auto& c : choices) {
        if (ranks == 1 && stage != 0 && stage != 3) continue;  // one rank shards nothing
        all.push_back({ranks, stage, c.recompute, c.order, c.prefetch, c.threads});
      }
  return all;
}

class Contract : public ContractCase {
 protected:
  std::vector<std::string> sets_of_variant(const Variant& v) const {
    auto all = sets(v.ranks);
    for (const std::string& set :
         {fmt::format("zero.stage={}", v.stage), fmt::format("training.recompute={}", v.recompute),
          fmt::format("memory.order={}", v.order), fmt::format("memory.prefetch={}", v.prefetch),
          fmt::format("device.threads={}", v.threads)})
      all.push_back(set);
    return all;
  }
  Trained run(const Variant& v, std::size_t tile_bytes = 0) const {
    return train_in_threads(std::nullopt, sets_of_variant(v), v.ranks, {}, tile_bytes);
  }
};

TEST_P(Contract, SameBitsWhateverThePlan) {
  std::optional<Trained> first;
  for (const Variant& variant : variants()) {
    const Trained trained = run(variant);
    EXPECT_TRUE(trained.memory_as_planned) << name_of(variant);
    EXPECT_TRUE(trained.bytes_as_planned) << name_of(variant);
    if (!first) first = trained;
    EXPECT_EQ(trained.loss_hex, first->loss_hex) << name_of(variant);
    EXPECT_EQ(trained.weights_hash, first->weights_hash) << name_of(variant);
  }
  EXPECT_NE(first->loss_hex[1], first->loss_hex[2]) << "the weights must change";
}

// State, gradients and kept activations in every tier, updated chunk by chunk at the start of the next step.
TEST_P(Contract, SameBitsInEveryTier) {
  const Trained on_device = run({1, 0, "none", "horizontal", 2, 1});
  struct Tiers {
    const char *parameters, *gradients, *optimizer, *activations;
  };
  const Tiers tiers[] = {{"device", "device", "host", "device"}, {"host", "device", "host", "host"},
                         {"host", "host", "host", "device"},     {"device", "device", "nvme", "device"},
                         {"nvme", "nvme", "nvme", "nvme"},       {"nvme", "host", "nvme", "host"},
                         {"host", "host", "device", "device"},   {"device", "nvme", "host", "host"}};
  int i = 0;
  for (const Tiers& t : tiers)
    for (const int ranks : {1, 2})
      for (const int stage : {0, 1, 2, 3}) {
        if (ranks == 1 && stage != 3) continue;
        const bool vertical = ++i % 2 == 0;
        const Variant v{ranks, stage, i % 3 ? "block" : "sqrt", vertical ? "vertical" : "horizontal", i % 4, 1 + i % 2};
        auto all = sets_of_variant(v);
        for (const std::string& set :
             {fmt::format("zero.parameters={}", t.parameters), fmt::format("zero.gradients={}", t.gradients),
              fmt::format("zero.optimizer={}", t.optimizer), fmt::format("zero.activations={}", t.activations),
              fmt::format("memory.nvme={}", folder_.path().string())})
          all.push_back(set);
        const Trained trained = train_in_threads(std::nullopt, all, ranks, {}, i % 5 ? 0 : 1, kShardAlignment);
        const std::string name = fmt::format("{}, parameters {}, gradients {}, optimizer {}, activations {}",
                                             name_of(v), t.parameters, t.gradients, t.optimizer, t.activations);
        EXPECT_TRUE(trained.memory_as_planned) << name;
        EXPECT_TRUE(trained.bytes_as_planned) << name;
        EXPECT_EQ(trained.loss_hex, on_device.loss_hex) << name;
        EXPECT_EQ(trained.weights_hash, on_device.weights_hash) << name;
      }
}

// Tiers are independent of each other: all combinations.
TEST_P(Contract, SameBitsInEveryCombinationOfTiers) {
  std::optional<Trained> first;
  for (const char* parameters : {"device", "host", "nvme"})
    for (const char* gradients : {"device", "host", "nvme"})
      for (const char* optimizer : {"device", "host", "nvme"}) {
        auto all = sets(1);
        for (const std::string& set :
             {fmt::format("zero.parameters={}", parameters), fmt::format("zero.gradients={}", gradients),
              fmt::format("zero.optimizer={}", optimizer), fmt::format("memory.nvme={}", folder_.path().string())})
          all.push_back(set);
        const Trained trained = train_in_threads(std::nullopt, all, 1);
        if (!first) first = trained;
        EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << parameters << gradients << optimizer;
        EXPECT_EQ(trained.loss_hex, first->loss_hex) << parameters << gradients << optimizer;
        EXPECT_EQ(trained.weights_hash, first->weights_hash) << parameters << gradients << optimizer;
      }
}

// Every unit runs in tiles.
TEST_P(Contract, SameBitsInTiles) {
  const Trained whole = run({1, 0, "none", "horizontal", 2, 1});
  for (const Variant& v : variants()) {
    if (v.stage < 3 || v.ranks == 1) continue;
    const Trained tiled = run(v, 1);
    EXPECT_TRUE(tiled.memory_as_planned && tiled.bytes_as_planned) << name_of(v);
    EXPECT_EQ(tiled.loss_hex, whole.loss_hex) << name_of(v);
    EXPECT_EQ(tiled.weights_hash, whole.weights_hash) << name_of(v);
  }
}

// A single rank has parameters in other tiers, with sums over several micro-batches and over one.
TEST_P(Contract, SameBitsInTilesOfOneRank) {
  for (const char* micro_batches : {"4", "1"}) {
    const std::string accumulation = fmt::format("training.gradient_accumulation_steps={}", micro_batches);
    auto on_device = sets(1);
    on_device.push_back(accumulation);
    const Trained whole = train_in_threads(std::nullopt, on_device, 1);
    for (const char* parameters : {"host", "nvme"})
      for (const char* optimizer : {"device", "host"})
        for (const char* order : {"horizontal", "vertical"}) {
          auto all = sets(1);
          for (const std::string& set :
               {accumulation, std::string("memory.tile=1"), fmt::format("zero.parameters={}", parameters),
                fmt::format("zero.gradients={}", optimizer), fmt::format("zero.optimizer={}", optimizer),
                fmt::format("memory.order={}", order), fmt::format("memory.nvme={}", folder_.path().string())})
            all.push_back(set);
          const Trained tiled = train_in_threads(std::nullopt, all, 1);
          const std::string name = fmt::format("{} {} {} {}", micro_batches, parameters, optimizer, order);
          EXPECT_TRUE(tiled.memory_as_planned && tiled.bytes_as_planned) << name;
          EXPECT_EQ(tiled.loss_hex, whole.loss_hex) << name;
          EXPECT_EQ(tiled.weights_hash, whole.weights_hash) << name;
        }
  }
}

// The table has three tiles and does not fit into memory as a whole. The step is planned in tiles, with the same bits.
TEST_P(Contract, TableLargerThanMemory) {
  {
    std::ofstream file(folder_.path() / "tokens.bin", std::ios::binary);
    for (std::uint32_t i = 0; i < 900; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 8500);
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  const auto sets_of = [&](const Variant& v, std::size_t bytes) {
    auto all = sets_of_variant(v);
    all.emplace_back("model.config.vocab_size=8500");
    if (bytes) all.push_back(fmt::format("memory.device={}", bytes));
    return all;
  };
  const Trained whole = train_in_threads(std::nullopt, sets_of({1, 0, "none", "horizontal", 2, 1}, 0), 1);
  EXPECT_NE(whole.loss_hex[1], whole.loss_hex[2]) << "the weights must change";
  for (const Variant& v : {Variant{2, 3, "none", "horizontal", 2, 1}, Variant{4, 3, "sqrt", "horizontal", 0, 2},
                           Variant{2, 3, "block", "vertical", 1, 1}}) {
    int level = 0;
    for (std::size_t bytes = 0;; ++level) {
      const Recipe recipe = load_recipe(std::nullopt, sets_of(v, bytes));
      const Capacity capacity = capacity_of(recipe.memory, 1);
      const Job job = make_job(open_workload(recipe), v.ranks, capacity);
      if (!fits(job.plan, capacity)) break;
      EXPECT_EQ(job.plan.tile_bytes > 0, level > 0) << name_of(v);
      const Trained trained = train_in_threads(std::nullopt, sets_of(v, bytes), v.ranks);
      EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name_of(v) << ", level " << level;
      EXPECT_EQ(trained.loss_hex, whole.loss_hex) << name_of(v) << ", level " << level;
      EXPECT_EQ(trained.weights_hash, whole.weights_hash) << name_of(v) << ", level " << level;
      bytes = job.plan.memory[0].peak - 1;
    }
    EXPECT_GT(level, 1) << name_of(v);
  }
}

// `fast` gives up the world size and nothing else.
TEST_P(Contract, FastKeepsItsBitsOverStages) {
  std::optional<Trained> first;
  for (int stage = 0; stage < 4; ++stage)
    for (const char* order : {"horizontal", "vertical"}) {
      auto all = sets(2);
      for (const std::string& set : {fmt::format("zero.stage={}", stage), fmt::format("memory.order={}", order),
                                     std::string("training.reduce=fast")})
        all.push_back(set);
      for (const std::size_t tile_bytes : {0, 1}) {
        if (tile_bytes && stage < 3) continue;
        const Trained trained = train_in_threads(std::nullopt, all, 2, {}, tile_bytes);
        EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << stage << order << tile_bytes;
        if (!first) first = trained;
        EXPECT_EQ(trained.loss_hex, first->loss_hex) << stage << order << tile_bytes;
        EXPECT_EQ(trained.weights_hash, first->weights_hash) << stage << order << tile_bytes;
      }
    }
}

// A single micro-batch per step uses the rounded gradient as the sum: another plan, but the same bits at every stage.
TEST_P(Contract, OneMicroBatchAStep) {
  std::optional<Trained> first;
  for (const char* recompute : {"none", "block", "sqrt", "tiers"}) {
    auto all = sets(4);
    if (recompute == std::string("tiers"))
      for (const std::string& set :
           {std::string("training.recompute=block"), std::string("zero.parameters=nvme"),
            std::string("zero.gradients=host"), std::string("zero.optimizer=nvme"),
            std::string("zero.activations=host"), fmt::format("memory.nvme={}", folder_.path().string())})
        all.push_back(set);
    else
      all.push_back(fmt::format("training.recompute={}", recompute));
    const Trained trained = train_in_threads(std::nullopt, all, 1);
    EXPECT_TRUE(trained.memory_as_planned) << recompute;
    if (!first) first = trained;
    EXPECT_EQ(trained.weights_hash, first->weights_hash) << recompute;
  }
}

// Tests every update rule and format of moments over stages, world sizes, threads and orders, and with one micro-batch
// per step.
TEST_P(Contract, EveryOptimizer) {
  std::set<std::string> hashes;
  for (const char* name : {"adamw", "lion", "sgd"})
    for (const char* moments : {"fp32", "bf16", "8bit"}) {
      std::optional<Trained> first;
      for (const Variant& v : {Variant{1, 0, "none", "horizontal", 2, 1}, Variant{1, 0, "none", "vertical", 2, 3},
                               Variant{2, 1, "none", "horizontal", 2, 1}, Variant{2, 3, "none", "vertical", 1, 2},
                               Variant{4, 0, "none", "horizontal", 2, 1}, Variant{4, 2, "none", "horizontal", 0, 1}}) {
        auto all = sets_of_variant(v);
        if (std::get<0>(GetParam()) == 1)  // 4,096 elements and more a tensor: in 8 bits
          all.emplace_back("model.config.intermediate_size=128");
        for (const std::string& set :
             {fmt::format("optimizer.name={}", name), fmt::format("optimizer.moments={}", moments)})
          all.push_back(set);
        const Trained trained = train_in_threads(std::nullopt, all, v.ranks);
        EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name << moments << name_of(v);
        if (!first) first = trained;
        EXPECT_EQ(trained.loss_hex, first->loss_hex) << name << moments << name_of(v);
        EXPECT_EQ(trained.weights_hash, first->weights_hash) << name << moments << name_of(v);
      }
      EXPECT_TRUE(hashes.insert(first->weights_hash).second) << name << moments << " is an update of its own";
    }
}

// In fp16 the loss scale is far too high at first and doubles with every update. So steps are skipped before the first
// update and between later ones. Every tier must keep the state that a skipped step does not change.
class SkippedSteps : public Contract {};

TEST_P(SkippedSteps, SameBitsInEveryCombinationOfTiers) {
  const std::vector<std::string> optimizers[] = {{"optimizer.name=adamw"},
                                                 {"optimizer.name=lion", "optimizer.moments=bf16"},
                                                 {"optimizer.name=sgd", "optimizer.moments=8bit"}};
  const auto run = [&](int ranks, const std::vector<std::string>& optimizer, const std::vector<std::string>& more,
                       std::size_t tile_bytes, std::size_t update_chunk) {
    auto all = sets(ranks);
    for (const char* set : {"training.max_steps=12", "fp16.initial_scale=8388608", "fp16.growth_interval=1"})
      all.emplace_back(set);
    all.insert(all.end(), optimizer.begin(), optimizer.end());
    all.insert(all.end(), more.begin(), more.end());
    return train_in_threads(std::nullopt, all, ranks, {}, tile_bytes, update_chunk);
  };
  std::vector<Trained> plain;
  for (const auto& optimizer : optimizers) {
    const std::vector<StepReport> steps = plain.emplace_back(run(1, optimizer, {}, 0, 0)).steps;
    const auto skipped = [](const StepReport& step) { return step.skipped; };
    const auto first_update = std::find_if_not(steps.begin(), steps.end(), skipped);
    EXPECT_GT(first_update - steps.begin(), 1) << optimizer[0];
    EXPECT_GT(std::count_if(first_update, steps.end(), skipped), 1) << optimizer[0];
    EXPECT_GT(std::count_if(steps.begin(), steps.end(), std::not_fn(skipped)), 3) << optimizer[0];
    for (const StepReport& step : steps) EXPECT_TRUE(std::isfinite(step.loss)) << optimizer[0];
  }
  std::size_t i = 0;
  for (const char* parameters : {"device", "host", "nvme"})
    for (const char* gradients : {"device", "host", "nvme"})
      for (const char* optimizer : {"device", "host", "nvme"})
        for (const int ranks : {1, 2})
          for (int stage = 0; stage < 4; ++stage) {
            if (ranks == 1 && stage > 0) continue;  // one rank shards nothing
            const std::size_t which = i++ % std::size(optimizers);
            const Trained trained =
                run(ranks, optimizers[which],
                    {fmt::format("zero.stage={}", stage), fmt::format("zero.parameters={}", parameters),
                     fmt::format("zero.gradients={}", gradients), fmt::format("zero.optimizer={}", optimizer),
                     fmt::format("memory.order={}", i % 2 ? "horizontal" : "vertical"),
                     fmt::format("memory.nvme={}", folder_.path().string())},
                    i % 4 ? 0 : 1, i % 7 ? 0 : kShardAlignment);
            const std::string name = fmt::format("{}: {} ranks, stage {}, parameters {}, gradients {}, optimizer {}",
                                                 optimizers[which][0], ranks, stage, parameters, gradients, optimizer);
            EXPECT_EQ(trained.loss_hex, plain[which].loss_hex) << name;
            EXPECT_EQ(trained.weights_hash, plain[which].weights_hash) << name;
          }
}

INSTANTIATE_TEST_SUITE_P(Models, Contract, kContractCases, contract_name);
INSTANTIATE_TEST_SUITE_P(Models, SkippedSteps, testing::Combine(testing::Values(0, 1), testing::Values("fp16")),
                         contract_name);

}  // namespace
}  // namespace strata::runtime
