#include "runtime/job/search/micro_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/tiny_job.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

Recipe recipe_of(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16"});
  return load_recipe({}, sets);
}

std::vector<std::string> with(std::vector<std::string> sets, const std::string& more) {
  sets.push_back(more);
  return sets;
}
std::vector<std::string> sized(const std::vector<std::string>& sets, std::int64_t size) {
  return with(sets, fmt::format("training.micro_batch_size={}", size));
}

// A random recipe without a batch size and memory limits.
std::vector<std::string> any_recipe(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<const char*> values) {
    return *(values.begin() + random() % values.size());
  };
  std::vector<std::string> sets = {fmt::format("zero.stage={}", random() % 4),
                                   fmt::format("training.precision={}", one_of({"fp32", "bf16", "fp16"})),
                                   fmt::format("training.recompute={}", one_of({"block", "sqrt", "block"})),
                                   fmt::format("memory.prefetch={}", random() % 3),
                                   "memory.nvme=/none",
                                   "memory.host=1GiB"};
  for (const char* state : {"parameters", "gradients", "optimizer", "activations"})
    sets.push_back(fmt::format("zero.{}={}", state, one_of({"device", "device", "host", "nvme"})));
  return sets;
}

// A random number of bytes between the needs of `few` and `many` sequences.
std::size_t between(const std::vector<std::string>& sets, int ranks, std::int64_t few, std::int64_t many,
                    std::mt19937& random) {
  const std::size_t least = tiny_job(sized(sets, few), ranks).plan.memory[0].peak;
  const std::size_t most = tiny_job(sized(sets, many), ranks).plan.memory[0].peak;
  return least + random() % (most - least + 1);
}

// The size fits, but the next one and all others up to twice as large do not. Each is tried.
TEST(MicroBatchTest, TheLargestFitsAndTheNextDoesNot) {
  std::mt19937 random(20261122);
  int above_one = 0;
  for (int i = 0; i < 25; ++i) {
    const int ranks = 1 << random() % 3;
    auto sets = with(any_recipe(random), fmt::format("training.gradient_accumulation_steps={}", 1 + random() % 2));
    sets.push_back(fmt::format("memory.device={}", between(sets, ranks, 1, 24, random)));
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, fmt::join(sets, " ")));
    const Recipe recipe = recipe_of(sets);
    const Capacity capacity = capacity_of(recipe.memory, 1);
    const LargestBatch found = largest_micro_batch(open_workload(recipe), ranks, capacity);
    std::int64_t largest = 0;
    for (std::int64_t size = 1; size <= 48; ++size)
      if (fits(tiny_job(sized(sets, size), ranks).plan, capacity)) largest = size;
    ASSERT_TRUE(found.fits);
    ASSERT_TRUE(found.too_large);
    EXPECT_EQ(found.fits->size, largest);
    EXPECT_EQ(found.too_large->size, largest + 1);
    EXPECT_EQ(found.fits->memory[0].peak, tiny_job(sized(sets, largest), ranks).plan.memory[0].peak);
    EXPECT_EQ(found.too_large->memory[0].peak, tiny_job(sized(sets, largest + 1), ranks).plan.memory[0].peak);
    above_one += largest > 1 ? 1 : 0;
  }
  EXPECT_GT(above_one, 15);
}

