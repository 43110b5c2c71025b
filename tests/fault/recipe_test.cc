// Errors in a recipe are found on every rank before memory is allocated, and printed once.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RecipeFault : public testing::Test {
 protected:
  TinyRun run_;
};

TEST_F(RecipeFault, NamesKeyValueAndWhatIsAllowed) {
  const struct {
    std::vector<std::string> sets, words;
  } mistakes[] = {
      {{"training.max_step=3"}, {"training.max_step", "training.max_steps"}},
      {{"training.max_steps=many"}, {"training.max_steps", "\"many\"", "expected"}},
      {{"training.micro_batch_size=0"}, {"training.micro_batch_size = 0", "expected"}},
      {{"zero.stage=4"}, {"zero.stage = 4", "expected"}},
      {{"training.precision=fp8"}, {"training.precision", "fp8", "expected"}},
      {{"model.path=x"}, {"model.path", "model.preset", "contradict"}},
      {{"training.global_batch_size=8", "training.gradient_accumulation_steps=2"},
       {"training.global_batch_size", "training.gradient_accumulation_steps", "contradict"}},
      {{"zero.optimizer=nvme"}, {"zero.optimizer", "memory.nvme"}},
      {{"data.seq_len=17"}, {"data.seq_len", "17", "16"}},
      {{"model.config.n_head=3"}, {"n_head", "3", "32"}},
      {{"model.config.scale_attn_by_inverse_layer_idx=true"}, {"scale_attn_by_inverse_layer_idx"}},
  };
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(mistake.sets[0]);
    const Outcome outcome = run(run_.train(mistake.sets));
    EXPECT_COMPLAINT(outcome, Exit::usage, testing::_);
    for (const std::string& word : mistake.words) EXPECT_THAT(outcome.errors, HasSubstr(word));
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("step 1/")));
  }
}

// A checkpoint's manifest cannot hold these bytes, so they are refused before there is one.
TEST_F(RecipeFault, PathsThatAreNotUtf8) {
  const std::string folder = run_.file("caf\xe9");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(run_.file("tokens.bin"), folder);
  const std::string dir = "checkpoint.dir=" + run_.file("checkpoints");
  const auto matcher = [](const char* key) {
    return AllOf(HasSubstr(key), HasSubstr("caf\\xe9/tokens.bin"), HasSubstr("not UTF-8"));
  };
  for (const char* key : {"data.train", "data.validation", "memory.nvme", "checkpoint.dir"})
    EXPECT_COMPLAINT(run(run_.train({dir, key + ("=" + folder) + "/tokens.bin"})), Exit::usage, matcher(key));
  EXPECT_COMPLAINT(run(run_.train_stored(folder + "/tokens.bin", {dir})), Exit::usage, matcher("model.path"));
  run_.folder().write("caf\xe9/my.toml",
                      "[model]\npreset = \"tiny-gpt2\"\n[data]\ntrain = \"tokens.bin\"\nseq_len = 16\n"
                      "[training]\nmax_steps = 1\n");
  EXPECT_COMPLAINT(run({kStrata, "train", folder + "/my.toml", "--set", dir}), Exit::usage,
                   AllOf(HasSubstr("data.train"), HasSubstr("not UTF-8")));
  EXPECT_FALSE(std::filesystem::exists(run_.file("checkpoints")));
  const std::string utf8 = run_.file("caf\u00e9");
  std::filesystem::create_directory_symlink(folder, utf8);
  const Outcome outcome = run(run_.train({dir, "data.train=" + utf8 + "/tokens.bin"}));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_EQ(run({kStrata, "inspect", run_.file("checkpoints")}).code, 0);
}

// A line break in a name makes no second line, which would look like another message.
TEST_F(RecipeFault, AMessageIsOneLine) {
  const std::string name = run_.file("a\nstrata: all is well");
  const Outcome outcome = run(run_.train({"data.train=" + name}));
  EXPECT_COMPLAINT(outcome, Exit::usage, HasSubstr("a\\nstrata: all is well"));
  run_.folder().write("a\nstrata: all is well", "");
  EXPECT_COMPLAINT(run(run_.train({"data.train=" + name})), Exit::corrupt, HasSubstr("an empty file"));
}

