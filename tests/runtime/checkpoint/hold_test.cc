#include "runtime/checkpoint/hold.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

class CheckpointHoldTest : public testing::Test {
 protected:
  CheckpointHoldTest() { folder_.write("step/manifest.json", "{}"); }
  std::filesystem::path step() const { return folder_.path() / "step"; }
  tests::ScratchFolder folder_;
};

TEST_F(CheckpointHoldTest, AnyNumberReadAndNoneRemovesMeanwhile) {
  {
    const auto one = CheckpointHold::to_read(step()), other = CheckpointHold::to_read(step());
    EXPECT_TRUE(one && other);
    EXPECT_FALSE(CheckpointHold::to_remove(step()));
  }
  EXPECT_TRUE(CheckpointHold::to_remove(step()));
}

TEST_F(CheckpointHoldTest, OneThatIsBeingRemovedIsGoneForReaders) {
  std::atomic<bool> removed = false, found = true, waited = false;
  std::optional<CheckpointHold> removal(CheckpointHold::to_remove(step()));
  ASSERT_TRUE(removal);
  std::thread reader([&] {
    found = CheckpointHold::to_read(step()).has_value();
    waited = removed.load();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the reader to come to its lock, most likely
  std::filesystem::rename(step(), folder_.path() / "step.deleting");
  removed = true;
  removal.reset();
  reader.join();
  EXPECT_FALSE(found);
  EXPECT_TRUE(waited);
}

// Later reads report what is wrong.
TEST_F(CheckpointHoldTest, HoldsNothingWhereThereIsNoManifest) {
  EXPECT_TRUE(CheckpointHold::to_read(folder_.path() / "none"));
  EXPECT_TRUE(CheckpointHold::to_remove(folder_.path() / "none"));
}

}  // namespace
}  // namespace strata::runtime
