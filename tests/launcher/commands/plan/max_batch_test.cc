#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/commands/plan/plan.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/runtime/tiny_job.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A machine on which starting a task takes as long as moving many bytes: large micro-batches are faster.
runtime::Machine slow_to_start() {
  runtime::Machine m = runtime::even_machine();
  m.ranks = 1;
  m.threads = 4;
  m.task_overhead_us = 500;
  return m;
}

MaxBatch found(std::vector<std::string> sets, const std::optional<runtime::Machine>& machine) {
  const std::size_t limit = runtime::tiny_job({"training.micro_batch_size=11"}, 1).plan.memory[0].peak;
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16", fmt::format("memory.device={}", limit)});
  const runtime::Recipe recipe = runtime::load_recipe({}, sets);
  return find_max_batch({runtime::open_workload(recipe), 1, runtime::capacity_of(recipe.memory, 1), machine, 1});
}

std::vector<std::int64_t> sizes(const MaxBatch& found) {
  std::vector<std::int64_t> out;
  for (const BatchSpeed& speed : found.speeds) out.push_back(speed.size);
  return out;
}

TEST(MaxBatchTest, ReportsTheLargestAndTheNeedOfTheNext) {
  const MaxBatch most = found({}, {});
  ASSERT_TRUE(most.largest.fits);
  EXPECT_EQ(most.largest.fits->size, 11);
  EXPECT_EQ(most.fastest(), nullptr);
  EXPECT_THAT(max_batch_text(most), AllOf(HasSubstr("largest micro-batch that fits: 11 (device "),
                                          HasSubstr("\nwith 12 a step would take device "), Not(HasSubstr("fastest"))));
  EXPECT_THAT(max_batch_json(most), AllOf(HasSubstr("{\"size\":11,\"too_large\":{\"size\":12,\"memory\":{\"device\":"),
                                          HasSubstr("\"fastest\":null,\"speeds\":[]}")));
  EXPECT_THAT(max_batch_text(found({"training.global_batch_size=7"}, {})),
              HasSubstr("a rank's part of training.global_batch_size"));
  const MaxBatch none = found({"memory.device=1000"}, slow_to_start());
  EXPECT_THAT(max_batch_text(none), HasSubstr("not even of one sequence"));
  EXPECT_THAT(max_batch_json(none), HasSubstr("{\"size\":null,"));
}

TEST(MaxBatchTest, ReportsTheFastestAndTheReason) {
  const MaxBatch free = found({}, slow_to_start());
  EXPECT_EQ(sizes(free), (std::vector<std::int64_t>{1, 2, 4, 8, 11}));
  ASSERT_NE(free.fastest(), nullptr);
  EXPECT_EQ(free.fastest()->size, 11);
  const auto slower = [](const BatchSpeed& a, const BatchSpeed& b) { return a.tokens_per_s < b.tokens_per_s; };
  EXPECT_TRUE(std::is_sorted(free.speeds.begin(), free.speeds.end(), slower));
  EXPECT_THAT(max_batch_text(free),
              AllOf(HasSubstr("predicted fastest per token: 11, at "), HasSubstr("; with 1 it takes "),
                    HasSubstr("most of the difference is synchronisation (")));
  EXPECT_THAT(max_batch_json(free), HasSubstr("\"fastest\":11,\"speeds\":[{\"size\":1,\"device_peak_bytes\":"));
  // The parts account for the whole time of a step. A sequence has 16 tokens.
  double seconds = 0;
  for (const double part : free.speeds[0].path_per_token) seconds += part;
  EXPECT_NEAR(seconds * 16, free.speeds[0].step_ms / 1e3, 1e-4 * seconds * 16);

  // If a global batch is given, only its divisors are tried.
  const MaxBatch of_twelve = found({"training.global_batch_size=12", "memory.device=1GiB"}, slow_to_start());
  EXPECT_EQ(sizes(of_twelve), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
  ASSERT_NE(of_twelve.fastest(), nullptr);
  EXPECT_EQ(of_twelve.fastest()->size, 12);
}

// A micro-batch is compared with smaller ones that the pipeline's schedule supports.
TEST(MaxBatchTest, SkipsSizesThatOtherKeysExclude) {
  runtime::Machine machine = slow_to_start();
  machine.ranks = 2;
  machine.threads = 2;
  machine.collectives = {10, 5};
  const std::vector<std::string> sets = {
      "device.kind=cpu",   "model.preset=tiny-gpt2", "model.config.n_layer=4",        "data.seq_len=16",
      "parallel.stages=2", "parallel.chunks=2",      "parallel.schedule=interleaved", "training.global_batch_size=12"};
  const runtime::Recipe recipe = runtime::load_recipe({}, sets);
  const MaxBatch most =
      find_max_batch({runtime::open_workload(recipe), 2, runtime::capacity_of(recipe.memory, 1), machine, 2});
  EXPECT_EQ(sizes(most), (std::vector<std::int64_t>{1, 2, 3, 6})) << "three micro-batches of 4 are no pairs";
  EXPECT_THAT(max_batch_text(most),
              HasSubstr("\na rank's part of training.global_batch_size is 12, and parallel.schedule takes 2 "
                        "micro-batches at a time: a larger one would need a larger batch\n"));
  // Their times are for all stages together.
  for (const BatchSpeed& speed : most.speeds) {
    runtime::Recipe of_size = recipe;
    of_size.training.micro_batch_size = speed.size;
    const runtime::Workload workload = runtime::open_workload(of_size);
    const runtime::Capacity capacity = runtime::capacity_of(recipe.memory, 1);
    EXPECT_EQ(speed.step_ms, plan_step({workload, 2, capacity, machine, 2}).step_ms) << speed.size;
    EXPECT_NEAR(runtime::sum_of(speed.path_per_token) * 12 * 16, speed.step_ms / 1e3, 1e-6);
  }
}

}  // namespace
}  // namespace strata::launcher