TEST_F(RecipeFault, MissingOrInvalidRecipe) {
  const auto train = [&](const std::string& name) { return run({kStrata, "train", run_.file(name)}); };
  EXPECT_COMPLAINT(train("none.toml"), Exit::usage, AllOf(HasSubstr("none.toml"), HasSubstr("No such file")));
  run_.folder().write("bad.toml", "[training]\nmax_steps = = 3\n");
  EXPECT_COMPLAINT(train("bad.toml"), Exit::usage, AllOf(HasSubstr("bad.toml"), HasSubstr("line 2")));
  run_.folder().write("twice.toml", "[training]\nmax_steps = 3\nmax_steps = 4\n");
  EXPECT_COMPLAINT(train("twice.toml"), Exit::usage, HasSubstr("line 3"));
  std::string deep = "a";
  for (int i = 0; i < 40000; ++i) deep += ".a";
  run_.folder().write("deep.toml", deep + " = 1\n");
  EXPECT_COMPLAINT(train("deep.toml"), Exit::usage, HasSubstr("more than 100 parts"));
  EXPECT_COMPLAINT(run(run_.train({"model.config.n_layer={" + deep + "=1}"})), Exit::usage, HasSubstr("100 parts"));
  ASSERT_EQ(::mkfifo(run_.file("pipe").c_str(), 0600), 0);
  EXPECT_COMPLAINT(train("pipe"), Exit::usage, HasSubstr("not a regular file"));
  EXPECT_COMPLAINT(run(run_.train({"report.summary=" + run_.file("pipe")})), Exit::failed,
                   HasSubstr("a pipe without a reader"));
}

// Existing files are unchanged.
TEST_F(RecipeFault, OutputsThatAreInputs) {
  const std::string tokens = run_.folder().read("tokens.bin");
  for (const char* key : {"report.jsonl", "report.summary", "report.trace"})
    EXPECT_COMPLAINT(run(run_.train({std::string(key) + "=" + run_.file("tokens.bin")})), Exit::usage,
                     AllOf(HasSubstr(key), HasSubstr("is also an input (data.train)")));
  EXPECT_EQ(run_.folder().read("tokens.bin"), tokens);
  run_.folder().write("old.json", "{\"exit\":3}\n");
  auto command = run_.command("eval");
  command.insert(command.end(), {"--json", run_.file("old.json")});
  EXPECT_COMPLAINT(run(command), Exit::usage, HasSubstr("data.validation"));
  EXPECT_EQ(run_.folder().read("old.json"), "{\"exit\":3}\n") << "nothing was evaluated";
}

