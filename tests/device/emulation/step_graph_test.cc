// When the executor launches a step as a graph and when it issues its tasks, seen by the ranges that a profiler sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "device/cpu/lane_impl.h"
#include "tests/device/emulation/lane.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using device::emulation::on_range;
using ::testing::ElementsAre;
using ::testing::Not;

class StepGraph : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::uint16_t> tokens(500);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i * 7 % 96);
    std::ofstream(folder_.path() / "tokens.bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * 2));
    on_range = [this](const std::string& name) {
      ranges_.push_back(name);
      if (name == "update block 0") gate_ = true;
    };
  }
  void TearDown() override { on_range = nullptr; }

  Trained train(const std::vector<std::string>& more, const std::function<void(Trainer&)>& before_step) {
    std::vector<std::string> sets = {"data.train=" + (folder_.path() / "tokens.bin").string(),
                                     "model.preset=tiny-gpt2",
                                     "model.config.n_layer=1",
                                     "model.config.n_embd=32",
                                     "model.config.n_head=4",
                                     "model.config.vocab_size=96",
                                     "model.config.n_positions=16",
                                     "data.seq_len=16",
                                     "training.micro_batch_size=1",
                                     "training.max_steps=4",
                                     "training.precision=bf16",
                                     "memory.device=1GiB",
                                     "device.kind=cuda"};
    sets.insert(sets.end(), more.begin(), more.end());
    return train_in_threads(
        std::nullopt, sets, 1,
        [this](Trainer& trainer, const Job& job, int) {
          end_step();
          for (const Task& task : job.plan.tasks) tasks_.push_back(name_of(task, *job.model));
          steps_since_spans_ = trainer.executor().steps_since_spans();
        },
        0, 0,
        [&](Trainer& trainer) {
          end_step();
          before_step(trainer);
        });
  }
  void end_step() {
    if (!ranges_.empty()) steps_.push_back(std::exchange(ranges_, {}));
  }
  // The names of the steps' own ranges, the first of each.
  std::vector<std::string> ways() const {
    std::vector<std::string> first;
    for (const auto& step : steps_) first.push_back(step.front());
    return first;
  }

  tests::ScratchFolder folder_;
  std::vector<std::string> ranges_, tasks_;
  std::vector<std::vector<std::string>> steps_;
  std::int64_t steps_since_spans_ = -1;
  std::atomic<bool> gate_ = false;
};

TEST_F(StepGraph, TheFirstStepIssuesTheTasksUnderTheirNames) {
  (void)train({}, [](Trainer&) {});
  ASSERT_EQ(steps_.size(), 4u);
  std::vector<std::string> named(steps_[0].begin() + 1, steps_[0].end());
  EXPECT_EQ(named, tasks_);
  // The second is recorded, which issues them once more.
  EXPECT_EQ(std::vector<std::string>(steps_[1].begin(), steps_[1].end() - 1), tasks_);
  EXPECT_EQ(steps_[1].back(), "step (graph)");
  EXPECT_THAT(steps_[2], ElementsAre("step (graph)"));
  EXPECT_THAT(steps_[3], ElementsAre("step (graph)"));
  EXPECT_EQ(steps_since_spans_, 3);
}

TEST_F(StepGraph, TheLastStepOfATracedRunIsIssuedTaskByTask) {
  const Trained run = train({"report.trace=" + (folder_.path() / "trace.json").string()}, [](Trainer&) {});
  EXPECT_EQ(run.graph_steps, 2);
  EXPECT_EQ(steps_.back().front(), "step");
  EXPECT_EQ(steps_since_spans_, 0);
}

// As a checkpoint does, a lane of the host reads state of a unit while the step runs, here from when its update is
// about to be issued: it must find what was there before.
TEST_F(StepGraph, AStepThatMeetsACheckpointIsIssuedTaskByTask) {
  AbortToken abort;
  device::Lane reader("reader", 1, 0, abort);
  std::vector<std::byte> before(4096), during = before;
  const Trained run = train({}, [&](Trainer& trainer) {
    if (trainer.steps_done() != 2) return;
    Storage& storage = trainer.executor().storage();
    storage.read_state(1, StateKind::master, 0, before);
    gate_ = false;
    device::cpu::submit(reader, [this, &storage, out = std::span(during)](device::cpu::Team&) {
      while (!gate_) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));  // enough for an update that does not wait
      storage.read_state(1, StateKind::master, 0, out);
    });
    reader.record(trainer.executor().state_read(1));
  });
  reader.synchronize();
  EXPECT_EQ(during, before);
  EXPECT_EQ(run.graph_steps, 2);
  EXPECT_THAT(ways(), ElementsAre("step", Not("step"), "step", "step (graph)"));
  ranges_.clear();
  steps_.clear();
  const Trained undisturbed = train({}, [](Trainer&) {});
  EXPECT_EQ(run.loss_hex, undisturbed.loss_hex);
  EXPECT_EQ(run.weights_hash, undisturbed.weights_hash);
}

}  // namespace
}  // namespace strata::runtime