// With a global batch, the largest size that divides a rank's part and fits. A single micro-batch may fit although two
// halves do not, because their gradients must be summed.
TEST(MicroBatchTest, DividesTheGlobalBatch) {
  std::mt19937 random(7);
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < 25; ++i) {
    const int ranks = 1 << random() % 2;
    auto sets = with(any_recipe(random), fmt::format("training.global_batch_size={}", 24 * ranks));
    sets.push_back(fmt::format("memory.device={}", between(sets, ranks, 1, 24, random)));
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, fmt::join(sets, " ")));
    const Recipe recipe = recipe_of(sets);
    const Capacity capacity = capacity_of(recipe.memory, 1);
    std::int64_t largest = 0;
    for (const std::int64_t size : {1, 2, 3, 4, 6, 8, 12, 24})
      if (fits(tiny_job(sized(sets, size), ranks).plan, capacity)) largest = size;
    const LargestBatch found = largest_micro_batch(open_workload(recipe), ranks, capacity);
    EXPECT_EQ(found.fits ? found.fits->size : 0, largest);
    EXPECT_EQ(found.too_large.has_value(), largest < 24);
    ++seen[largest];
  }
  EXPECT_GT(seen.size(), 3u);
  EXPECT_FAILURE(
      largest_micro_batch(open_workload(recipe_of({"training.global_batch_size=10"})), 4, capacity_of({}, 1)),
      Exit::usage,
      AllOf(HasSubstr("training.global_batch_size = 10"), HasSubstr("over 4 ranks"), HasSubstr("a multiple of 4")));
}

// In a pipeline, the ranks of a replica take the same micro-batches, and the largest stage counts.
TEST(MicroBatchTest, FitsEveryStageOfAPipeline) {
  const std::vector<std::string> sets = {"parallel.stages=2", "parallel.split=[0, 4]", "model.config.n_layer=4",
                                         "training.global_batch_size=6"};
  const auto largest = [&](std::size_t device) {
    const Recipe recipe = recipe_of(with(sets, fmt::format("memory.device={}", device)));
    return largest_micro_batch(open_workload(recipe), 4, capacity_of(recipe.memory, 1));
  };
  const LargestBatch all = largest(std::size_t{1} << 40);
  ASSERT_TRUE(all.fits);
  EXPECT_EQ(all.fits->size, 3) << "each of two replicas has a half";
  std::size_t first = 0, most = 0;
  const Recipe whole = recipe_of(with(sets, "training.micro_batch_size=3"));
  for (const Job& stage : jobs_of_stages(open_workload(whole), 4, capacity_of({}, 1))) {
    if (stage.plan.stage == 0) first = stage.plan.memory[0].peak;
    most = std::max(most, stage.plan.memory[0].peak);
  }
  ASSERT_GT(most, first) << "the last stage, which has all blocks, is the largest";
  EXPECT_EQ(largest(most).fits->size, 3);
  EXPECT_EQ(largest(most).fits->memory[0].peak, most) << "the figure is the largest stage's";
  EXPECT_FALSE(largest(most - 1).fits && largest(most - 1).fits->size == 3);
}

// Two interleaved stages take an even number of micro-batches: six sequences are two of three, not one of six.
TEST(MicroBatchTest, FormsCompleteGroupsInAnInterleavedPipeline) {
  const std::vector<std::string> sets = {"parallel.stages=2", "parallel.schedule=interleaved", "parallel.chunks=2",
                                         "model.config.n_layer=4"};
  const auto largest = [&](int batch) {
    const Recipe recipe = recipe_of(with(sets, fmt::format("training.global_batch_size={}", batch)));
    return largest_micro_batch(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
  };
  EXPECT_EQ(largest(6).fits->size, 3);
  EXPECT_EQ(largest(12).fits->size, 6);
  EXPECT_FAILURE(largest(3), Exit::usage, HasSubstr("not a multiple of parallel.stages = 2: make it 4"));
}

// Sizes that leave no whole runs of training.reduce_group, or rows that ranks cannot divide, are passed over.
TEST(MicroBatchTest, SkipsSizesThatOtherKeysExclude) {
  const auto largest = [](const std::vector<std::string>& sets, int ranks) {
    const Recipe recipe = recipe_of(sets);
    return largest_micro_batch(open_workload(recipe), ranks, capacity_of(recipe.memory, 1));
  };
  const std::vector<std::string> runs = {"training.global_batch_size=8", "training.reduce_group=2"};
  EXPECT_EQ(largest(runs, 1).fits->size, 4) << "one micro-batch of 8 does not make two runs";
  EXPECT_FAILURE(largest({"training.global_batch_size=8", "training.reduce_group=3"}, 1), Exit::usage,
                 HasSubstr("training.reduce_group = 3"));
  const std::vector<std::string> rows = {"parallel.tensor=2", "parallel.sequence=true", "data.seq_len=15"};
  const auto of_four = with(sized(rows, 4), "memory.host=1GiB");
  const std::size_t needed = tiny_job(of_four, 2).plan.memory[0].peak;
  const LargestBatch found = largest(with(rows, fmt::format("memory.device={}", needed)), 2);
  EXPECT_EQ(found.fits->size, 4);
  EXPECT_EQ(found.too_large->size, 6);
  EXPECT_EQ(largest(with(rows, "training.global_batch_size=12"), 2).fits->size, 12);
  const LargestBatch none = largest(with(rows, "memory.device=1KB"), 2);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.size(), 2);
}

