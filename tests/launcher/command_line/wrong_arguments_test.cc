#include "launcher/command_line/wrong_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::launcher {
namespace {

// The error of `strata plan` for these words.
std::string said(std::vector<std::string> words) {
  CLI::App command("", "plan");
  std::vector<std::string> sets;
  std::string recipe, json;
  int ranks = 0;
  command.add_option("RECIPE", recipe);
  command.add_option("--set", sets)->expected(1)->allow_extra_args(false);
  command.add_option("--ranks-per-node", ranks);
  command.add_option("--json", json);
  try {
    command.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return wrong_arguments(command, error, words);
  }
  return "";
}

TEST(WrongArguments, NameTheOptionThatWasMeant) {
  EXPECT_EQ(said({"a.toml", "--rank-per-node", "3"}),
            "strata plan has no option --rank-per-node: did you mean --ranks-per-node?");
}

TEST(WrongArguments, ExplainHowToSetARecipeKey) {
  EXPECT_EQ(said({"a.toml", "--training.max_steps", "3"}),
            "strata plan has no option --training.max_steps: it is a key of the recipe, --set training.max_steps=3");
  EXPECT_EQ(said({"--max-steps=3"}),
            "strata plan has no option --max-steps: it is a key of the recipe, --set training.max_steps=3");
  EXPECT_EQ(said({"--max_steps", "--json", "x"}),
            "strata plan has no option --max_steps: it is a key of the recipe, --set training.max_steps=VALUE");
  EXPECT_EQ(said({"a.toml", "training.max_steps=3"}),
            "training.max_steps=3: a key of the recipe follows --set, as in --set training.max_steps=3");
}

TEST(WrongArguments, GiveTheKeyForAnotherProgramsOption) {
  EXPECT_THAT(said({"--per_device_train_batch_size", "4"}), testing::HasSubstr("use training.micro_batch_size"));
}

TEST(WrongArguments, GiveTheOptionForAnotherProgramsOption) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--nproc-per-node", "2"}, {"--nproc_per_node=2"}, {"--ntasks-per-node=2"}})
    EXPECT_THAT(said(words), testing::EndsWith(": use --ranks-per-node 2"));
  EXPECT_EQ(said({"--nproc-per-node", "gpu"}), "strata plan has no option --nproc-per-node: use --ranks-per-node N");
  EXPECT_THAT(said({"--nnodes", "2"}), testing::HasSubstr("--hosts"));
  CLI::App train("", "train");
  const std::vector<std::string> words = {"--nproc-per-node=2"};
  try {
    train.parse(std::vector<std::string>(words));
    ADD_FAILURE() << "train has no such option";
  } catch (const CLI::ParseError& error) {
    EXPECT_EQ(wrong_arguments(train, error, words),
              "strata train has no option --nproc-per-node: use strata launch --ranks-per-node N -- train, or mpirun "
              "-n N");
  }
}

TEST(WrongArguments, PointOtherWordsToTheHelp) {
  EXPECT_EQ(said({"--qqqq"}), "strata plan has no option --qqqq (see strata plan --help)");
  EXPECT_EQ(said({"a.toml", "b.toml"}), "strata plan takes no further argument b.toml (see strata plan --help)");
  EXPECT_EQ(said({"--json"}), "--json needs a value (see strata plan --help)");
}

TEST(WrongArguments, NameTheValueThatWasMeant) {
  CLI::App app;
  CLI::App* ctl = app.add_subcommand("ctl");
  std::string what;
  ctl->add_option("WHAT", what)->check(CLI::IsMember({"status", "stop"}));
  const auto said_of = [&](const std::string& word) {
    try {
      app.parse("ctl " + word);
    } catch (const CLI::ParseError& error) {
      return wrong_arguments(*ctl, error, std::vector{word});
    }
    return std::string();
  };
  EXPECT_THAT(said_of("stats"), testing::EndsWith("stats not in {status,stop}: did you mean status? (see strata ctl "
                                                  "--help)"));
  EXPECT_THAT(said_of("xxxxxx"), testing::EndsWith("xxxxxx not in {status,stop} (see strata ctl --help)"));
}

TEST(UnknownOption, NamesTheOneThatWasMeant) {
  CLI::App app;
  app.set_version_flag("--version", "1");
  EXPECT_EQ(unknown_option(app, "--versoin"),
            "strata has no option --versoin: did you mean --version? (see strata "
            "--help)");
  EXPECT_EQ(unknown_option(app, "--qqqq=3"), "strata has no option --qqqq (see strata --help)");
}

TEST(UnknownCommand, NamesTheOneThatWasMeant) {
  CLI::App app, *train = app.add_subcommand("train"), *plan = app.add_subcommand("plan");
  const std::vector<CLI::App*> commands = {train, plan};
  EXPECT_EQ(unknown_command("trian", commands), "there is no command trian: did you mean train? (see strata --help)");
  EXPECT_EQ(unknown_command("pln", commands), "there is no command pln: did you mean plan? (see strata --help)");
  EXPECT_EQ(unknown_command("x", commands), "there is no command x (see strata --help)");
}

}  // namespace
}  // namespace strata::launcher
