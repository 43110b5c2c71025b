#include "runtime/recipe/user_path.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class UserPath : public testing::Test {
 protected:
  UserPath() {
    if (const char* home = std::getenv("HOME")) was_ = home;
    setenv("HOME", "/home/[me]", 1);
  }
  ~UserPath() override { setenv("HOME", was_.c_str(), 1); }

 private:
  std::string was_;
};

TEST_F(UserPath, ATildeIsTheHomeFolder) {
  EXPECT_EQ(user_path("~"), "/home/[me]");
  EXPECT_EQ(user_path("~/x.bin"), "/home/[me]/x.bin");
  EXPECT_EQ(user_path("~//x.bin", "runs"), "/home/[me]/x.bin") << "regardless of the recipe's folder";
  EXPECT_EQ(user_pattern("~/*.bin", "runs"), "/home/\\[me\\]/*.bin") << "brackets in the folder's name are not a glob";
  EXPECT_EQ(user_pattern("~/x.bin"), "/home/[me]/x.bin");
  EXPECT_EQ(user_path("~x/y"), "~x/y") << "an ordinary name";
  EXPECT_EQ(user_path("a/~"), "a/~");
  unsetenv("HOME");
  EXPECT_FAILURE((void)user_path("~/x"), Exit::usage, HasSubstr("HOME is not set"));
  EXPECT_EQ(user_path("./~"), "./~");
}

TEST_F(UserPath, IsRelativeToItsFolder) {
  EXPECT_EQ(user_path("a.bin", "runs[1]"), "runs[1]/a.bin");
  EXPECT_EQ(user_path("-m/a"), "./-m/a") << "must not look like an option in a printed command";
  EXPECT_EQ(user_path("-m", "runs"), "runs/-m");
  EXPECT_EQ(user_path("-"), "-") << "standard input";
  EXPECT_EQ(user_path("/a.bin", "runs"), "/a.bin");
  EXPECT_EQ(user_pattern("*.bin", "runs[1]"), "runs\\[1\\]/*.bin");
  EXPECT_EQ(user_pattern("a.bin", "runs[1]"), "runs[1]/a.bin");
  EXPECT_EQ(user_pattern("/data/*.bin", "runs[1]"), "/data/*.bin");
  EXPECT_EQ(user_path(""), "");
}

// Two folders may be on one drive, but the same folder would be measured and filled as two drives.
TEST_F(UserPath, ADrivesFolderIsNamedOnce) {
  const tests::ScratchFolder scratch;
  const std::string root = scratch.path().string();
  for (const char* name : {"a", "b"}) fs::create_directory(scratch.path() / name);
  fs::create_directory_symlink(scratch.path() / "a", scratch.path() / "link");
  const auto load = [&](const std::string& first, const std::string& second) {
    const std::vector<std::string> sets = {
        "model.preset=tiny-gpt2", fmt::format(R"(memory.nvme=["{0}/{1}", "{0}/b", "{0}/{2}"])", root, first, second)};
    return load_recipe({}, sets).memory.nvme.size();
  };
  for (const char* second : {"a", "a/", "b/../a", "./a", "link", "link/"})
    EXPECT_FAILURE((void)load("a", second), Exit::usage,
                   AllOf(HasSubstr("memory.nvme = ["), HasSubstr(root + "/a twice: give each drive one folder")));
  EXPECT_FAILURE((void)load("none", "none/"), Exit::usage, HasSubstr("/none twice"));
  EXPECT_EQ(load("a", "a/inner"), 3u);
  EXPECT_EQ(load("a", "aa"), 3u);
}

TEST_F(UserPath, IsShownWithoutDetours) {
  EXPECT_EQ(user_path("../runs/a.bin", "examples"), "runs/a.bin");
  EXPECT_EQ(user_path("a/./b//c"), "a/b/c");
  EXPECT_EQ(user_path("../a"), "../a");
  EXPECT_EQ(user_path("./../a"), "../a");
  EXPECT_EQ(user_path("runs/"), "runs/");
  EXPECT_EQ(user_path("."), ".");
  EXPECT_EQ(user_pattern("../runs/*.bin", "examples"), "runs/*.bin");
  EXPECT_EQ(user_pattern("a/*/../b.bin"), "a/*/../b.bin") << "the part after the glob stays";
  // Words that would have a meaning without it: standard input, a tokenizer's name, a way to resume.
  for (const char* path : {"./-", "./byte", "./none"}) EXPECT_EQ(user_path(path), path);
  EXPECT_EQ(user_path("././a/../-"), "./-");
}

// x/.. is not the folder of x if x is a link.
TEST_F(UserPath, ALinkIsFollowedFirst) {
  const tests::ScratchFolder folder;
  fs::create_directories(folder.path() / "far" / "away");
  fs::create_directory_symlink(folder.path() / "far" / "away", folder.path() / "link");
  const std::string up = (folder.path() / "link" / ".." / "a.bin").string();
  EXPECT_EQ(user_path(up), up);
  fs::create_directory(folder.path() / "plain");
  EXPECT_EQ(user_path((folder.path() / "plain" / ".." / "a.bin").string()), folder.path() / "a.bin");
}

TEST_F(UserPath, AppliesToEveryPathOfARecipe) {
  const tests::ScratchFolder folder;
  const fs::path file = folder.write("runs/r.toml", R"(
model.preset = "tiny-gpt2"
data.train = ["~/a.bin", "../b.bin"]
checkpoint.dir = "~/c"
checkpoint.resume = "~/c/step-1"
memory.nvme = ["~/d", "../e"]
report.jsonl = "../log.jsonl"
)");
  const Recipe r = load_recipe(file, std::vector<std::string>{"report.summary=~/s.json", "data.validation=~/v.bin"});
  EXPECT_THAT(r.data.train.at(0).files, ElementsAre("/home/[me]/a.bin", (folder.path() / "b.bin").string()));
  EXPECT_THAT(r.data.validation, ElementsAre("/home/[me]/v.bin"));
  EXPECT_EQ(r.checkpoint.dir, "/home/[me]/c");
  EXPECT_EQ(r.checkpoint.resume, "/home/[me]/c/step-1");
  EXPECT_THAT(r.memory.nvme, ElementsAre("/home/[me]/d", folder.path() / "e"));
  EXPECT_EQ(r.report.jsonl, folder.path() / "log.jsonl");
  EXPECT_EQ(r.report.summary, "/home/[me]/s.json");
}

}  // namespace
}  // namespace strata::runtime
