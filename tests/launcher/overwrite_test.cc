#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/calibrate.h"
#include "launcher/outputs.h"
#include "runtime/forecast/machine.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Overwrite : public testing::Test {
 protected:
  fs::path file(const std::string& name) const { return folder_.path() / name; }
  std::vector<std::string> sets(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"model.preset=tiny-gpt2",
                                    "data.seq_len=16",
                                    "memory.device=1GiB",
                                    "memory.host=1GiB",
                                    "device.threads=1",
                                    "data.train=" + file("tokens.bin").string(),
                                    "data.validation=" + file("tokens.bin").string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void make_tokens() const {
    folder_.write("text.txt", std::string(400, 'a') + "bcd");
    ASSERT_EQ(tokenize({.tokenizer = "byte", .out = file("tokens.bin"), .inputs = {file("text.txt").string()}}), 0);
  }

  tests::ScratchFolder folder_;
};

// A command, and the files that it writes into this folder.
struct Command {
  std::vector<std::string> outputs;
  std::function<int(bool force)> run;
};

// This is checked before any work is done.
TEST_F(Overwrite, AnOutputNeedsAFolderAndMustNotBeOne) {
  fs::create_directory(file("folder"));
  const auto refused = [&](const fs::path& path) { require_own({"--svg", path}, Content::chart, true); };
  EXPECT_FAILURE(refused(file("none/a.svg")), Exit::usage,
                 AllOf(StartsWith("--svg "), HasSubstr("there is no folder"), HasSubstr("none: create it first")));
  EXPECT_FAILURE(refused(file("folder")), Exit::usage, HasSubstr("folder is a folder"));
  refused(file("folder/a.svg"));
  refused("/dev/null");
  refused("a.svg");
}

// A run that removes the checkpoint would remove such a file, too.
TEST_F(Overwrite, NoCommandWritesIntoACheckpoint) {
  folder_.write("run/step-00000003/manifest.json", "{}");
  fs::create_directories(file("run/step-00000003/more"));
  fs::create_directory_symlink("run/step-00000003", file("link"));
  const auto refused = [&](const char* name) {
    EXPECT_FAILURE(require_own({"--json", file(name)}, Content::generation, true), Exit::usage,
                   AllOf(StartsWith("--json "), HasSubstr("lies in the checkpoint"), HasSubstr("step-00000003,")));
  };
  for (const char* name : {"run/step-00000003/a.json", "run/step-00000003/more/a.json", "link/a.json"}) refused(name);
  require_own({"--json", file("run/a.json")}, Content::generation, true);
  fs::create_directory(file("step-by-step"));
  require_own({"--json", file("step-by-step/a.json")}, Content::generation, true);
}

// Each command runs twice. The second time, it recognises its own files and overwrites them.
TEST_F(Overwrite, EveryCommandOverwritesItsOwnFiles) {
  make_tokens();
  ASSERT_EQ(train({.sets = sets({"training.max_steps=2", "checkpoint.dir=" + file("checkpoints").string()})}), 0);
  std::vector<std::string> reported = sets({"training.max_steps=2"});
  for (const char* key : {"jsonl", "summary", "trace"})
    reported.push_back(std::string("report.") + key + "=" + file(key).string());
  const std::vector<Command> commands = {
      {{"tokens.bin", "tokens.bin.json", "tokens.bin.documents"},
       [&](bool force) {
         return tokenize(
             {.tokenizer = "byte", .out = file("tokens.bin"), .inputs = {file("text.txt").string()}, .force = force});
       }},
      {{"plan.json"}, [&](bool force) { return plan({.sets = sets(), .json = file("plan.json"), .force = force}); }},
      {{"plan.trace"}, [&](bool force) { return plan({.sets = sets(), .trace = file("plan.trace"), .force = force}); }},
      {{"jsonl", "summary", "trace"}, [&](bool force) { return train({.sets = reported, .force = force}); }},
      {{"eval.json"}, [&](bool force) { return eval({.sets = sets(), .json = file("eval.json"), .force = force}); }},
      {{"generate.json"},
       [&](bool force) {
         return generate({.model = file("checkpoints"),
                          .prompt_tokens = {1, 2, 3},
                          .max_new_tokens = 2,
                          .json = file("generate.json"),
                          .force = force});
       }},
      {{"adam.json"},
       [&](bool force) {
         return bench({.part = "adam", .parameters = 4096, .threads = 1, .json = file("adam.json"), .force = force});
       }},
      {{"step.json"},
       [&](bool force) {
         return bench({.part = "step", .sets = sets(), .steps = 1, .json = file("step.json"), .force = force});
       }},
      {{"io.json"},
       [&](bool force) {
         return bench({.part = "io",
                       .dirs = {folder_.path()},
                       .size = "1MiB",
                       .rounds = 1,
                       .json = file("io.json"),
                       .force = force});
       }},
  };
  for (const Command& command : commands) {
    const std::string first = file(command.outputs[0]).string();
    ASSERT_EQ(command.run(false), 0) << first;
    EXPECT_GT(fs::file_size(first), 0u);
    EXPECT_EQ(command.run(false), 0) << first << " a second time";
  }
  // No command overwrites files of other commands or unknown files.
  for (const Command& command : commands)
    for (const std::string& output : command.outputs) {
      const std::string before = folder_.read(output);
      folder_.write(output, "[model]\npreset = \"mine\"\n");
      try {
        EXPECT_EQ(command.run(false), static_cast<int>(Exit::usage)) << output;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Exit::usage) << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr(file(output).string()), HasSubstr("--force"))) << output;
      }
      EXPECT_EQ(folder_.read(output), "[model]\npreset = \"mine\"\n");
      EXPECT_EQ(command.run(true), 0) << output << " with --force";
      EXPECT_NE(folder_.read(output), "[model]\npreset = \"mine\"\n");
    }
}

