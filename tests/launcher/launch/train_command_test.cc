#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/launch/launch.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TrainCommand read(const std::vector<std::string>& words) {
  return read_train_command(words);
}

TEST(TrainCommand, AppendsKeysToTheWords) {
  const TrainCommand command = read({"train", "r.toml", "--set", "a.b=1", "--force", "--set=c.d=x=y"});
  const std::string more[] = {"e.f=2"};
  EXPECT_THAT(command.words(more),
              ElementsAre("train", "r.toml", "--set", "a.b=1", "--set", "c.d=x=y", "--set", "e.f=2", "--force"));
  EXPECT_THAT(read({"train", "--set", "a=1"}).words(), ElementsAre("train", "--set", "a=1"));
}

TEST(TrainCommand, RefusesOtherCommands) {
  EXPECT_FAILURE(read({}), Exit::usage, HasSubstr("nothing to launch"));
  EXPECT_FAILURE(read({"eval", "r.toml"}), Exit::usage, AllOf(HasSubstr("not eval"), HasSubstr("mpirun -n N")));
  EXPECT_FAILURE(read({"train", "--nope"}), Exit::usage, HasSubstr("--nope"));
  EXPECT_FAILURE(read({"train", "a.toml", "b.toml"}), Exit::usage, HasSubstr("strata train --help"));
}

TEST(TrainCommand, ReadsTheRecipeBeforeTheStart) {
  EXPECT_FAILURE(read({"train", "--set", "model.preset=tiny-gpt2"}).load(), Exit::usage,
                 HasSubstr("training.max_steps and data.train are missing"));
  const runtime::Recipe recipe =
      read({"train", "--set", "model.preset=tiny-gpt2", "--set", "training.max_steps=3", "--set", "data.train=x.bin"})
          .load();
  EXPECT_THAT(changed_keys(recipe),
              AllOf(HasSubstr("training.max_steps = 3\n"), HasSubstr("tiny-gpt2"), Not(HasSubstr("zero.stage"))));
}

TEST(TrainCommand, NamesTheFilesThatEveryRankReads) {
  const tests::ScratchFolder folder;
  const std::string recipe = folder.write("r.toml", R"(
[model]
path = "m"
[data]
train = [{files = ["a.bin", "b-*.bin"], weight = 1}, {files = "c.bin", weight = 2}]
validation = "v.bin"
[training]
max_steps = 3
[evaluation]
every = 1
prompts = "p.txt"
[checkpoint]
resume = "from"
[control]
token_file = "t"
)");
  const TrainCommand command = read({"train", recipe});
  const auto in = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_THAT(recipe_files(command, command.load()),
              ElementsAre(RecipeFile{"the recipe", recipe}, RecipeFile{"model.path", in("m")},
                          RecipeFile{"data.train", in("a.bin")}, RecipeFile{"data.train", in("b-*.bin")},
                          RecipeFile{"data.train", in("c.bin")}, RecipeFile{"data.validation", in("v.bin")},
                          RecipeFile{"evaluation.prompts", in("p.txt")}, RecipeFile{"checkpoint.resume", in("from")},
                          RecipeFile{"control.token_file", in("t")}));
}

}  // namespace
}  // namespace strata::launcher
