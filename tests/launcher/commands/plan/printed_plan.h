#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/commands/commands.h"
#include "runtime/forecast/machine.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {

// Runs `strata plan` for a tiny model, and keeps what it prints and its JSON.
class Plan : public testing::Test {
 protected:
  // The printed plan for this many ranks. Its JSON is then in json_.
  std::string planned(int ranks, std::optional<int> ranks_per_node, std::vector<std::string> sets = {}) {
    PlanOptions options;
    options.ranks = ranks;
    options.ranks_per_node = ranks_per_node;
    options.sets = {model_, "data.seq_len=16", "device.kind=cpu"};
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    options.json = folder_.path() / "plan.json";
    options.machine = machine_;
    options.html = html_;
    options.stages = stages_;
    options.verbose = verbose_;
    options.max_batch = max_batch_;
    options.table = table_;
    options.rank = rank_;
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
    EXPECT_EQ(status, status_) << text;
    json_ = folder_.read("plan.json");
    return text;
  }
  // The output on stderr of a plan that does not fit. Its stdout is then in printed_.
  std::string refused(int ranks, std::vector<std::string> sets) {
    status_ = static_cast<int>(Exit::does_not_fit);
    testing::internal::CaptureStderr();
    try {
      printed_ = planned(ranks, ranks, std::move(sets));
    } catch (...) {
      (void)testing::internal::GetCapturedStderr();
      throw;
    }
    return testing::internal::GetCapturedStderr();
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
  void measured_by(int ranks, std::optional<double> spread = std::nullopt) {
    runtime::Machine m = runtime::even_machine();
    m.processor = "none";
    m.ranks = ranks;
    m.spread = spread;
    m.threads = 8 / ranks;
    if (ranks > 1) m.collectives = {10, 5};
    machine_ = folder_.write("machine.toml", runtime::machine_toml(m));
  }

  tests::ScratchFolder folder_;
  std::optional<std::filesystem::path> machine_, html_;
  bool stages_ = false, verbose_ = false, max_batch_ = false;
  bool table_ = false;
  std::optional<int> rank_;
  std::string model_ = "model.preset=tiny-gpt2";
  int status_ = 0;  // the expected result of plan()
  std::string json_, printed_;
};

}  // namespace strata::launcher
