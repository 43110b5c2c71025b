#include "runtime/checkpoint/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class CheckpointFolderTest : public testing::Test {
 protected:
  std::vector<std::string> sets(int keep) const { return run_.sets(2, {fmt::format("checkpoint.keep={}", keep)}); }
  fs::path step(int n) const { return run_.checkpoints() / fmt::format("step-{:08}", n); }
  std::set<std::string> there() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(run_.checkpoints())) out.insert(entry.path().filename().string());
    out.erase("lock");
    return out;
  }
  SavedRun run_;
};

// A checkpoint that the run has found damaged stays, and does not displace an undamaged one.
TEST_F(CheckpointFolderTest, ADamagedCheckpointDoesNotCount) {
  run_.run(2, sets(2), 3, {2, 3});
  std::fstream(step(3) / "rank-00001-of-00002.safetensors", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(-1, std::ios::end)
      .put('\x7f');
  const auto rest = run_.run(2, sets(2), 4, {4});
  EXPECT_EQ(rest.resumed, "step-00000002");
  EXPECT_THAT(rest.notes, ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr("step-00000003"))));
  EXPECT_THAT(there(), UnorderedElementsAre("step-00000002", "step-00000003", "step-00000004"));
  EXPECT_EQ(run_.run(2, sets(2), 5, {5}).resumed, "step-00000004");
}

// While a checkpoint is read, for example by an export, it is not removed. A later checkpoint removes it.
TEST_F(CheckpointFolderTest, ACheckpointBeingReadStays) {
  std::optional<Checkpoint> reader;
  run_.run(2, sets(1), 3, {1, 2, 3}, nullptr, [&](std::int64_t next) {
    if (next == 2) reader.emplace(step(1));
    if (next != 3) return;
    EXPECT_THAT(there(), UnorderedElementsAre("step-00000001", "step-00000002"));
    reader->verify(2);
    reader.reset();
  });
  EXPECT_THAT(there(), ElementsAre("step-00000003"));
}

// Somebody removes the folder during the run. The run's state matters more, so the folder is created again.
TEST_F(CheckpointFolderTest, AFolderRemovedInMidRunIsLockedAgain) {
  const std::string whole = run_.run(2, sets(2), 4, {}).weights;
  for (const bool lock_alone : {false, true}) {
    SCOPED_TRACE(lock_alone);
    fs::remove_all(run_.checkpoints());
    const auto rest = run_.run(2, sets(2), 3, {1, 2, 3}, nullptr, [&](std::int64_t next) {
      if (next == 2) fs::remove_all(lock_alone ? run_.checkpoints() / "lock" : run_.checkpoints());
      if (next == 3)
        EXPECT_FAILURE(run_.run(1, run_.sets(1), 1), Exit::usage, AllOf(HasSubstr("in use"), HasSubstr("checkpoints")));
    });
    EXPECT_THAT(rest.notes, ElementsAre(AllOf(HasSubstr(run_.checkpoints().string()), HasSubstr("locked it again"))));
    EXPECT_THAT(there(), UnorderedElementsAre("step-00000002", "step-00000003"));
    EXPECT_EQ(run_.run(1, run_.sets(1), 4).weights, whole);
  }
}

TEST_F(CheckpointFolderTest, AFolderTakenByAnotherRunEndsTheRun) {
  const auto posix = posix_file_system();
  std::optional<CheckpointFolder> other;
  EXPECT_FAILURE(comm::run_threads(1,
                                   [&](comm::World& world) {
                                     CheckpointFolder mine(run_.checkpoints(), 2, *posix, world);
                                     fs::remove_all(run_.checkpoints());
                                     other.emplace(run_.checkpoints(), 2, *posix, world);
                                     mine.keep_locked();
                                   }),
                 Exit::usage, HasSubstr("in use"));
  EXPECT_TRUE(fs::exists(run_.checkpoints() / "lock")) << "the other's";
}

// A run that may not read existing checkpoints must not start over in their folder.
TEST_F(CheckpointFolderTest, AManifestThatCannotBeReadStopsTheRun) {
  run_.run(2, sets(2), 3, {2, 3});
  fs::permissions(run_.folder().path(), fs::perms::all);
  fs::permissions(run_.checkpoints(), fs::perms::all);
  for (const fs::path& path : {step(3), step(3) / kManifestName, step(3) / "rank-00000-of-00002.safetensors"}) {
    SCOPED_TRACE(path);
    fs::remove(run_.checkpoints() / "lock");  // root's
    fs::permissions(path, fs::perms::none);
    {
      const tests::WithoutRights nobody;
      EXPECT_FAILURE(run_.run(2, sets(2), 4, {4}), Exit::failed,
                     AllOf(HasSubstr("step-00000003"), HasSubstr("Permission denied")));
    }
    fs::permissions(path, fs::perms::all);
    EXPECT_THAT(there(), UnorderedElementsAre("step-00000002", "step-00000003"));
  }
  const auto rest = run_.run(2, sets(2), 4, {4});
  EXPECT_EQ(rest.resumed, "step-00000003");
  EXPECT_THAT(rest.notes, IsEmpty());
}

// This is found at the start, and not when the first checkpoint is due.
TEST_F(CheckpointFolderTest, RefusesAnUnwritableFolderAtTheStart) {
  run_.run(2, sets(2), 2, {2});
  fs::permissions(run_.folder().path(), fs::perms::all);
  fs::permissions(run_.checkpoints() / "lock", fs::perms::all);
  fs::permissions(run_.checkpoints(), fs::perms{0555});
  int begun = 0;
  {
    const tests::WithoutRights nobody;
    EXPECT_FAILURE(run_.run(2, sets(2), 4, {}, nullptr, [&](std::int64_t) { ++begun; }), Exit::failed,
                   AllOf(HasSubstr("no checkpoint can be written to checkpoint.dir " + run_.checkpoints().string()),
                         HasSubstr("Permission denied")));
  }
  EXPECT_EQ(begun, 0);
  fs::permissions(run_.checkpoints(), fs::perms::all);
  EXPECT_THAT(there(), ElementsAre("step-00000002"));
}

class CheckpointHoldTest : public testing::Test {
 protected:
  CheckpointHoldTest() { folder_.write("step/manifest.json", "{}"); }
  std::filesystem::path step() const { return folder_.path() / "step"; }
  tests::ScratchFolder folder_;
};

TEST_F(CheckpointHoldTest, SeveralReadersPreventRemoval) {
  {
    const auto one = CheckpointHold::to_read(step()), other = CheckpointHold::to_read(step());
    EXPECT_TRUE(one && other);
    EXPECT_FALSE(CheckpointHold::to_remove(step()));
  }
  EXPECT_TRUE(CheckpointHold::to_remove(step()));
}

TEST_F(CheckpointHoldTest, ReadersDoNotSeeACheckpointBeingRemoved) {
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
TEST_F(CheckpointHoldTest, SucceedsWithoutAManifest) {
  EXPECT_TRUE(CheckpointHold::to_read(folder_.path() / "none"));
  EXPECT_TRUE(CheckpointHold::to_remove(folder_.path() / "none"));
}

}  // namespace
}  // namespace strata::runtime
