#include "runtime/forecast/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

Machine some_machine() {
  Machine m;
  m.processor = "a \"fast\" one";
  m.ranks = 2;
  m.threads = 3;
  m.task_overhead_us = 20;
  m.widths = {128, 512};
  m.products_gflop_per_s = {{{100, 200}, {300, 400}, {50, 60}}};
  m.attention_gflop_per_s = {10, 11, 12};
  m.elementwise_gb_per_s = {{{5, 5}, {6, 8}, {7, 7}}};
  m.loss_gb_per_s = {8, 9, 10};
  m.optimizer_gb_per_s = {20, 21, 22};
  m.triad_gb_per_s = 30;
  m.device_copy_gb_per_s = 15;
  m.host_copy_gb_per_s = 12;
  m.sum_gb_per_s = 13;
  m.norm_gb_per_s = 14;
  return m;
}

class MachineFile : public testing::Test {
 protected:
  Machine read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_machine(path_);
  }
  // The file with one text replaced by another.
  std::string edited(const std::string& from, const std::string& to) {
    std::string text = machine_toml(some_machine());
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  void expect_refused(const std::string& text, const std::string& part) {
    try {
      (void)read(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
      EXPECT_THAT(error.what(), testing::HasSubstr(path_.string()));
    }
  }

  tests::ScratchFolder folder_;
  std::filesystem::path path_ = folder_.path() / "machine.toml";
};

TEST_F(MachineFile, SurvivesARoundTrip) {
  Machine m = some_machine();
  m.disk = {2, 3.5, 1.25, 80, 20, 0.75, 0.5, 0.25};
  m.collectives = {7, 8};
  m.network = {25, 5, 2, false};
  const Machine back = read(machine_toml(m));
  EXPECT_EQ(machine_toml(back), machine_toml(m));
  EXPECT_EQ(back.processor, m.processor);
  EXPECT_EQ(back.products_gflop_per_s, m.products_gflop_per_s);
  ASSERT_TRUE(back.disk && back.collectives);
  EXPECT_EQ(back.disk->write_gb_per_s, 1.25);
  EXPECT_EQ(back.disk->write_latency_us, 20);
  EXPECT_EQ(back.collectives->all_to_all_gb_per_s, 8);
  ASSERT_TRUE(back.network);
  EXPECT_EQ(back.network->gb_per_s, 25);
  EXPECT_EQ(back.network->rails, 2);
  EXPECT_FALSE(back.network->shared);
  EXPECT_EQ(back.optimizer_gb_per_s, m.optimizer_gb_per_s);
  const Machine alone = read(machine_toml(some_machine()));
  EXPECT_FALSE(alone.disk || alone.collectives);
}

// Drives that do not slow down products, with negligible latencies.
TEST_F(MachineFile, LatenciesAndSlowdownsMayBeZero) {
  Machine m = some_machine();
  m.disk = {2, 3.5, 1.25, 0, 0, 0.75, 0.25, 0};
  const Machine back = read(machine_toml(m));
  ASSERT_TRUE(back.disk);
  EXPECT_EQ(back.disk->write_latency_us, 0);
  EXPECT_EQ(back.disk->slows_products, 0);
}

TEST_F(MachineFile, RefusesUnknownKeys) {
  expect_refused(edited("ranks = 2", "ranks = 2\nhost = \"here\""), "unknown key host");
  expect_refused(edited("sum_gb_per_s", "sums_gb_per_s"), "has no memory.sum_gb_per_s");
  expect_refused(edited("[memory]", "[memory]\nheight = 3"), "unknown key memory.height");
  expect_refused(edited("ranks = 2", "ranks = 2.5"), "ranks must be a whole number");
  expect_refused(edited("threads = 3", "threads = 0"), "threads must be a number above 0");
  expect_refused(edited("triad_gb_per_s = 30", "triad_gb_per_s = -1"),
                 "memory.triad_gb_per_s must be a number above 0");
  expect_refused(edited("triad_gb_per_s = 30", "triad_gb_per_s = inf"), "above 0");
  expect_refused(edited("triad_gb_per_s = 30", "triad_gb_per_s = 1e300"), "to 1e12");
  expect_refused(edited("triad_gb_per_s = 30", "triad_gb_per_s = \"30\""), "above 0");
  expect_refused(edited("[128, 512]", "[512, 128]"), "ascending");
  expect_refused(edited("[128, 512]", "[128]"), "as many numbers");
  expect_refused(edited("[300, 400]", "[]"), "list of numbers");
  expect_refused(edited("[300, 400]", "300"), "list of numbers");
  expect_refused(edited("[memory]", "[memory"), "line");
  const std::string network = machine_toml(some_machine()) + "[network]\n";
  EXPECT_TRUE(read(network + "gb_per_s = 1\nlatency_us = 0\n").network->shared);
  expect_refused(network + "gb_per_s = 1\n", "has no network.latency_us");
  expect_refused(network + "gb_per_s = 1\nlatency_us = 0\nrails = 1.5\n", "network.rails must be a whole number");
  expect_refused(network + "links = \"two\"\n", "network.links must be \"shared\" or \"per rank\"");
  expect_refused(machine_toml(some_machine()) + "[disk]\nread_gb_per_s = 1\n", "has no disk.drives");
  expect_refused("", "names no processor");
  // The file is a recipe, so the message must not advise overwriting it.
  expect_refused("[model]\npreset = \"tiny-gpt2\"\n",
                 "is not a machine file, because it names no processor: strata calibrate -o FILE");
}

TEST_F(MachineFile, RefusesAMissingFile) {
  EXPECT_THROW((void)read_machine(folder_.path() / "none.toml"), Error);
}

class Profile : public testing::Test {
 protected:
  // The machine has as many ranks as were measured.
  static MachineProfile profile_at(const Machine& machine, const Job& job) {
    return profile_of(machine, job, machine.ranks);
  }
  Job job(std::vector<std::string> sets, int ranks = 1) {
    sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=64"});
    const Recipe recipe = load_recipe(std::nullopt, sets);
    Capacity capacity{};
    capacity.tier.fill(std::size_t{1} << 40);
    capacity.together = std::size_t{1} << 40;
    return make_job(open_workload(recipe), ranks, capacity);
  }
};

TEST_F(Profile, UsesSpeedsForTheJobsDTypeMomentsAndWidth) {
  const MachineProfile p =
      profile_at(some_machine(), job({"training.precision=bf16", "optimizer.moments=8bit", "model.config.n_embd=256"}));
  EXPECT_NEAR(p.flops_per_s, 350e9, 1) << "256 lies half way, by the logarithm, between 128 and 512";
  EXPECT_EQ(p.attention_flops_per_s, 11e9);
  EXPECT_NEAR(p.bytes_per_s, 7e9, 1);
  EXPECT_EQ(p.loss_bytes_per_s, 9e9);
  EXPECT_EQ(p.update_bytes_per_s, 22e9);
  EXPECT_EQ(p.cores, 3);
  EXPECT_DOUBLE_EQ(p.task_overhead_s, 20e-6);
  const MachineProfile wide = profile_at(some_machine(), job({"model.config.n_embd=1024"}));
  EXPECT_EQ(wide.flops_per_s, 400e9) << "beyond the measured sizes, the last one counts";
  const MachineProfile narrow = profile_at(some_machine(), job({"model.config.n_embd=64", "training.precision=fp32"}));
  EXPECT_EQ(narrow.flops_per_s, 100e9);
}

TEST_F(Profile, RefusesAJobThatNeedsMoreThanWasMeasured) {
  Machine machine = some_machine();
  EXPECT_FAILURE((void)profile_at(machine, job({"zero.stage=3"}, 2)), Exit::usage,
                 testing::HasSubstr("was measured by one rank"));
  machine.measured = false;
  EXPECT_FAILURE((void)profile_at(machine, job({"zero.stage=3"}, 2)), Exit::usage,
                 testing::HasSubstr("is computed from data sheets of a machine with one rank"));
  machine.measured = true;
  machine.collectives = {4, 1.5};
  EXPECT_EQ(profile_at(machine, job({"zero.stage=3"}, 2)).all_gather_bytes_per_s, 4e9);

  tests::ScratchFolder folder;
  const Job on_disk = job({"zero.optimizer=nvme", "memory.nvme=[\"" + folder.path().string() + "\"]"});
  EXPECT_THROW((void)profile_at(machine, on_disk), Error);
  machine.disk = {2, 6, 4, 80, 20, 0.75, 0.5, 0.25};
  EXPECT_EQ(profile_at(machine, on_disk).read_bytes_per_s, 3e9) << "one of two drives";
  EXPECT_DOUBLE_EQ(profile_at(machine, on_disk).read_latency_s, 80e-6);
  EXPECT_DOUBLE_EQ(profile_at(machine, on_disk).write_latency_s, 20e-6);
  EXPECT_DOUBLE_EQ(profile_at(machine, on_disk).disk_core_share, 0.25);
  EXPECT_DOUBLE_EQ(profile_at(machine, on_disk).disk_both_ways, 0.75);
  EXPECT_DOUBLE_EQ(profile_at(machine, on_disk).disk_speed_during_products, 0.5);
}

// The measurement covers the exchange and the sum that follows. The simulator, which models both, gets the same time.
TEST_F(Profile, AnAllToAllTakesTheMeasuredTimeIncludingItsSum) {
  Machine machine = some_machine();
  machine.sum_gb_per_s = 12;
  machine.collectives = {4, 1.5};  // the sum alone: 12 bytes for each 2 that are sent, so 12 GB/s limit it to 2 GB/s
  const Job two = job({"zero.stage=2", "training.precision=bf16"}, 2);
  const MachineProfile p = profile_at(machine, two);
  EXPECT_NEAR(p.all_to_all_bytes_per_s, 6e9, 1);
  int reductions = 0;
  for (const Task& task : two.plan.tasks) {
    if (task.kind != TaskKind::reduce || task.shared) continue;
    ++reductions;
    const BoundSeconds s = seconds_of(task, p);
    EXPECT_NEAR(s[static_cast<std::size_t>(Bound::communication)] + s[static_cast<std::size_t>(Bound::memory)],
                task.cost.sent_bytes / 1.5e9, 1e-9)
        << "unit " << task.unit;
  }
  EXPECT_GT(reductions, 1);
  // The sum alone would explain this figure, so a tenth of it is attributed to the exchange.
  machine.collectives->all_to_all_gb_per_s = 331;
  EXPECT_NEAR(profile_at(machine, two).all_to_all_bytes_per_s, 3310e9, 1e3);
}

// Data between nodes goes over links that a node's ranks share, or over a link per rank.
TEST_F(Profile, TheNetworkIsSharedByANodesRanksOrPerRank) {
  Machine machine = some_machine();
  machine.collectives = {4, 1.5};
  machine.network = {10, 5, 2, true};
  const Job eight = job({"zero.stage=2"}, 8);
  EXPECT_DOUBLE_EQ(profile_of(machine, eight, 2).network_bytes_per_s, 10e9);
  EXPECT_DOUBLE_EQ(profile_of(machine, eight, 2).network_latency_s, 5e-6);
  EXPECT_EQ(profile_of(machine, eight, 8).network_bytes_per_s, 0) << "on one node";
  machine.network->shared = false;
  EXPECT_DOUBLE_EQ(profile_of(machine, eight, 2).network_bytes_per_s, 20e9);
}

// If the machine has a different number of ranks than measured it, they share its resources evenly.
TEST_F(Profile, ScalesToAnotherNumberOfRanks) {
  Machine machine = some_machine();
  machine.threads = 8;
  machine.collectives = {4, 1.5};
  machine.disk = {1, 6, 4, 80, 20, 0.75, 0.5, 0.25};
  const MachineProfile two = profile_of(machine, job({"zero.stage=2"}, 8), 2),
                       eight = profile_of(machine, job({"zero.stage=2"}, 8), 8), one = profile_of(machine, job({}), 1);
  EXPECT_DOUBLE_EQ(eight.flops_per_s, two.flops_per_s / 4);
  EXPECT_DOUBLE_EQ(eight.memory_bytes_per_s, two.memory_bytes_per_s / 4);
  EXPECT_DOUBLE_EQ(eight.read_bytes_per_s, two.read_bytes_per_s / 4);
  EXPECT_DOUBLE_EQ(eight.sum_bytes_per_s, two.sum_bytes_per_s / 4);
  EXPECT_DOUBLE_EQ(eight.all_gather_bytes_per_s, two.all_gather_bytes_per_s / 4);
  EXPECT_EQ(eight.cores, 2);
  EXPECT_DOUBLE_EQ(one.flops_per_s, 2 * two.flops_per_s);
  EXPECT_EQ(one.sum_bytes_per_s, two.sum_bytes_per_s) << "a single thread gains no speed";
  EXPECT_EQ(one.cores, 16);
}

TEST_F(Profile, ReportsScaledFigures) {
  const Machine machine = some_machine();  // of 2 ranks
  EXPECT_EQ(scaling_text(machine, 2, 2, 0), "");
  EXPECT_EQ(
      scaling_text(machine, 8, 8, 0),
      "speeds of 2 ranks on the machine, scaled to 8 ranks: cores, memory and drives are divided evenly; to measure "
      "them, run mpirun -n 8 strata calibrate");
  EXPECT_EQ(scaling_text(machine, 8, 2, 0),
            "collectives between machines are assumed to be as fast as within one, because the machine file has no "
            "[network]: a network makes the step longer");
  Machine connected = machine;
  connected.network = {1, 0};
  EXPECT_EQ(scaling_text(connected, 8, 2, 0), "");
  EXPECT_THAT(scaling_text(machine, 8, 4, 0), testing::AllOf(testing::HasSubstr("scaled to 4 ranks"),
                                                             testing::HasSubstr("\ncollectives between machines")));
  EXPECT_THAT(scaling_text(machine, 1, 1, 0), testing::HasSubstr("scaled to 1 rank:"));
  Machine gpus = machine;
  gpus.gpu = true;
  EXPECT_THAT(scaling_text(gpus, 1, 1, 0),
              testing::HasSubstr("the run uses 1 of the machine's 2 GPUs: each rank has 2 times"));
  EXPECT_EQ(scaling_text(gpus, 2, 2, 0), "");
  gpus.disk.emplace().drives = 4;
  EXPECT_EQ(scaling_text(gpus, 2, 2, 1),
            "memory.nvme names 1 of 4 measured drives: the file's speed is scaled down to them");
  EXPECT_EQ(scaling_text(gpus, 2, 2, 4), "");
}

}  // namespace
}  // namespace strata::runtime
