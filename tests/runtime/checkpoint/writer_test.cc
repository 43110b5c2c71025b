#include "runtime/checkpoint/writer.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/json/json_writer.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// A disk that is slow at a checkpoint's first operation, before any state is read. The next steps take milliseconds, so
// all of them would run meanwhile if their updates did not wait.
class SlowDisk final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    if (!waited_.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return disk_->create(path);
  }
  void make_folder(const std::filesystem::path& path) override { disk_->make_folder(path); }
  void sync_folder(const std::filesystem::path& path) override { disk_->sync_folder(path); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override { disk_->rename(from, to); }
  void remove_file(const std::filesystem::path& path) override { disk_->remove_file(path); }
  void remove_folder(const std::filesystem::path& path) override { disk_->remove_folder(path); }

 private:
  std::atomic<bool> waited_ = false;
  std::unique_ptr<FileSystem> disk_ = posix_file_system();
};

// A checkpoint holds the state of its step, however late it is written, and training gives the same result.
TEST(CheckpointWriterTest, UpdatesWaitUntilTheirUnitHasBeenRead) {
  const SavedRun reference;
  const auto whole = reference.run(1, reference.sets(1), 6);
  for (const char* tier : {"device", "host", "nvme"}) {
    SCOPED_TRACE(tier);
    const SavedRun run;
    const auto sets =
        run.sets(1, {std::string("zero.optimizer=") + tier, "memory.nvme=" + run.folder().path().string()});
    SlowDisk disk;
    const auto first = run.run(1, sets, 5, {2}, &disk);
    EXPECT_EQ(first.losses, std::vector(whole.losses.begin(), whole.losses.begin() + 5));
    const auto rest = run.run(1, sets, 6);
    EXPECT_EQ(rest.resumed, "step-00000002");
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.weights, whole.weights);
  }
}

// A checksum covers 1 MiB, and the tensors of an MLP have 3.5 MiB here.
TEST(CheckpointWriterTest, WritesExtentsOfSeveralBlocks) {
  const SavedRun run, reference;
  const std::vector<std::string> wide = {"model.config.n_embd=480", "training.max_steps=2"};
  const auto sets = run.sets(1, wide);
  (void)run.run(1, sets, 1, {1});
  const auto rest = run.run(1, sets, 2);
  EXPECT_EQ(rest.resumed, "step-00000001");
  EXPECT_EQ(rest.weights, reference.run(1, reference.sets(1, wide), 2).weights);
}

// A later command may be started in another folder.
TEST(CheckpointWriterTest, PathsInManifestsAreAbsolute) {
  const SavedRun run;
  const fs::path tokens = run.folder().path() / "tokens.bin";
  run.run(1, run.sets(1, {"data.train=" + fs::relative(tokens).string()}), 1, {1});
  EXPECT_EQ(read_manifest(run.checkpoints() / "step-00000001").recipe.at("data.train"),
            "[" + json_string(fs::absolute(fs::relative(tokens)).lexically_normal().string()) + "]");
}

}  // namespace
}  // namespace strata::runtime
