// Evaluation, export and generation with a trained model under a real mpirun, with the same results on any number of
// ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <algorithm>

#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

class Inference : public testing::Test {
 protected:
  Inference() {
    const auto train = run_.train({"checkpoint.dir=" + run_.file("checkpoints"), "checkpoint.every=3", "zero.stage=3",
                                   "training.precision=fp32", "optimizer.learning_rate=0.1"});
    const Outcome outcome = run(under_mpirun(2, train));
    EXPECT_EQ(outcome.code, 0) << outcome.all();
  }
  std::string loss(int ranks, const std::vector<std::string>& sets) {
    run_.write_tokens("validation.bin", 150);
    auto all = sets;
    all.push_back("data.validation=" + run_.file("validation.bin"));
    all.push_back("training.precision=fp32");
    auto command = run_.command("eval", all);
    command.insert(command.end(), {"--json", run_.file("eval.json")});
    const Outcome outcome = run(ranks > 1 ? under_mpirun(ranks, command) : command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    simdjson::dom::parser parser;
    const auto json = parser.load(run_.file("eval.json"));
    EXPECT_EQ(std::int64_t(json["tokens"]), 149);
    return std::string(std::string_view(json["loss_hex"]));
  }
  // The tokens generated with these settings. `sharded`: expects a note that weights are sharded.
  std::string written(int ranks, const std::string& model, const std::string& set = {}, bool sharded = false) {
    std::vector<std::string> command = {kStrata,
                                        "generate",
                                        "--model",
                                        model,
                                        "--prompt-tokens",
                                        "3,14,15",
                                        "--max-new-tokens",
                                        "8",
                                        "--temperature",
                                        "0.9",
                                        "--seed",
                                        "7",
                                        "--json",
                                        run_.file("written.json")};
    if (!set.empty()) command.insert(command.end(), {"--set", set});
    const Outcome outcome = run(ranks > 1 ? under_mpirun(ranks, command) : command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_EQ(outcome.errors.find("), weights sharded)") != std::string::npos, sharded) << outcome.all();
    simdjson::dom::parser parser;
    return simdjson::minify(parser.load(run_.file("written.json"))["tokens"]);
  }
  TinyRun run_;
};

TEST_F(Inference, EvaluatesGeneratesAndExportsOnAnyNumberOfRanks) {
  const std::string checkpoints = "checkpoint.dir=" + run_.file("checkpoints");
  const std::string trained = loss(1, {checkpoints});
  EXPECT_EQ(loss(2, {checkpoints, "zero.stage=3"}), trained);
  EXPECT_EQ(loss(3, {checkpoints, "zero.stage=1"}), trained);
  EXPECT_NE(loss(1, {checkpoints, "checkpoint.resume=none"}), trained) << "the weights that training started from";

  const std::string text = written(1, run_.file("checkpoints"));
  EXPECT_GT(text.size(), 10u);
  const Outcome exported = run({kStrata, "export", run_.file("checkpoints"), "-o", run_.file("exported")});
  EXPECT_EQ(exported.code, 0) << exported.all();
  EXPECT_EQ(written(1, run_.file("exported")), text);
  EXPECT_EQ(written(2, run_.file("exported")), text) << "complete on both ranks, because they fit";
  EXPECT_EQ(written(2, run_.file("exported"), "zero.stage = 3", true), text);
  EXPECT_EQ(written(2, run_.file("exported"), "zero.parameters=host", true), text) << "not whole on the device";
}

// A model of bytes may write invalid UTF-8, but JSON must be UTF-8.
TEST_F(Inference, JsonOfAByteModelIsUtf8) {
  const auto train = run_.train({"model.config.vocab_size=256", "model.config.n_positions=48", "training.max_steps=1",
                                 "checkpoint.dir=" + run_.file("bytes")});
  ASSERT_EQ(run(train).code, 0);
  const Outcome outcome =
      run({kStrata, "generate", "--model", run_.file("bytes"), "--tokenizer", "byte", "--prompt", "\xff",
           "--max-new-tokens", "40", "--temperature", "1", "--json", run_.file("written.json")});
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_TRUE(std::any_of(outcome.output.begin(), outcome.output.end(), [](char c) { return c < 0; }))
      << "stdout has the bytes as they are";
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.load(run_.file("written.json")).get(json), simdjson::SUCCESS);
  EXPECT_THAT(std::string(std::string_view(json["text"])), testing::HasSubstr("\ufffd"));
}

// The answer to messages is the continuation of the text that their template writes, on any number of ranks. On a
// terminal, turns are answered one by one.
TEST_F(Inference, MessagesAreAnswered) {
  const auto train = run_.train({"model.config.vocab_size=256", "model.config.n_positions=96", "training.max_steps=1",
                                 "checkpoint.dir=" + run_.file("bytes")});
  ASSERT_EQ(run(train).code, 0);
  run_.folder().write(
      "t.jinja",
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
  run_.folder().write("q.json", "[{\"role\": \"user\", \"content\": \"1+2?\"}]");
  const std::vector<std::string> common = {"--model", run_.file("bytes"), "--tokenizer",
                                           "byte",    "--max-new-tokens", "5"};
  const auto written = [&](int ranks, std::vector<std::string> command) {
    command.insert(command.begin(), {kStrata, "generate"});
    command.insert(command.end(), common.begin(), common.end());
    const Outcome outcome = run(ranks > 1 ? under_mpirun(ranks, command) : command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    std::string text = outcome.output;
    if (ranks == 1) return text;
    const std::string tag = output_tag(0);  // before each piece
    for (std::size_t at = text.find(tag); at != std::string::npos; at = text.find(tag)) text.erase(at, tag.size());
    if (text.ends_with('\n')) text.pop_back();
    return text;
  };
  const std::vector<std::string> chat = {"--chat", run_.file("q.json"), "--chat-template", run_.file("t.jinja")};
  const std::string answer = written(1, {"--prompt", "u:1+2?;a:"});
  EXPECT_GT(answer.size(), 1u);
  // The answer ends at the ';' with which the template ends a turn.
  EXPECT_EQ(written(1, chat), answer.substr(0, answer.find(';')));
  EXPECT_EQ(written(2, chat), answer.substr(0, answer.find(';')));
  const std::string options = " --model " + run_.file("bytes") +
                              " --tokenizer byte --max-new-tokens 5 --chat - "
                              "--chat-template " +
                              run_.file("t.jinja");
  const Outcome piped = run({"sh", "-c", kStrata + " generate" + options + " < " + run_.file("q.json")});
  EXPECT_EQ(piped.output, answer.substr(0, answer.find(';'))) << piped.all();
  const Outcome text = run({"sh", "-c", "echo '1+2?' | " + kStrata + " generate" + options});
  EXPECT_EQ(text.output, piped.output) << text.all();
  const Outcome typed =
      run({"sh", "-c", "printf '1+2?\\n3?\\n\\004' | script -qec '" + kStrata + " generate" + options + "' /dev/null"});
  EXPECT_EQ(typed.code, 0) << typed.all();
  EXPECT_GE(std::count(typed.output.begin(), typed.output.end(), '>'), 3) << typed.all();

  run_.folder().write("q.json", "[{\"role\": \"assistant\", \"content\": \"x\"}]");
  const auto refused = [&](std::vector<std::string> command) {
    command.insert(command.begin(), {kStrata, "generate"});
    command.insert(command.end(), common.begin(), common.end());
    return run(command);
  };
  EXPECT_COMPLAINT(refused(chat), 2, testing::HasSubstr("nothing to answer"));
  EXPECT_COMPLAINT(refused({"--chat", run_.file("q.json")}), 2, testing::HasSubstr("has no chat template"));
  EXPECT_COMPLAINT(refused({"--chat", run_.file("none.json"), "--chat-template", run_.file("t.jinja")}), 2,
                   testing::HasSubstr("none.json"));
}

TEST_F(Inference, ReportsMistakesInOneSentence) {
  EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("nothing"), "--prompt-tokens", "1"}), 2,
                   testing::AllOf(testing::HasSubstr("there is no folder"), testing::HasSubstr("hf download")));
  EXPECT_COMPLAINT(run({kStrata, "generate", run_.file("checkpoints"), "--tokenizer", "byte"}), 2,
                   testing::HasSubstr("there is no prompt (--prompt TEXT"));
  EXPECT_COMPLAINT(run({kStrata, "generate", "--prompt", "text"}), 2, testing::HasSubstr("--model is required"));
  EXPECT_COMPLAINT(
      run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", "97", "--max-new-tokens", "2"}),
      2, testing::HasSubstr("vocabulary of 97"));
  EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt", "text"}), 2,
                   testing::HasSubstr("--tokenizer"));
  EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", "1"}), 2,
                   testing::HasSubstr("positions"));
  EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", "1",
                        "--max-new-tokens", "2", "--set", "data.seq_len=2"}),
                   2, testing::HasSubstr("data.seq_len = 2 has no room"));
  EXPECT_COMPLAINT(
      run(under_mpirun(2, {kStrata, "generate", "--model", run_.file("checkpoints"), "--max-new-tokens", "2"},
                       "exec \"$@\" --prompt-tokens $((OMPI_COMM_WORLD_RANK + 1))")),
      2, testing::HasSubstr("rank 1 was given a different prompt"));
  for (const char* tokens : {"1,2,,3", "1,2,", ",1", "", "1.5", "-1", "4294967296", "1;2"})
    EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", tokens}), 2,
                     testing::AllOf(testing::HasSubstr("--prompt-tokens"), testing::HasSubstr("is not a token")));
  for (const char* option : {"--temperature", "--top-p"})
    EXPECT_COMPLAINT(
        run({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", "1", option, "nan"}), 2,
        testing::HasSubstr(option));
  EXPECT_COMPLAINT(run({kStrata, "generate", "--model", run_.file("checkpoints"), "--tokenizer", "byte", "--prompt",
                        "a", "--max-new-tokens", "2"}),
                   2, testing::HasSubstr("256 tokens, but the model has 97"));
  EXPECT_COMPLAINT(run(run_.command("eval", {"data.validation=" + run_.file("tokens.bin"),
                                             "checkpoint.dir=" + run_.file("elsewhere")})),
                   2, testing::HasSubstr("no complete checkpoint to evaluate"));
  EXPECT_COMPLAINT(run(run_.command("eval")), 2, testing::HasSubstr("data.validation"));
  EXPECT_COMPLAINT(run({kStrata, "export", run_.file("checkpoints"), "-o", run_.folder().path().string()}), 2,
                   testing::HasSubstr("not empty"));
}

}  // namespace
}  // namespace strata::tests
