#include "launcher/measure/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/forecast.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

// Measures as little as possible, because the figures do not matter here.
CalibrateOptions tiny() {
  CalibrateOptions options;
  options.seconds = 0;
  options.widths = {64, 128};
  options.batch = 1;
  options.seq = 16;
  options.vocabulary = 512;
  options.bytes = std::size_t{1} << 20;
  return options;
}

class Calibrate : public testing::Test {
 protected:
  // The machine file as it was written and read back.
  std::filesystem::path write(const runtime::Machine& machine) {
    std::ofstream(path_) << machine_toml(machine);
    return path_;
  }
  tests::ScratchFolder folder_;
  std::filesystem::path path_ = folder_.path() / "machine.toml";
};

TEST_F(Calibrate, MeasuresEveryFigureOfTheFile) {
  CalibrateOptions options = tiny();
  options.dirs = {folder_.path()};
  const auto world = comm::solo_world();
  const runtime::Machine machine = runtime::read_machine(write(measure(options, *world, 2)));
  EXPECT_EQ(machine.ranks, 1);
  EXPECT_EQ(machine.threads, 2);
  EXPECT_THAT(machine.widths, testing::ElementsAre(64, 128));
  ASSERT_TRUE(machine.disk.has_value());
  EXPECT_LE(machine.disk->both_ways, 2);
  EXPECT_LE(machine.disk->speed_during_products, 1);
  EXPECT_FALSE(machine.collectives.has_value()) << "one rank sends nothing";
}

// The table shows the figures of the file, with the spread of their calls.
TEST_F(Calibrate, ShowsEachFigureWithItsSpread) {
  CalibrateOptions options = tiny();
  options.dirs = {folder_.path()};
  const auto world = comm::solo_world();
  std::vector<Figure> figures;
  const runtime::Machine machine = measure(options, *world, 2, &figures);
  const auto value = [&](const std::string& what) {
    const auto at = std::find_if(figures.begin(), figures.end(), [&](const Figure& f) { return f.what == what; });
    EXPECT_NE(at, figures.end()) << what;
    return at == figures.end() ? 0 : at->value;
  };
  EXPECT_EQ(value("GEMM, bf16, width 128"), machine.products_gflop_per_s[1][1]);
  EXPECT_EQ(value("AdamW, moments in 8bit"), machine.optimizer_gb_per_s[2]);
  EXPECT_EQ(value("memory, y += x"), machine.triad_gb_per_s);
  EXPECT_EQ(value("drives, write"), machine.disk->write_gb_per_s);
  bool spread = false;
  for (const Figure& f : figures) {
    EXPECT_GE(f.spread, 0) << f.what;
    EXPECT_FALSE(f.unit.empty());
    spread = spread || f.spread > 0;
  }
  EXPECT_TRUE(spread) << "no two calls take the same time";
}

// These figures come from a busy machine, and commands that plan with the file say so.
TEST_F(Calibrate, TheFileRecordsTheSpreadOfItsFigures) {
  const std::vector<Figure> figures = {{"triad", "GB/s", 20, 0.02}, {"sum", "GB/s", 3, 0.21}, {"norm", "us", 4, 2.65}};
  runtime::Machine machine = runtime::even_machine();
  machine.processor = "none";
  machine.spread = median_spread(figures);
  std::ofstream(path_) << machine_toml(machine) + wide_spreads(figures);
  EXPECT_EQ(runtime::read_machine(path_).spread, 0.21);
  EXPECT_THAT(folder_.read("machine.toml"),
              testing::AllOf(testing::EndsWith("# sum: 3 GB/s, +-21%\n# norm: 4 us, +-265%\n"),
                             testing::Not(testing::HasSubstr("# triad"))));
  machine.spread = 0;
  EXPECT_EQ(runtime::read_machine(write(machine)).spread, std::nullopt);
}

TEST_F(Calibrate, MeasuresCollectivesBetweenRanks) {
  std::mutex mutex;
  std::vector<runtime::Machine> machines;
  comm::run_threads(2, [&](comm::World& world) {
    runtime::Machine machine = measure(tiny(), world, 1);
    const std::scoped_lock lock(mutex);
    machines.push_back(std::move(machine));
  });
  ASSERT_EQ(machines.size(), 2u);
  for (const runtime::Machine& machine : machines)
    EXPECT_TRUE(runtime::read_machine(write(machine)).collectives.has_value());
}

// Ranks of several nodes measure both levels. The file's number of ranks is that of one node.
TEST_F(Calibrate, MeasuresTheNetworkBetweenNodes) {
  const auto measured = [&](const std::vector<int>& nodes) {
    std::mutex mutex;
    std::optional<runtime::Machine> machine;
    const auto run = [&](comm::World& world) {
      runtime::Machine own = measure(tiny(), world, 1);
      const std::scoped_lock lock(mutex);
      machine = std::move(own);
    };
    comm::run_threads(static_cast<int>(nodes.size()), run, nodes);
    return runtime::read_machine(write(*machine));
  };
  const runtime::Machine pairs = measured({0, 0, 1, 1});
  EXPECT_EQ(pairs.ranks, 2);
  EXPECT_TRUE(pairs.collectives && pairs.network);
  const runtime::Machine alone = measured({0, 1});
  EXPECT_EQ(alone.ranks, 1);
  EXPECT_TRUE(alone.network && !alone.collectives);
  const runtime::Machine unlike = measured({0, 0, 1});
  EXPECT_EQ(unlike.ranks, 3);
  EXPECT_TRUE(unlike.collectives && !unlike.network);
}