TEST_F(Overwrite, RefusesAFileInPlaceOfAFolder) {
  folder_.write("taken", "mine");
  for (const std::string_view key : {"report.dir", "report.tensorboard", "checkpoint.dir"}) {
    runtime::Recipe recipe;
    (key == "report.dir"           ? recipe.report.dir
     : key == "report.tensorboard" ? recipe.report.tensorboard
                                   : recipe.checkpoint.dir) = file("taken");
    EXPECT_FAILURE(require_own_reports(recipe, true), Exit::usage,
                   AllOf(HasSubstr(key), HasSubstr("taken is not a folder: name another")));
  }
  EXPECT_EQ(folder_.read("taken"), "mine");
  runtime::Recipe recipe;
  recipe.report.jsonl = folder_.path();
  EXPECT_FAILURE(require_own_reports(recipe, true), Exit::usage,
                 AllOf(HasSubstr("report.jsonl"), HasSubstr("is a folder: give the name of a file")));
}

TEST_F(Overwrite, RecognisesAnEditedMachineFile) {
  runtime::Machine machine;
  machine.processor = "any";
  const NamedFile out{"--out", folder_.write("machine.toml", "# mine\n" + runtime::machine_toml(machine))};
  require_own(out, Content::machine, false);
  folder_.write("machine.toml", "[model]\npreset = \"tiny-gpt2\"\n");
  EXPECT_FAILURE(
      require_own(out, Content::machine, false), Exit::usage,
      AllOf(StartsWith("--out "), HasSubstr("machine.toml exists and is not a machine file"), HasSubstr("--force")));
  require_own(out, Content::machine, true);
  CalibrateOptions options;
  options.out = out.path;
  EXPECT_EQ(calibrate(options), static_cast<int>(Exit::usage)) << "refused before the minute of measuring";
  EXPECT_EQ(folder_.read("machine.toml"), "[model]\npreset = \"tiny-gpt2\"\n");
}

TEST_F(Overwrite, EmptyFilesAndDevicesMayBeOverwritten) {
  for (const Content content : {Content::plan, Content::tokens, Content::machine, Content::steps}) {
    require_own({"--json", file("none")}, content, false);
    require_own({"--json", folder_.write("empty", "")}, content, false);
    require_own({"--json", "/dev/null"}, content, false);
  }
}

// Tokens have no mark of their own. Without a sidecar that counts them, the file may be somebody's data.
TEST_F(Overwrite, RecognisesTokensByTheirSidecar) {
  make_tokens();
  const NamedFile out{"--out", file("tokens.bin")};
  require_own(out, Content::tokens, false);
  const std::string sidecar = folder_.read("tokens.bin.json");
  folder_.write("tokens.bin", folder_.read("tokens.bin") + "ab");
  EXPECT_FAILURE(require_own(out, Content::tokens, false), Exit::usage, HasSubstr("with its sidecar next to it"));
  fs::remove(file("tokens.bin.json"));
  EXPECT_FAILURE(require_own(out, Content::tokens, false), Exit::usage, HasSubstr("with its sidecar next to it"));
  folder_.write("tokens.bin.json", "{\"vocab_size\": []}");
  EXPECT_FAILURE(require_own(out, Content::tokens, false), Exit::usage, HasSubstr("with its sidecar next to it"));
}

// Predictions have no mark, so their lines are inspected. Labels or numbers alone may have been written by people.
TEST_F(Overwrite, RecognisesPredictionsByTheirLines) {
  const auto overwrites = [&](const std::string& name, const std::string& content) {
    folder_.write(name, content);
    try {
      require_own({"--out", file(name)}, Content::prediction, false);
      return true;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not a file of predictions with probabilities"));
      return false;
    }
  };
  for (const char* own :
       {"{\"label\": \"a\", \"probabilities\": {\"a\": 0.9, \"b\": 0.1}}\n",
        "{\"labels\": [], \"probabilities\": {\"a\": 0.1}}\n{\"labels\": [\"a\"], \"probabilities\": {\"a\": 1}}\n",
        ""})
    EXPECT_TRUE(overwrites("p.jsonl", own)) << own;
  for (const char* other : {"{\"label\": 1}\n{\"label\": 0.5}\n", "{\"label\": \"a\"}\n",
                            "{\"text\": \"a\", \"label\": 1}\n", "{\"labels\": [1, 0]}\n", "no JSON\n",
                            "{\"labels\": [\"a\"], \"words\": [\"a\"]}\n", "{\"label\": 1}\n{\"label\": 0.123456787}\n",
                            "{\"label\": 0.1234567}\n", "{\"labels\": [null, \"B-PER\"]}\n{\"labels\": []}\n",
                            "{\"labels\": []}\n", "{\"probabilities\": {\"a\": 1}}\n",
                            "{\"label\": \"a\", \"probabilities\": {\"a\": 1}}\n{\"labels\": [\"a\"]}\n",
                            "{\"label\": \"a\", \"probabilities\": {\"a\": 1}, \"text\": \"b\"}\n"}) {
    EXPECT_FALSE(overwrites("p.jsonl", other)) << other;
    EXPECT_NO_THROW(require_own({"--out", file("p.jsonl")}, Content::prediction, true)) << other;
  }
}

}  // namespace
}  // namespace strata::launcher
