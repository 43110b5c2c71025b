#include "runtime/checkpoint/choice.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <cerrno>
#include <fstream>

#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/runtime/made_checkpoint.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

// Three checkpoints with serials 1 to 3 and two files each.
class CheckpointChoiceTest : public testing::Test {
 protected:
  CheckpointChoiceTest() {
    for (const std::uint64_t serial : {1, 2, 3}) make_checkpoint(step(serial), 1024, {{0, 512}, {512, 1024}}, serial);
  }
  fs::path step(std::uint64_t serial) const { return folder_.path() / fmt::format("step-{}", serial); }
  fs::path shard(std::uint64_t serial) const { return step(serial) / "shard-00001.safetensors"; }
  void spoil(std::uint64_t serial) const {
    std::fstream(shard(serial), std::ios::binary | std::ios::in | std::ios::out).seekp(-3, std::ios::end).put('\x7f');
  }
  // The name of the chosen checkpoint. Skipped ones are noted.
  std::string chosen() {
    notes_.clear();
    const auto found = newest_undamaged(folder_.path(), 2, [&](const std::string& text) { notes_.push_back(text); });
    return found ? found->path().filename().string() : "";
  }

  tests::ScratchFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(CheckpointChoiceTest, ChoosesTheNewestUndamagedCheckpoint) {
  EXPECT_EQ(chosen(), "step-3");
  EXPECT_THAT(notes_, IsEmpty());
  spoil(3);
  EXPECT_EQ(chosen(), "step-2");
  // The note says what is wrong, but gives no advice, because an older checkpoint is already tried.
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr("step-3"), HasSubstr("checksum"),
                                        EndsWith("the file is damaged"))));
  EXPECT_THAT(notes_[0], testing::Not(testing::ContainsRegex("step-3.*step-3"))) << "reported once";
  std::vector<float> named(1024);
  EXPECT_FAILURE(Checkpoint(step(3)).read("master", "w", 0, named), Exit::corrupt,
                 EndsWith("; name an older checkpoint if the folder has one"));
  fs::remove(shard(2));
  EXPECT_EQ(chosen(), "step-1");
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("checksum"), AllOf(HasSubstr("step-2"), HasSubstr("is missing"))));
  fs::resize_file(shard(1), fs::file_size(shard(1)) - 1);
  EXPECT_FAILURE((void)chosen(), Exit::corrupt, HasSubstr("none of its 3 checkpoints is complete"));
  EXPECT_EQ(notes_.size(), 3u);
}

TEST_F(CheckpointChoiceTest, AFolderWithoutCheckpointsHasNone) {
  for (const std::uint64_t serial : {1, 2, 3}) fs::remove_all(step(serial));
  folder_.write("step-notes.txt", "mine");
  EXPECT_EQ(chosen(), "");
  EXPECT_THAT(notes_, IsEmpty());
}

// A folder that the user names must exist. Only checkpoint.dir is created.
TEST_F(CheckpointChoiceTest, ANamedFolderMustExist) {
  Recipe::Checkpoint recipe;
  recipe.resume = "best";
  EXPECT_FAILURE((void)checkpoints_to_resume(recipe), Exit::usage,
                 testing::AllOf(HasSubstr("checkpoint.resume = best: there is no such"), HasSubstr("\"auto\" takes")));
  recipe.dir = folder_.path();
  EXPECT_FAILURE((void)checkpoints_to_resume(recipe), Exit::usage,
                 HasSubstr(folder_.path().string() + " has step-3, step-2, step-1"));
  recipe.resume = folder_.write("notes.txt", "mine").string();
  EXPECT_FAILURE((void)checkpoints_to_resume(recipe), Exit::usage,
                 AllOf(HasSubstr("notes.txt: this is a file, not a folder; give a checkpoint or a folder of"),
                       HasSubstr(" has step-3, step-2, step-1")));
  fs::create_directory(folder_.path() / "empty");
  recipe.resume = (folder_.path() / "empty").string();
  EXPECT_FAILURE((void)checkpoints_to_resume(recipe), Exit::usage,
                 HasSubstr("empty: this folder holds no checkpoint; give a checkpoint or a folder of checkpoints"));
  // A checkpoint whose manifest is missing or damaged is not misnamed.
  folder_.write("empty/rank-00000-of-00001.safetensors", "x");
  EXPECT_TRUE(checkpoints_to_resume(recipe).one);
  fs::remove(folder_.path() / "empty/rank-00000-of-00001.safetensors");
  folder_.write("empty/manifest.json", "x");
  EXPECT_TRUE(checkpoints_to_resume(recipe).one);
  recipe.resume = "auto";
  recipe.dir = folder_.path() / "none";
  EXPECT_TRUE(checkpoints_to_resume(recipe).found.empty());
}

// An older checkpoint is already tried.
TEST_F(CheckpointChoiceTest, NotesAboutSkippedCheckpointsGiveNoAdvice) {
  FoundCheckpoint found;
  found.path = "/c/step-3";
  found.damage = "/c/step-3/shard: the file is damaged" + std::string(kNameOlder);
  EXPECT_EQ(passed_over(found), "passed over /c/step-3: shard: the file is damaged");
}

// A checkpoint that cannot be read may be intact, so no older one is used instead.
TEST_F(CheckpointChoiceTest, DoesNotSkipAnUnreadableCheckpoint) {
  const auto stops = [&](const auto& matcher) {
    EXPECT_FAILURE((void)chosen(), Exit::failed, matcher);
    EXPECT_THAT(notes_, IsEmpty());
  };
  for (const int more : {0, 1}) {
    const tests::FewFiles few(more);
    stops(HasSubstr("Too many open files"));
  }
  fs::permissions(folder_.path(), fs::perms::all);
  for (const fs::path& path : {shard(3), step(3) / kManifestName, step(3), folder_.path()}) {
    SCOPED_TRACE(path);
    fs::permissions(path, fs::perms::none);
    {
      const tests::WithoutRights nobody;
      stops(HasSubstr("Permission denied"));
    }
    fs::permissions(path, fs::perms::all);
  }
  tests::with_failing({SYS_pread64}, EIO, [&] { stops(HasSubstr("Input/output error")); });
}

}  // namespace
}  // namespace strata::runtime
