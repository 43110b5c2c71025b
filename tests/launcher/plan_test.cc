#include "launcher/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "launcher/rank/cores.h"
#include "runtime/forecast/machine.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Plan : public testing::Test {
 protected:
  // What the plan of so many ranks prints; its JSON is then in json_.
  std::string planned(int ranks, std::optional<int> ranks_per_node, std::vector<std::string> sets = {}) {
    PlanOptions options;
    options.ranks = ranks;
    options.ranks_per_node = ranks_per_node;
    options.sets = {"model.preset=tiny-gpt2", "data.seq_len=16", "device.kind=cpu"};
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    options.json = folder_.path() / "plan.json";
    options.machine = machine_;
    std::fflush(stdout);
    testing::internal::CaptureStdout();
    int status = 0;
    try {
      status = plan(options);
    } catch (const Error&) {
      (void)testing::internal::GetCapturedStdout();
      throw;
    }
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0) << text;
    json_ = folder_.read("plan.json");
    return text;
  }
  double number(const std::string& key) const {
    const auto at = json_.find("\"" + key + "\":");
    EXPECT_NE(at, std::string::npos) << key << " in " << json_;
    return at == std::string::npos ? 0 : std::strtod(json_.c_str() + at + key.size() + 3, nullptr);
  }
  double device_capacity() const {
    const std::string key = "\"capacity_bytes\":{\"device\":";
    const auto at = json_.find(key);
    EXPECT_NE(at, std::string::npos) << json_;
    return at == std::string::npos ? 0 : std::strtod(json_.c_str() + at + key.size(), nullptr);
  }
  // A machine of 8 cores.
  void measured_by(int ranks) {
    runtime::Machine m;
    m.processor = "none";
    m.ranks = ranks;
    m.threads = 8 / ranks;
    m.task_overhead_us = 1;
    m.widths = {256};
    m.products_gflop_per_s.fill({100});
    m.attention_gflop_per_s.fill(1e3);
    m.elementwise_gb_per_s.fill({100});
    for (auto* speeds : {&m.loss_gb_per_s, &m.optimizer_gb_per_s}) speeds->fill(100);
    for (double* speed :
         {&m.triad_gb_per_s, &m.device_copy_gb_per_s, &m.host_copy_gb_per_s, &m.sum_gb_per_s, &m.norm_gb_per_s})
      *speed = 100;
    if (ranks > 1) m.collectives = {10, 5};
    machine_ = folder_.write("machine.toml", runtime::machine_toml(m));
  }

  tests::ScratchFolder folder_;
  std::optional<std::filesystem::path> machine_;
  std::string json_;
};

// As `mpirun -n 4 strata train` would find it.
TEST_F(Plan, RanksOfOneMachineShareItsMemory) {
  EXPECT_THAT(planned(4, 1), HasSubstr("capacity: 4 ranks on 4 machines like this one, 1 on each (--ranks-per-node), "
                                       "each with its part of what is free\n"));
  const double alone = device_capacity();
  EXPECT_THAT(planned(4, 4), HasSubstr("capacity: 4 ranks on one machine like this one (--ranks-per-node), each with"));
  EXPECT_NEAR(device_capacity() / alone, 0.25, 0.1) << "what is free changes from moment to moment";
  EXPECT_EQ(number("ranks_per_node"), 4);
  EXPECT_THAT(planned(3, 2), HasSubstr("3 ranks on 2 machines like this one, up to 2 on each"));
  EXPECT_THAT(planned(2, 8), HasSubstr("2 ranks on one machine")) << "no more than there are";
  EXPECT_EQ(number("ranks_per_node"), 2);
  EXPECT_THAT(planned(2, 2, {"memory.device=1GiB", "memory.host=1GiB"}),
              HasSubstr("as memory.device and memory.host say\n"));
}

TEST_F(Plan, AMachineHasAsManyRanksAsCores) {
  (void)planned(1 << 10, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), cores_here());
  (void)planned(1, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), 1);
  measured_by(4);  // of 8 cores
  (void)planned(1 << 10, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), 8) << "those of the machine file";
}

TEST_F(Plan, APredictionForOtherRanksThanMeasuredSaysHowItWasMade) {
  measured_by(2);
  EXPECT_THAT(planned(2, 2), AllOf(HasSubstr("predicted: "), Not(HasSubstr("speeds of"))));
  EXPECT_THAT(json_, AllOf(HasSubstr("\"measured_ranks\":2"), HasSubstr("\"scaling\":null")));
  const double two = number("step_ms");
  EXPECT_THAT(planned(8, std::nullopt), HasSubstr("speeds of 2 ranks on the machine, scaled to 8 ranks: "));
  EXPECT_THAT(json_, HasSubstr("\"scaling\":\"speeds of 2 ranks"));
  EXPECT_GT(number("step_ms"), two) << "each has a quarter of the cores";
  EXPECT_THAT(planned(8, 2), HasSubstr("collectives between machines assumed as fast as inside one"));
  measured_by(1);
  EXPECT_THAT(planned(1, std::nullopt), Not(HasSubstr("speeds of")));
  EXPECT_FAILURE((void)planned(8, std::nullopt), Exit::usage, HasSubstr("mpirun -n 8 strata calibrate"));
}

}  // namespace
}  // namespace strata::launcher
