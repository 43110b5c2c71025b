#include "runtime/weights/quantised_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/numeric/nf4.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/trainer.h"
#include "runtime/weights/floats.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/weights/index_weights.h"

namespace strata::runtime {
namespace {

// A small Llama whose last block is frozen. Its MLP's matrices are several blocks of NF4, and end within a block of
// elements that share a scale.
Job job_of(int ranks, int stage = 0, bool double_quant = true) {
  const std::vector<std::string> sets = {"model.preset=tiny-llama",
                                         "model.config.hidden_size=120",
                                         "model.config.intermediate_size=353",
                                         "data.seq_len=16",
                                         "training.max_steps=1",
                                         R"(training.freeze=["model.layers.1.*"])",
                                         "model.frozen_format=nf4",
                                         std::string("model.double_quant=") + (double_quant ? "true" : "false"),
                                         "zero.stage=" + std::to_string(stage)};
  const Recipe recipe = load_recipe(std::nullopt, sets);
  return make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, ranks));
}

constexpr std::size_t kUnit = 2;  // the frozen block

std::vector<float> values_of(const Job& job, const TensorRange& range) {
  std::vector<float> out(job.model->units[kUnit]->parameters()[range.parameter].size());
  IndexWeights().read(kUnit, range.parameter, 0, out);
  return out;
}

TEST(ScaleOffsets, AreTheMeansOfTheScales) {
  const Job job = job_of(1);
  const auto world = comm::solo_world();
  const ScaleOffsets offsets = scale_offsets(job.plan, IndexWeights(), 2, *world);
  const auto& ranges = job.plan.layout.units[kUnit].quantised.ranges;
  ASSERT_EQ(offsets[kUnit].size(), ranges.size());
  ASSERT_EQ(ranges.size(), 7u);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const std::vector<float> values = values_of(job, ranges[r]);
    double sum = 0;
    std::size_t scales = 0;
    for (std::size_t at = 0; at < values.size(); at += device::kScaleBlock, ++scales)
      sum += nf4_scale(std::span(values).subspan(at, std::min(device::kScaleBlock, values.size() - at)));
    EXPECT_FLOAT_EQ(offsets[kUnit][r], static_cast<float>(sum / static_cast<double>(scales))) << r;
  }
  const ScaleOffsets none = scale_offsets(job_of(1, 0, false).plan, IndexWeights(), 2, *world);
  for (const float offset : none[kUnit]) EXPECT_EQ(offset, 0) << "scales that are not quantised have none";
}

TEST(ScaleOffsets, AreTheSameIfRanksReadTheirShards) {
  const ScaleOffsets whole = scale_offsets(job_of(1).plan, IndexWeights(), 1, *comm::solo_world());
  for (const int stage : {0, 3}) {
    const Job job = job_of(2, stage);
    comm::run_threads(2, [&](comm::World& world) {
      EXPECT_EQ(scale_offsets(job.plan, IndexWeights(), 1, world), whole) << "stage " << stage;
    });
  }
}

void expect_blocks_stored(int ranks, int stage) {
  const Job job = job_of(ranks, stage);
  comm::run_threads(ranks, [&](comm::World& world) {
    const ScaleOffsets offsets = scale_offsets(job.plan, IndexWeights(), 1, world);
    Trainer trainer(job, world, 1);
    Executor& executor = trainer.executor();
    const models::ElementRange held = executor.storage().held(kUnit, StateKind::quantised);
    quantise_weights(executor, job.plan, IndexWeights(), offsets[kUnit], kUnit, held);
    constexpr device::StorageFormat kFormat = device::StorageFormat::nf4;
    const auto& ranges = job.plan.layout.units[kUnit].quantised.ranges;
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      const std::vector<float> values = values_of(job, ranges[r]);
      for (std::size_t at = 0; at < values.size(); at += device::kNf4Block) {
        const std::size_t place = ranges[r].begin + at;
        if (place < held.begin || place >= held.end) continue;  // another rank's
        std::vector<std::byte> wanted(stored_bytes(kFormat, device::kNf4Block)), stored(wanted.size());
        const auto block = std::span(values).subspan(at, std::min(values.size() - at, device::kNf4Block));
        write_nf4_block(kFormat, block, offsets[kUnit][r], wanted);
        executor.storage().read_state(kUnit, StateKind::quantised, stored_bytes(kFormat, place - held.begin), stored);
        EXPECT_EQ(stored, wanted) << "matrix " << r << ", element " << at;
      }
    }
  });
}

TEST(QuantiseWeights, StoresTheBlocksOfEachMatrix) {
  expect_blocks_stored(1, 0);
}

TEST(QuantiseWeights, ARankStoresTheBlocksOfItsShard) {
  expect_blocks_stored(2, 3);
}

}  // namespace
}  // namespace strata::runtime