// In one case nothing fits, in the other everything up to the largest micro-batch.
TEST(MicroBatchTest, HandlesBothExtremes) {
  const auto largest = [](const std::vector<std::string>& sets) {
    const Recipe recipe = recipe_of(sets);
    return largest_micro_batch(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
  };
  const LargestBatch none = largest({"memory.device=1KiB"});
  EXPECT_FALSE(none.fits);
  ASSERT_TRUE(none.too_large);
  EXPECT_EQ(none.too_large->size, 1);
  const LargestBatch all = largest({"memory.device=100TB"});
  ASSERT_TRUE(all.fits);
  EXPECT_EQ(all.fits->size, (1 << 24) / 16) << "16,777,216 tokens";
  EXPECT_FALSE(all.too_large);
  const LargestBatch whole = largest({"memory.device=100TB", "training.global_batch_size=21"});
  ASSERT_TRUE(whole.fits);
  EXPECT_EQ(whole.fits->size, 21);
  EXPECT_FALSE(whole.too_large);
}

// Only the recipe's limits count, and not the machine's.
TEST(MicroBatchTest, TheRecipeAloneDeterminesTheAutomaticSize) {
  const std::size_t limit = tiny_job({"training.micro_batch_size=5"}, 1).plan.memory[0].peak;
  const auto resolved = [&](std::vector<std::string> sets, std::size_t device) {
    sets.insert(sets.end(), {"training.micro_batch_size=auto", fmt::format("memory.device={}", device)});
    const Workload workload = open_workload(recipe_of(sets));
    EXPECT_EQ(workload.recipe.training.micro_batch_size, kAutomaticBatch);
    EXPECT_THAT(to_text(workload.recipe), HasSubstr("training.micro_batch_size = \"auto\"\n"));
    const ResolvedBatch batch = resolve_micro_batch(workload, 1, {});
    const Workload sized = workload.with(with_micro_batch(workload.recipe, batch.size));
    EXPECT_THAT(to_text(sized.recipe), HasSubstr(fmt::format("size = {}\n", batch.size)));
    EXPECT_THAT(resolve_micro_batch(sized, 1, {}).text, IsEmpty()) << "it is already resolved";
    return std::pair(batch.size, batch.text);
  };
  const auto [five, of_five] = resolved({}, limit);
  EXPECT_EQ(five, 5);
  EXPECT_THAT(of_five, AllOf(HasSubstr("training.micro_batch_size = auto: 5, the largest that fits memory.device ("),
                             HasSubstr(bytes_text(limit)), HasSubstr("; with 6 it would take device ")));
  EXPECT_EQ(resolved({}, limit - 1).first, 4);
  // With twelve micro-batches of 6 and their summed gradients, a size of 5 would fit, too.
  const std::vector<std::string> parts = {"training.micro_batch_size=6", "training.gradient_accumulation_steps=12"};
  const auto [of_all, text] = resolved({"training.global_batch_size=72"}, tiny_job(parts, 1).plan.memory[0].peak);
  EXPECT_EQ(of_all, 6);
  EXPECT_THAT(text, AllOf(HasSubstr("auto: 6, "), HasSubstr(" and divides training.global_batch_size = 72"),
                          HasSubstr("with 8 it would take")));
  EXPECT_EQ(resolved({}, 1000).first, 1);
  EXPECT_THAT(resolved({}, 1000).second, IsEmpty()) << "its refusal says more";
  // A thousand times the memory of any machine.
  EXPECT_GT(resolved({"zero.optimizer=host"}, std::size_t{1} << 50).first, 1000);
  const ResolvedBatch given = resolve_micro_batch(open_workload(recipe_of({"training.micro_batch_size=3"})), 1, {});
  EXPECT_THAT(given.text, IsEmpty());
  EXPECT_EQ(given.size, 3);
}

// If the activations go to the host, the host's memory is the limit.
TEST(MicroBatchTest, CountsActivationsOnTheHost) {
  const std::vector<std::string> sets = {"training.micro_batch_size=auto", "memory.device=1GiB",
                                         "training.recompute=block", "zero.activations=host"};
  const auto [size, text] = resolve_micro_batch(open_workload(recipe_of(with(sets, "memory.host=300KiB"))), 1, {});
  EXPECT_THAT(text, HasSubstr(", host "));
  const auto host = [&](std::int64_t of) {
    return tiny_job(with(sized(sets, of), "memory.host=300KiB"), 1).plan.memory[1].peak;
  };
  EXPECT_LE(host(size), 300u << 10);
  EXPECT_GT(host(size + 1), 300u << 10);
}

// The number comes from the newest complete checkpoint, on any number of ranks and with any memory.
TEST(MicroBatchTest, AResumedRunKeepsTheCheckpoints) {
  const tests::ScratchFolder folder;
  const auto write = [&](const char* name, std::uint64_t serial, const char* size, bool damaged) {
    Manifest manifest;
    manifest.serial = serial;
    manifest.progress.loss_scale = {1, 0};
    manifest.config = "{}";
    manifest.recipe = {{"training.micro_batch_size", size}};
    std::filesystem::create_directories(folder.path() / name);
    std::ofstream(folder.path() / name / kManifestName) << to_json(manifest) << (damaged ? "x" : "");
  };
  write("step-00000002", 1, "6", false);
  write("step-00000004", 2, "7", false);
  write("step-00000006", 3, "9", true);
  const auto resolved = [&](const std::string& resume) {
    const Workload workload =
        open_workload(recipe_of({"training.micro_batch_size=auto", "memory.device=1KiB",
                                 "checkpoint.dir=" + folder.path().string(), "checkpoint.resume=" + resume}));
    const ResolvedBatch batch = resolve_micro_batch(workload, 2, {});
    const auto resumed = resume_micro_batch(workload.recipe);
    EXPECT_EQ(resumed.has_value(), resume != "none") << "without the model";
    if (resumed) {
      EXPECT_EQ(resumed->size, batch.size);
      EXPECT_EQ(resumed->text, batch.text);
    }
    return std::pair(batch.size, batch.text);
  };
  const auto [size, text] = resolved("auto");
  EXPECT_EQ(size, 7);
  EXPECT_THAT(text, AllOf(HasSubstr("training.micro_batch_size = auto: 7, as in "), HasSubstr("step-00000004")));
  EXPECT_EQ(resolved((folder.path() / "step-00000002").string()).first, 6);
  EXPECT_EQ(resolved(folder.path().string()).first, 7);
  EXPECT_EQ(resolved("none").first, 1);
  // If no run has written yet, there is nothing to keep.
  const Workload first = open_workload(recipe_of(
      {"training.micro_batch_size=auto", "memory.device=1KiB", "checkpoint.dir=" + (folder.path() / "new").string()}));
  EXPECT_THAT(resolve_micro_batch(first, 2, {}).text, IsEmpty());
}

}  // namespace
}  // namespace strata::runtime