// A recipe that was named by mistake is not overwritten. --force says that it was no mistake.
TEST_F(RecipeFault, OutputsThatAnotherProgramWrote) {
  const std::string mine = "[model]\npreset = \"mine\"\n", file = run_.file("mine.toml");
  run_.folder().write("mine.toml", mine);
  const auto with = [](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const auto plan = with(run_.command("plan"), {"--json", file});
  EXPECT_COMPLAINT(run(plan), Exit::usage, AllOf(HasSubstr("--json " + file), HasSubstr("--force")));
  EXPECT_COMPLAINT(run({kStrata, "calibrate", "-o", file}), Exit::usage, HasSubstr("is not a machine file"));
  const auto train = run_.train({"report.jsonl=" + file});
  EXPECT_COMPLAINT(run(under_mpirun(2, train)), Exit::usage, HasSubstr("report.jsonl " + file));
  EXPECT_EQ(run_.folder().read("mine.toml"), mine);
  EXPECT_EQ(run(with(train, {"--force"})).code, 0);
  EXPECT_THAT(run_.folder().read("mine.toml"), testing::StartsWith("{\"step\":1,"));
  EXPECT_EQ(run(train).code, 0) << "the file is its own by now";
}

// Shells do not expand a ~ after an =.
TEST_F(RecipeFault, PathsInTheHomeFolder) {
  const std::string home = run_.folder().path().string();
  std::vector<std::string> command = {"env", "HOME=" + home};
  for (const std::string& word : run_.command("plan", {"report.jsonl=~/steps.jsonl"})) command.push_back(word);
  command.emplace_back("--json=~/plan.json");
  EXPECT_EQ(run(command).code, 0);
  EXPECT_THAT(run_.folder().read("plan.json"), testing::StartsWith("{\"fits\":true,"));
}

// An empty name meant the current folder, which failed only when the work was done.
TEST_F(RecipeFault, EmptyNames) {
  const std::string tokens = run_.file("tokens.bin");
  auto eval = run_.command("eval"), plan = run_.command("plan");
  eval.insert(eval.end(), {"--json", ""});
  plan.insert(plan.end(), {"--trace", ""});
  auto adapted = run_.command("eval");
  adapted.insert(adapted.end(), {"--adapter", ""});
  const std::vector<std::string> commands[] = {{kStrata, "tokenize", "--tokenizer", "byte", "-o", "", tokens},
                                               {kStrata, "export", tokens, "-o", ""},
                                               {kStrata, "calibrate", "-o", ""},
                                               {kStrata, "inspect", ""},
                                               eval,
                                               plan,
                                               adapted};
  for (const auto& command : commands) EXPECT_COMPLAINT(run(command), Exit::usage, HasSubstr("the name is empty"));
}

TEST_F(RecipeFault, IsPrintedByOneRank) {
  for (const std::string& set : {std::string("training.max_step=3"), std::string("comm.backend=solo"),
                                 std::string("training.global_batch_size=3")}) {
    SCOPED_TRACE(set);
    EXPECT_COMPLAINT(run(under_mpirun(2, run_.train({set}))), Exit::usage, HasSubstr(set.substr(0, set.find('='))));
  }
}

// This is found before step 1, even if ranks differ in how they would connect, or if one of them has no recipe.
TEST_F(RecipeFault, RanksWithDifferentRecipes) {
  const struct {
    const char *extra, *word;
  } differences[] = {
      {"--set training.seed=$OMPI_COMM_WORLD_RANK", "rank 1 was given a different recipe or command than rank 0"},
      {"$(test $OMPI_COMM_WORLD_RANK = 0 || echo --set comm.transport=messages)",
       "rank 1 was given a different recipe or command than rank 0"},
      {"$(test $OMPI_COMM_WORLD_RANK = 0 || echo --set zero.stag=3)", "rank 1: unknown key zero.stag"},
      {"$(test $OMPI_COMM_WORLD_RANK = 0 || echo --set comm.backend=solo)", "rank 1: comm.backend = solo"},
  };
  for (const auto& difference : differences) {
    SCOPED_TRACE(difference.extra);
    const Outcome outcome = run(under_mpirun(2, run_.train(), std::string("exec \"$@\" ") + difference.extra));
    EXPECT_COMPLAINT(outcome, Exit::usage, HasSubstr(difference.word));
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("step 1/")));
  }
}

// The start is refused because rank 1 runs a different command than rank 0.
TEST_F(RecipeFault, RanksWithDifferentCommands) {
  const auto both = [](std::vector<std::string> first, const std::vector<std::string>& second) {
    first.insert(first.end(), {":", "-n", "1"});
    first.insert(first.end(), second.begin(), second.end());
    return run(first);
  };
  if (both(under_mpirun(1, {"true"}), {"true"}).signal == SIGSEGV)
    GTEST_SKIP() << "mpirun of this version (Open MPI 5.0.7 is one) crashes when it starts two commands";
  const auto eval = run_.command("eval", {"training.max_steps=3"});
  EXPECT_COMPLAINT(both(under_mpirun(1, run_.train()), eval), Exit::usage, HasSubstr("a different recipe or command"));
}

}  // namespace
}  // namespace strata::tests