// In shared memory, an all-to-all's bytes are moved by the ordered sum: one thread moves 12 for 2 that a rank of two
// sends. Without the sum they would seem to travel at hundreds of GB/s.
TEST_F(Calibrate, MeasuresAnAllToAllWithItsSum) {
  std::mutex mutex;
  std::vector<runtime::Machine> machines;
  comm::run_threads(2, [&](comm::World& world) {
    CalibrateOptions options = tiny();
    options.bytes = std::size_t{64} << 20;
    runtime::Machine machine = measure(options, world, 1);
    const std::scoped_lock lock(mutex);
    machines.push_back(std::move(machine));
  });
  for (const runtime::Machine& m : machines) EXPECT_LT(m.collectives->all_to_all_gb_per_s, m.sum_gb_per_s);
}

TEST_F(Calibrate, WritesTheFileCompleteOrNotAtAll) {
  CalibrateOptions options = tiny();
  options.out = folder_.path() / "none" / "machine.toml";
  EXPECT_NE(calibrate(options), 0) << "the folder does not exist";
  options.out = path_;
  EXPECT_EQ(calibrate(options), 0);
  EXPECT_EQ(calibrate(options), 0) << "over its own file";
  EXPECT_EQ(runtime::read_machine(path_).ranks, 1);
}

// A machine whose products and drive both slow down during any other work.
runtime::Machine slow_at(double gflop_per_s, double disk_gb_per_s) {
  runtime::Machine m;
  m.processor = "none";
  m.task_overhead_us = 1;
  m.widths = {256};
  m.products_gflop_per_s.fill({gflop_per_s});
  m.attention_gflop_per_s.fill(1e3);
  m.elementwise_gb_per_s.fill({100});
  for (auto* speeds : {&m.loss_gb_per_s, &m.optimizer_gb_per_s}) speeds->fill(100);
  for (double* speed :
       {&m.triad_gb_per_s, &m.device_copy_gb_per_s, &m.host_copy_gb_per_s, &m.sum_gb_per_s, &m.norm_gb_per_s})
    *speed = 100;
  m.disk = {1, disk_gb_per_s, disk_gb_per_s, 1, 1, 1, 1, 0.01};
  return m;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Calibrate, PlanNamesTheBottleneck) {
  PlanOptions options;
  options.machine = path_;
  options.json = folder_.path() / "plan.json";
  options.sets = {"model.preset=tiny-gpt2",
                  "data.seq_len=64",
                  "training.recompute=block",
                  "memory.device=4GiB",
                  "memory.host=4GiB",
                  "zero.optimizer=nvme",
                  "memory.nvme=[\"" + folder_.path().string() + "\"]"};
  write(slow_at(1, 100));
  ASSERT_EQ(plan(options), 0);
  EXPECT_THAT(
      text_of(*options.json),
      testing::AllOf(testing::HasSubstr("\"step_ms\":"), testing::HasSubstr("\"tokens_per_s\":"),
                     testing::HasSubstr("\"exposed_ms\":{\"gather\":"), testing::HasSubstr("\"bound_by\":\"products\""),
                     testing::HasSubstr("{\"key\":\"training.recompute\",\"value\":\"none\"")));
  write(slow_at(1e4, 0.01));
  ASSERT_EQ(plan(options), 0);
  EXPECT_THAT(text_of(*options.json), testing::AllOf(testing::HasSubstr("\"bound_by\":\"disk\""),
                                                     testing::HasSubstr("{\"key\":\"zero.optimizer\"")));
  EXPECT_EQ(advice(runtime::Bound::disk, {}), "another drive in memory.nvme");
}

TEST_F(Calibrate, PlanWithoutAMachinePredictsNoTime) {
  PlanOptions options;
  options.json = folder_.path() / "plan.json";
  options.sets = {"model.preset=tiny-gpt2", "data.seq_len=64", "memory.device=4GiB"};
  ASSERT_EQ(plan(options), 0);
  EXPECT_THAT(text_of(*options.json), testing::Not(testing::ContainsRegex("step_ms\":[^n]")));
}

TEST(Figure, TheMachinesSpreadIsTheMedian) {
  EXPECT_EQ(median_spread({}), std::nullopt);
  EXPECT_EQ(median_spread({{"triad", "GB/s", 20, 0.02}}), 0.02);
  EXPECT_EQ(median_spread({{"norm", "us", 4, 2.65}, {"triad", "GB/s", 20, 0.02}, {"sum", "GB/s", 3, 0.21}}), 0.21);
}

TEST(Figure, CommentsNameWideSpreads) {
  EXPECT_EQ(wide_spreads({{"triad", "GB/s", 20, kWideSpread}}), "");
  EXPECT_EQ(wide_spreads({{"triad", "GB/s", 20, 0.02}, {"norm", "us", 4, 2.65}}),
            "\n# Measured with a wide spread, probably because the machine was busy with other work:\n"
            "# norm: 4 us, +-265%\n");
}

}  // namespace
}  // namespace strata::launcher
