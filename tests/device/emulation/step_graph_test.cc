// Tests when the executor launches a step as a graph and when it issues single tasks, by the ranges that a profiler
// sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
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
          for (const Task& task : job.plan.tasks)
            if (task.lane != LaneId::host && !on_host(task.lane)) tasks_.push_back(name_of(task, *job.model));
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
  // The first range of each step.
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
  // The second step is recorded, which issues its tasks once more.
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

// Reads state of the first block as a checkpoint does, starting when that block's update is about to be issued.
class SlowSaver final : public Saver {
 public:
  SlowSaver(const Storage& storage, std::atomic<bool>& gate) : storage_(storage), gate_(gate) {
    storage_.read_state(1, StateKind::master, 0, before);
  }
  void save(device::Lane& lane, std::size_t unit) override {
    if (unit != 1) return;
    device::cpu::submit(lane, [this](device::cpu::Team&) {
      while (!gate_) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));  // enough for an update that does not wait
      storage_.read_state(1, StateKind::master, 0, during);
    });
  }
  void publish(device::Lane& lane) override {
    device::cpu::submit(lane, [this](device::cpu::Team&) { published = true; });
  }

  std::vector<std::byte> before = std::vector<std::byte>(4096), during = before;
  std::atomic<bool> published = false;

 private:
  const Storage& storage_;
  std::atomic<bool>& gate_;
};

TEST_F(StepGraph, AStepDuringACheckpointIsIssuedTaskByTask) {
  const std::vector<std::string> saves = {"checkpoint.dir=" + (folder_.path() / "checkpoints").string()};
  std::optional<SlowSaver> saver;
  const Trained run = train(saves, [&](Trainer& trainer) {
    if (trainer.steps_done() != 2) return;
    trainer.executor().drain();
    gate_ = false;
    trainer.executor().save_during_next_step(saver.emplace(trainer.executor().storage(), gate_));
  });
  EXPECT_TRUE(saver->published);
  EXPECT_EQ(saver->during, saver->before);
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
