// Notes from loading a model or a tokenizer are printed once by every command that loads it.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

constexpr const char* kOfModel = "1 key that gpt2 models do not read";
constexpr const char* kOfTokenizer = "tokenizer.json are used, as in transformers 4";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  // Long lines are wrapped.
  std::string line;
  for (const char c : text) line += c == '\n' ? ' ' : c;
  for (std::size_t at = line.find("  "); at != std::string::npos; at = line.find("  ")) line.erase(at, 1);
  for (std::size_t at = line.find(part); at != std::string::npos; at = line.find(part, at + 1)) ++out;
  return out;
}

class Notes : public testing::Test {
 protected:
  Notes() {
    const Outcome trained = run(run_.train({"checkpoint.dir=" + run_.file("c"), "training.max_steps=1"}));
    EXPECT_EQ(trained.code, 0) << trained.all();
    EXPECT_EQ(run({kStrata, "export", run_.file("c"), "-o", model_}).code, 0);
    std::string config = run_.folder().read("m/config.json");
    config.insert(config.find('{') + 1, "\"unsloth_fixed\": true,");
    run_.folder().write("m/config.json", config);
    // A class that builds components that differ from the file's.
    run_.folder().write("m/tokenizer.json", R"({"model": {"type": "WordLevel", "unk_token": "[UNK]",
      "vocab": {"a": 0, "b": 1, "[UNK]": 2}}, "pre_tokenizer": {"type": "Whitespace"}})");
    run_.folder().write("m/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    run_.folder().write("a.txt", "a b a\n");
    run_.folder().write("prompts.txt", "a b\n");
  }
  // How often the command prints each of the two notes.
  void expect(std::size_t of_model, std::size_t of_tokenizer, const std::vector<std::string>& command) const {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_EQ(count_of(outcome.errors, kOfModel), of_model) << outcome.all();
    EXPECT_EQ(count_of(outcome.errors, kOfTokenizer), of_tokenizer) << outcome.all();
  }
  TinyRun run_;
  std::string model_ = run_.file("m");
};

TEST_F(Notes, EachCommandPrintsThemOnce) {
  const std::string tokens = run_.file("tokens.bin");
  expect(1, 0, run_.train_stored(model_));
  expect(1, 0, under_mpirun(2, run_.train_stored(model_, {"zero.stage=3"})));
  expect(1, 1,
         run_.train_stored(model_, {"evaluation.prompts=" + run_.file("prompts.txt"), "evaluation.every=1",
                                    "data.validation=" + tokens}));
  const std::vector<std::string> sets = {"--set", "model.path=" + model_, "--set", "data.seq_len=16"};
  const auto with_sets = [&](std::vector<std::string> command) {
    command.insert(command.end(), sets.begin(), sets.end());
    return command;
  };
  expect(1, 0, with_sets({kStrata, "plan", "--set", "data.train=" + tokens, "--set", "training.max_steps=1"}));
  expect(1, 0, with_sets({kStrata, "eval", "--set", "data.validation=" + tokens}));
  const std::vector<std::string> generate = {kStrata,    "generate", "--model",          model_,
                                             "--prompt", "a b",      "--max-new-tokens", "2"};
  expect(1, 1, generate);
  expect(1, 1, under_mpirun(2, generate));
  expect(1, 0, {kStrata, "export", model_, "-o", run_.file("again")});
  expect(0, 1, {kStrata, "tokenize", "--tokenizer", model_, "--no-eot", "-o", run_.file("a.bin"), run_.file("a.txt")});
}

}  // namespace
}  // namespace strata::tests
