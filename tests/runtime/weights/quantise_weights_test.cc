#include "runtime/weights/quantise_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/numeric/nf4.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/trainer.h"
#include "runtime/weights/nf4_block.h"
#include "tests/runtime/weights/index_weights.h"

namespace strata::runtime {
namespace {

// A small Llama whose last block is frozen.
Job job_of(int ranks, int stage = 0, bool double_quant = true) {
  const std::vector<std::string> sets = {"model.preset=tiny-llama",
                                         "data.seq_len=16",
                                         "training.max_steps=1",
                                         R"(training.freeze=["model.layers.1.*"])",
                                         "model.frozen_format=nf4",
                                         std::string("model.double_quant=") + (double_quant ? "true" : "false"),
                                         "zero.stage=" + std::to_string(stage)};
  const Recipe recipe = load_recipe(std::nullopt, sets);
  return make_job(recipe, ranks, capacity_of(recipe.memory, ranks));
}

constexpr std::size_t kUnit = 2;  // the frozen block

std::vector<float> values_of(const Job& job, const TensorRange& range) {
  std::vector<float> out(job.model->units[kUnit]->parameters()[range.parameter].size());
  IndexWeights().read(kUnit, range.parameter, 0, out);
  return out;
}

TEST(ScaleOffsets, AreTheMeansOfTheScales) {
  const Job job = job_of(1);
  const ScaleOffsets offsets = scale_offsets(job.plan, IndexWeights(), 2);
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
  const ScaleOffsets none = scale_offsets(job_of(1, 0, false).plan, IndexWeights(), 2);
  for (const float offset : none[kUnit]) EXPECT_EQ(offset, 0) << "scales that are not quantised have none";
}

TEST(ScaleOffsets, AreTheSameIfRanksReadTheirShards) {
  const ScaleOffsets whole = scale_offsets(job_of(1).plan, IndexWeights(), 1);
  for (const int stage : {0, 3}) {
    const Job job = job_of(2, stage);
    comm::run_threads(2, [&](comm::World& world) {
      EXPECT_EQ(scale_offsets(job.plan, IndexWeights(), 1, world), whole) << "stage " << stage;
    });
  }
}

TEST(QuantiseWeights, StoresTheBlocksOfEachMatrix) {
  const Job job = job_of(1);
  const auto world = comm::solo_world();
  Trainer trainer(job, *world, 1, Trainer::Weights::later);
  Executor& executor = trainer.executor();
  const ScaleOffsets offsets = scale_offsets(job.plan, IndexWeights(), 1);
  const Pool& pool = job.plan.layout.units[kUnit].quantised;
  quantise_weights(executor, job.plan, IndexWeights(), offsets[kUnit], kUnit, {0, pool.padded()});
  constexpr device::StorageFormat kFormat = device::StorageFormat::nf4;
  for (std::size_t r = 0; r < pool.ranges.size(); ++r) {
    const std::vector<float> values = values_of(job, pool.ranges[r]);
    std::vector<std::byte> wanted(stored_bytes(kFormat, device::kNf4Block)), stored(wanted.size());
    const auto first = std::span(values).first(std::min(values.size(), device::kNf4Block));
    write_nf4_block(kFormat, first, offsets[kUnit][r], wanted);
    executor.storage().read_state(kUnit, StateKind::quantised, stored_bytes(kFormat, pool.ranges[r].begin), stored);
    EXPECT_EQ(stored, wanted) << "matrix " << r;
  }
}

}  // namespace
}  // namespace strata::runtime
