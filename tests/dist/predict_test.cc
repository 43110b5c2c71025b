// Classifiers from text to labels, as the program makes them: tokenized, trained some steps, evaluated, asked.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kTexts = 40;

// Texts with a class, some classes and a class per word, and a small BERT that has learnt two steps of one of these.
class Predict : public testing::Test {
 protected:
  Predict() {
    folder_.write("bert/config.json",
                  R"({"model_type": "bert", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                      "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 900, "type_vocab_size": 2})");
    fs::copy(fs::path(STRATA_SOURCE_DIR) / "tests/golden/tokenizers/bert/tokenizer.json",
             folder_.path() / "bert/tokenizer.json");
    for (int i = 0; i < kTexts; ++i) lines_.push_back(line(i));
    folder_.write("texts.jsonl", fmt::format("{}\n", fmt::join(lines_, "\n")));
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  static std::string line(int i) {
    static constexpr const char* kWords[] = {"good", "bad", "fine", "poor",  "the",
                                             "film", "was", "long", "short", "very"};
    std::vector<std::string> words, tags;
    std::string text;
    for (int k = 0; k < 2 + i % 5; ++k) {
      words.push_back(fmt::format("\"{}\"", kWords[(i * i + 3 * k + i / 7) % 10]));
      tags.emplace_back(words.back().size() > 6 ? "\"N\"" : "\"O\"");
      text += fmt::format("{}{}", k > 0 ? " " : "", kWords[(i * i + 3 * k + i / 7) % 10]);
    }
    static constexpr const char* kLabels[] = {"no", "yes", "maybe"};
    static constexpr const char* kTags[] = {"", "\"a\"", "\"a\", \"b\""};
    return fmt::format(
        R"({{"text": "{}", "second": "the {}", "label": "{}", "tags": [{}], "words": [{}], "each": [{}]}})", text,
        i % 2 == 0 ? "film" : "very long film", kLabels[(i * i + i / 3) % 3], kTags[i % 3], fmt::join(words, ", "),
        fmt::join(tags, ", "));
  }

  // NAME.bin of the texts.
  void tokenize(const std::string& name, std::vector<std::string> options, const std::string& texts = "texts.jsonl") {
    std::vector<std::string> command = {STRATA, "tokenize", "--tokenizer", tokenizer_, "-o", file(name + ".bin")};
    command.insert(command.end(), options.begin(), options.end());
    command.push_back(file(texts));
    done(run(command));
  }
  std::vector<std::string> command(const std::string& verb, const std::string& name,
                                   const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {STRATA, verb};
    std::vector<std::string> keys = {"model.path=" + file("bert"),
                                     "model.init=random",
                                     "training.objective=sequence_classification",
                                     "data.train=" + file(name + ".bin"),
                                     "data.validation=" + file(name + ".bin"),
                                     "data.seq_len=40",
                                     "training.max_steps=2",
                                     "training.precision=fp32",
                                     "optimizer.learning_rate=0.01",
                                     "device.threads=1",
                                     "checkpoint.dir=" + file(name)};
    keys.insert(keys.end(), sets.begin(), sets.end());
    for (const std::string& key : keys) all.insert(all.end(), {"--set", key});
    return all;
  }
  void learn(const std::string& name, const std::vector<std::string>& options,
             const std::vector<std::string>& sets = {}) {
    tokenize(name, options);
    said_ = done(run(command("train", name, sets)));
  }
  std::string done(const Outcome& outcome) const {
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    return outcome.all();
  }
  std::vector<std::string> asked(const std::string& model, const std::string& texts, const std::string& out,
                                 const std::vector<std::string>& options = {}) const {
    std::vector<std::string> all = {STRATA, "predict", file(model), file(texts),
                                    "-o",   file(out), "--set",     "device.threads=1"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  // The lines that are written for the texts.
  std::vector<std::string> predicted(const std::string& model, const std::vector<std::string>& options = {},
                                     const std::string& texts = "texts.jsonl", int ranks = 1) {
    const auto all = asked(model, texts, "out.jsonl", options);
    fs::remove(file("out.jsonl"));
    said_ = done(run(ranks > 1 ? under_mpirun(ranks, all) : all));
    for (const char* ending : {".part", ".tokens", ".tokens.json", ".tokens.types", ".tokens.documents"})
      EXPECT_FALSE(fs::exists(file("out.jsonl") + ending)) << ending;
    std::vector<std::string> out;
    const std::string all_lines = folder_.read("out.jsonl");
    for (std::size_t begin = 0; begin < all_lines.size();) {
      const std::size_t end = all_lines.find('\n', begin);
      out.push_back(all_lines.substr(begin, end - begin));
      begin = end + 1;
    }
    return out;
  }
  // Of strata eval --json.
  simdjson::dom::element evaluated(const std::string& name, const std::vector<std::string>& sets = {}) {
    auto all = command("eval", name, sets);
    all.insert(all.end(), {"--json", file("eval.json"), "--force"});
    said_ = done(run(all));
    return parser_.load(file("eval.json"));
  }

  ScratchFolder folder_;
  std::vector<std::string> lines_;
  std::string said_, tokenizer_ = file("bert");
  simdjson::dom::parser parser_;
};

TEST_F(Predict, EachTextHasTheSameBytesAloneAndOnAnyNumberOfRanks) {
  learn("one", {"--labels", "label"});
  const auto all = predicted("one");
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kTexts));
  EXPECT_THAT(all[0], testing::MatchesRegex(
                          R"(\{"label": "[a-z]+", "probabilities": \{"maybe": [^,]+, "no": [^,]+, "yes": [^,]+\}\})"));
  EXPECT_EQ(predicted("one", {}, "texts.jsonl", 2), all);
  EXPECT_EQ(predicted("one", {"--set", "zero.stage=3"}, "texts.jsonl", 3), all);
  for (const std::size_t i : {0u, 7u, 39u}) {
    folder_.write("alone.jsonl", lines_[i] + "\n");
    EXPECT_EQ(predicted("one", {}, "alone.jsonl"), std::vector{all[i]}) << i;
  }
  // In the order of the input, not of what fits a sequence.
  std::vector<std::string> backward(lines_.rbegin(), lines_.rend());
  folder_.write("backward.jsonl", fmt::format("{}\n", fmt::join(backward, "\n")));
  EXPECT_EQ(predicted("one", {}, "backward.jsonl"), std::vector(all.rbegin(), all.rend()));
  EXPECT_NE(all[0], all[1]);
}

// predict opens OUT.part as it is, so that a second name of it keeps what it held at the end.
TEST_F(Predict, GoesOnFromWhatIsDone) {
  learn("one", {"--labels", "label"});
  folder_.write("out.jsonl.part", "");
  fs::create_hard_link(file("out.jsonl.part"), file("kept"));
  const auto all = predicted("one");
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes")));
  const std::string whole = folder_.read("kept");
  ASSERT_GT(whole.size(), kTexts * 3 * sizeof(float));

  for (const int ranks : {1, 2}) {
    folder_.write("out.jsonl.part", std::string_view(whole).substr(0, whole.size() * 2 / 3));  // amid a record
    EXPECT_EQ(predicted("one", {}, "texts.jsonl", ranks), all);
    EXPECT_THAT(said_, HasSubstr("resumes after ")) << ranks;
  }
  // What is there is taken: the last score but of a part that is whole.
  std::string changed = whole;
  const float score = 9;
  changed.replace(changed.size() - sizeof score, sizeof score, reinterpret_cast<const char*>(&score), sizeof score);
  folder_.write("out.jsonl.part", changed);
  EXPECT_NE(predicted("one"), all);

  // Of other texts, or micro-batches of another size: begins anew.
  folder_.write("out.jsonl.part", changed);
  EXPECT_EQ(predicted("one", {"--set", "training.micro_batch_size=2"}), all);
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes")));
  folder_.write("out.jsonl.part", changed);
  folder_.write("alone.jsonl", lines_[3] + "\n");
  EXPECT_EQ(predicted("one", {}, "alone.jsonl"), std::vector{all[3]});
}

TEST_F(Predict, SeveralLabelsFromTheThresholdOn) {
  learn("many", {"--labels", "tags"});
  for (const double threshold : {0.0, 0.5, 0.52, 1.0}) {
    const auto lines = predicted("many", {"--threshold", fmt::format("{}", threshold)});
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(kTexts));
    for (const std::string& line : lines) {
      const auto json = parser_.parse(line);
      std::vector<std::string> wanted, chosen;
      for (const auto& [name, p] : json["probabilities"].get_object())
        if (double(p) >= threshold) wanted.emplace_back(name);
      for (const auto name : json["labels"].get_array()) chosen.emplace_back(std::string_view(name));
      EXPECT_EQ(chosen, wanted) << line;
      if (threshold == 0.0 || threshold == 1.0) {
        EXPECT_EQ(chosen.size(), threshold == 0.0 ? 2u : 0u);
      }
    }
  }
}

TEST_F(Predict, EachWordHasALabel) {
  learn("words", {"--labels", "each", "--field", "words"}, {"training.objective=token_classification"});
  const auto all = predicted("words", {"--field", "words"});
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kTexts));
  for (int i = 0; i < kTexts; ++i) {
    const auto json = parser_.parse(all[static_cast<std::size_t>(i)]);
    EXPECT_EQ(json["labels"].get_array().size(), static_cast<std::size_t>(2 + i % 5)) << i;
    for (const auto name : json["labels"].get_array())
      EXPECT_THAT(std::string(std::string_view(name)), testing::AnyOf("N", "O"));
  }
  EXPECT_EQ(predicted("words", {"--field", "words"}, "texts.jsonl", 2), all);
  // Nor is a label of a word that has no token, or was cut off, another's.
  folder_.write("holes.jsonl", R"({"words": ["a", "", "b"]})"
                               "\n"
                               R"({"words": ["a", "b", "c", "d", "e", "f", "g"]})"
                               "\n");
  for (const int ranks : {1, 2}) {
    const auto holes = predicted("words", {"--field", "words", "--max-length", "6"}, "holes.jsonl", ranks);
    ASSERT_EQ(holes.size(), 2u);
    EXPECT_THAT(holes[0], testing::MatchesRegex(R"(\{"labels": \["[NO]", null, "[NO]"\]\})"));
    EXPECT_THAT(holes[1], testing::MatchesRegex(R"(\{"labels": \["[NO]", .*, null\]\})"));
    EXPECT_EQ(std::count(holes[1].begin(), holes[1].end(), ','), 6);
  }
  EXPECT_COMPLAINT(run(asked("words", "texts.jsonl", "other.jsonl")), Exit::usage,
                   AllOf(HasSubstr("texts.jsonl, text 1"), HasSubstr("as a list")));
}

TEST_F(Predict, MistakesAreOneSentence) {
  learn("one", {"--labels", "label"});
  done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("filler", "texts.jsonl", "out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("is no classifier"), HasSubstr("masked_lm")));
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("one", "texts.jsonl", "out.jsonl", {"--field", "body"}))), Exit::usage,
                   AllOf(HasSubstr("texts.jsonl, line 1"), HasSubstr("no field \"body\"")));
  folder_.write("texts.txt", "a text");
  EXPECT_COMPLAINT(run(asked("one", "texts.txt", "out.jsonl")), Exit::usage, HasSubstr("neither .jsonl nor"));
  EXPECT_FALSE(fs::exists(file("out.jsonl")));
  folder_.write("out.jsonl", "mine");
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("one", "texts.jsonl", "out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("out.jsonl exists"), HasSubstr("--force")));
  EXPECT_EQ(folder_.read("out.jsonl"), "mine");
  done(run(asked("one", "texts.jsonl", "out.jsonl", {"--force"})));
  EXPECT_THAT(folder_.read("out.jsonl"), testing::StartsWith("{\"label\": "));
  const std::string texts = folder_.read("texts.jsonl");
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "texts.jsonl", {"--force"})), Exit::usage, HasSubstr("IN"));
  EXPECT_EQ(folder_.read("texts.jsonl"), texts);
}

// Nothing that another wrote is replaced or deleted.
TEST_F(Predict, FilesBesideOutAreTheirOwners) {
  learn("one", {"--labels", "label"});
  for (const char* ending : {".tokens", ".tokens.json", ".part"}) {
    const std::string name = std::string("out.jsonl") + ending;
    folder_.write(name, "mine");
    EXPECT_COMPLAINT(run(under_mpirun(2, asked("one", "texts.jsonl", "out.jsonl", {"--force"}))), Exit::usage,
                     AllOf(HasSubstr(name), HasSubstr("in the way")));
    EXPECT_EQ(folder_.read(name), "mine");
    fs::remove(file(name));
  }
  done(run(asked("one", "texts.jsonl", "out.jsonl")));
}

// What a recipe asks of a classifier is refused before its first step.
TEST_F(Predict, TrainingsThatCannotBe) {
  learn("one", {"--labels", "label"});
  const auto refused = [&](std::vector<std::string> sets) { return run(command("train", "one", std::move(sets))); };
  EXPECT_COMPLAINT(refused({"training.class_weights=[0, 0, 0]"}), Exit::usage, HasSubstr("are all 0"));
  EXPECT_COMPLAINT(refused({"data.packing=stream"}), Exit::usage, HasSubstr("data.packing = \"stream\""));
  EXPECT_COMPLAINT(refused({"evaluation.every=1", "evaluation.metric=eval_pearson"}), Exit::usage,
                   AllOf(HasSubstr("eval_pearson"), HasSubstr("eval_accuracy")));
  for (const std::string objective : {"causal_lm", "masked_lm"})
    EXPECT_COMPLAINT(refused({"training.objective=" + objective, "training.class_weights=[1, 2, 1]"}), Exit::usage,
                     AllOf(HasSubstr("class_weights weigh classes"), HasSubstr(objective)));
  EXPECT_COMPLAINT(refused({"training.mlm_probability=0.15"}), Exit::usage,
                   AllOf(HasSubstr("training.mlm_probability = 0.15"), HasSubstr("\"sequence_classification\"")));
  EXPECT_COMPLAINT(refused({"model.config.num_labels=7"}), Exit::usage,
                   AllOf(HasSubstr("model.config.num_labels is 7"), HasSubstr("3 classes (maybe, no, yes)")));
  folder_.write("rated.jsonl", "{\"text\": \"good\", \"rating\": 0.5}\n{\"text\": \"bad\", \"rating\": -1.5}\n");
  tokenize("rated", {"--labels", "rating"}, "rated.jsonl");
  EXPECT_COMPLAINT(run(command("train", "rated", {"training.class_weights=[1, 2]"})), Exit::usage,
                   HasSubstr("predicts a number"));
}

// What an objective leaves alone of its data, or does not find there, is said at the start.
TEST_F(Predict, DataThatAnObjectiveDoesNotExpect) {
  tokenize("one", {"--labels", "label"});
  const std::string masked =
      done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  EXPECT_THAT(masked, AllOf(HasSubstr("the labels of "), HasSubstr("one.bin are left alone"),
                            HasSubstr("sequence_classification learns them")));
  EXPECT_THAT(masked, testing::Not(HasSubstr("begins with a token of text")));
  tokenize("bare", {"--no-eot"});
  const std::string bare =
      done(run(command("train", "bare", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler2")})));
  EXPECT_THAT(bare, AllOf(HasSubstr("bare.bin begins with a token of text"), HasSubstr("--add-special")));
  EXPECT_THAT(bare, testing::Not(HasSubstr("left alone")));
  tokenize("special", {"--no-eot", "--add-special"});
  EXPECT_THAT(
      done(run(command("train", "special", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler3")}))),
      testing::Not(HasSubstr("begins with a token of text")));
}

// A weighted loss is the mean over texts of their class's weight times -ln of its probability.
TEST_F(Predict, ClassWeightsMultiplyTheLossOfTheirClass) {
  learn("one", {"--labels", "label"});
  const auto lines = predicted("one");
  const double weights[] = {2, 0.5, 1};  // maybe, no, yes
  double plain = 0, weighted = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string label(std::string_view(parser_.parse(lines_[static_cast<std::size_t>(i)])["label"]));
    const double p = parser_.parse(lines[static_cast<std::size_t>(i)])["probabilities"][label];
    plain -= std::log(p) / kTexts;
    weighted -= weights[label == "maybe" ? 0 : label == "no" ? 1 : 2] * std::log(p) / kTexts;
  }
  // Losses of texts are fp32, and so are the scores of which the probabilities are: 1e-6 is some of their last bits.
  EXPECT_NEAR(double(evaluated("one")["loss"]), plain, 1e-6);
  const std::string bits(std::string_view(evaluated("one")["loss_hex"]));
  EXPECT_EQ(std::string_view(evaluated("one", {"training.class_weights=[1, 1, 1]"})["loss_hex"]), bits);
  EXPECT_NEAR(double(evaluated("one", {"training.class_weights=[2, 0.5, 1]"})["loss"]), weighted, 1e-6);
  EXPECT_GT(std::abs(weighted - plain), 1e-2);
  EXPECT_COMPLAINT(run(command("train", "one", {"training.class_weights=[1, 2]"})), Exit::usage,
                   AllOf(HasSubstr("training.class_weights has 2 numbers"), HasSubstr("3 classes")));

  // In training too, on any number of ranks.
  const auto trained = [&](int ranks, const std::vector<std::string>& weighted_by) {
    std::vector<std::string> sets = {"checkpoint.dir=" + file("again"), "training.global_batch_size=2",
                                     "report.summary=" + file("summary")};
    sets.insert(sets.end(), weighted_by.begin(), weighted_by.end());
    fs::remove(file("summary"));
    fs::remove_all(file("again"));
    const auto all = command("train", "one", sets);
    done(run(ranks > 1 ? under_mpirun(ranks, all) : all));
    return std::string(std::string_view(parser_.load(file("summary"))["weights_hash"]));
  };
  const std::string alike = trained(1, {}), other = trained(1, {"training.class_weights=[2, 0.5, 1]"});
  EXPECT_EQ(trained(1, {"training.class_weights=[1, 1, 1]"}), alike);
  EXPECT_NE(other, alike);
  EXPECT_EQ(trained(2, {"training.class_weights=[2, 0.5, 1]"}), other);
}

TEST_F(Predict, PairsHaveTypes) {
  const std::vector<std::string> pair = {"--pair", "second"};
  learn("pair", {"--labels", "label", "--pair", "second"});
  ASSERT_TRUE(fs::exists(file("pair.bin.types")));
  const auto all = predicted("pair", pair);
  EXPECT_EQ(predicted("pair", pair, "texts.jsonl", 2), all);
  EXPECT_NE(predicted("pair", {"--pair", "text"}), all) << "the second text counts";
  const std::string bits(std::string_view(evaluated("pair")["loss_hex"]));

  // The same tokens without types are other input.
  std::string sidecar = folder_.read("pair.bin.json");
  const std::size_t begin = sidecar.find(", \"types\"");
  ASSERT_NE(begin, std::string::npos) << sidecar;
  sidecar.erase(begin, sidecar.find('}', begin) + 1 - begin);
  folder_.write("pair.bin.json", sidecar);
  fs::remove(file("pair.bin.types"));
  EXPECT_NE(std::string_view(evaluated("pair")["loss_hex"]), bits);
}

// What a classifier was trained on goes with it, into what is exported too.
TEST_F(Predict, TextsAreTakenAsInTraining) {
  learn("pair", {"--labels", "label", "--pair", "second"});
  learn("one", {"--labels", "label"});
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("pair", "texts.jsonl", "out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("was trained on pairs of texts"), HasSubstr("--pair")));
  EXPECT_THAT(said_, HasSubstr("strata predict " + file("one")));
  done(run({STRATA, "export", file("one"), "-o", file("exported")}));
  for (const std::string model : {"one", "exported"}) {
    EXPECT_COMPLAINT(run(asked(model, "texts.jsonl", "other.jsonl", {"--pair", "second"})), Exit::usage,
                     HasSubstr("was trained on single texts: leave --pair out"));
    EXPECT_COMPLAINT(run(asked(model, "texts.jsonl", "other.jsonl", {"--tokenizer", "byte"})), Exit::usage,
                     AllOf(HasSubstr("was trained on tokens of the tokenizer bert"), HasSubstr("byte is another")));
    const auto all = predicted(model);
    EXPECT_EQ(predicted(model, {"--tokenizer", file("bert")}), all);
    EXPECT_NE(predicted(model, {"--tokenizer", "byte", "--set", "data.any_tokenizer=true"}), all);
  }
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "other.jsonl", {"--max-length", "41"})), Exit::usage,
                   AllOf(HasSubstr("--max-length 41"), HasSubstr("positions for 40 tokens")));
}

// transformers gives "" the scores of [CLS] [SEP].
TEST_F(Predict, AnEmptyTextHasARow) {
  learn("one", {"--labels", "label"});
  const auto all = predicted("one");
  folder_.write("empty.jsonl", lines_[0] + "\n{\"text\": \"\"}\n" + lines_[1] + "\n");
  const auto with = predicted("one", {}, "empty.jsonl");
  ASSERT_EQ(with.size(), 3u);
  EXPECT_EQ(with[0], all[0]);
  EXPECT_EQ(with[2], all[1]);
  EXPECT_THAT(with[1], testing::StartsWith("{\"label\": "));
  EXPECT_THAT(said_, AllOf(HasSubstr("out.jsonl: 3 texts"), testing::Not(HasSubstr(".tokens"))));

  learn("words", {"--labels", "each", "--field", "words"}, {"training.objective=token_classification"});
  folder_.write("empty.jsonl", "{\"words\": []}\n{\"words\": [\"good\"]}\n");
  const auto words = predicted("words", {"--field", "words"}, "empty.jsonl");
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0], "{\"labels\": []}");
}

TEST_F(Predict, WhatIsWrongIsSaidOfTheUsersFiles) {
  learn("one", {"--labels", "label"});
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("one", "texts.jsonl", "none/out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("there is no folder"), HasSubstr("none: make it first")));
  fs::create_directory(file("folder"));
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "folder", {"--force"})), Exit::usage,
                   HasSubstr("folder is a folder: give the name of a file"));
  folder_.write("nothing.jsonl", "\n");
  EXPECT_COMPLAINT(run(asked("one", "nothing.jsonl", "out.jsonl")), Exit::usage,
                   HasSubstr("nothing.jsonl holds no record"));
  EXPECT_COMPLAINT(run(asked("one", "none.jsonl", "out.jsonl")), Exit::usage, HasSubstr("none.jsonl cannot be opened"));
}

// Stopped amid its work it keeps what is done, ends as a run that is to be started again, and goes on to the same
// bytes; of another model at the same place it begins anew.
TEST_F(Predict, StoppedItGoesOn) {
  learn("one", {"--labels", "label"});
  std::string many;
  for (int i = 0; i < 60'000; ++i) many += lines_[static_cast<std::size_t>(i % kTexts)] + "\n";
  folder_.write("many.jsonl", many);
  const auto part = [&] {
    std::error_code none;
    const auto size = fs::file_size(file("out.jsonl.part"), none);
    return none ? std::uintmax_t{0} : size;
  };
  const auto stopped = [&](int signal) {
    Running live(asked("one", "many.jsonl", "out.jsonl"));
    const auto before = part();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (part() < before + 4096 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    live.send(signal);
    return live.wait();
  };
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_COMPLAINT(stopped(signal), Exit::requeue,
                     AllOf(HasSubstr("stopped on request"), HasSubstr("out.jsonl.part"), HasSubstr("same command")));
    EXPECT_FALSE(fs::exists(file("out.jsonl")));
    EXPECT_FALSE(fs::exists(file("out.jsonl.tokens")));
  }
  const std::string kept = folder_.read("out.jsonl.part");
  const auto all = predicted("one", {}, "many.jsonl");
  EXPECT_THAT(said_, HasSubstr("resumes after "));
  ASSERT_EQ(all.size(), 60'000u);
  const auto few = predicted("one");
  for (const std::size_t i : {0u, 39u, 40u, 59'999u}) EXPECT_EQ(all[i], few[i % kTexts]) << i;

  done(run(command("train", "one", {"training.max_steps=4", "checkpoint.keep=1"})));
  folder_.write("out.jsonl.part", kept);
  const auto later = predicted("one", {}, "many.jsonl");
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes after ")));
  EXPECT_NE(later, all);
}

// Its tokenizer's template has types, which transformers does not give it either.
TEST_F(Predict, AFamilyWithoutTypesTakesPairs) {
  folder_.write("bert/config.json",
                R"({"model_type": "distilbert", "dim": 32, "hidden_dim": 48, "n_heads": 2, "n_layers": 1,
                    "max_position_embeddings": 40, "vocab_size": 900})");
  learn("pair", {"--labels", "label", "--pair", "second"});
  ASSERT_TRUE(fs::exists(file("pair.bin.types")));
  EXPECT_EQ(predicted("pair", {"--pair", "second"}).size(), static_cast<std::size_t>(kTexts));
  folder_.write("bert/config.json",
                R"({"model_type": "bert", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                    "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 900, "type_vocab_size": 1})");
  EXPECT_COMPLAINT(run(command("train", "pair", {"checkpoint.dir=" + file("other")})), Exit::usage,
                   AllOf(HasSubstr("tokens of two types"), HasSubstr("no more than one")));
}

TEST_F(Predict, AMissingCurveIsSaidWithItsReason) {
  learn("one", {"--labels", "label"});
  std::string no;
  for (const std::string& line : lines_)
    if (line.find("\"label\": \"no\"") != std::string::npos) no += line + "\n";
  folder_.write("no.jsonl", no);
  tokenize("no", {"--labels", "label"}, "no.jsonl");
  const auto json = evaluated("one", {"data.validation=" + file("no.bin")});
  EXPECT_THAT(said_, HasSubstr("eval_roc_auc is not computed: data.validation has no text of the class maybe"));
  EXPECT_EQ(json["eval_roc_auc"].error(), simdjson::NO_SUCH_FIELD);
  EXPECT_EQ(evaluated("one")["eval_roc_auc"].error(), simdjson::SUCCESS);
  EXPECT_THAT(said_, testing::Not(HasSubstr("not computed")));

  // As what decides of the best it is refused before the first step.
  for (const std::string when : {"evaluation.every=1", "evaluation.at_start=true"})
    EXPECT_COMPLAINT(run(command("train", "one",
                                 {"data.validation=" + file("no.bin"), when, "evaluation.metric=eval_roc_auc",
                                  "checkpoint.dir=" + file("never")})),
                     Exit::usage,
                     AllOf(HasSubstr("eval_roc_auc"), HasSubstr("nothing of data.validation is of the class maybe")));
  EXPECT_FALSE(fs::exists(file("never")));
  const Outcome trained = run(command(
      "train", "one", {"data.validation=" + file("no.bin"), "evaluation.every=1", "checkpoint.dir=" + file("again")}));
  const std::string said = done(trained);
  const std::size_t first = said.find("eval_roc_auc is not computed");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("eval_roc_auc is not computed", first + 1), std::string::npos) << "once a run: " << said;
}

// With a tokenizer that adds nothing, a text may have one token, and a sequence as many texts as tokens.
TEST_F(Predict, TextsOfOneTokenHaveTheSameBytesTogetherAndAlone) {
  folder_.write("bert/config.json",
                R"({"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 40,
                    "vocab_size": 300})");
  tokenizer_ = "byte";
  learn("one", {"--labels", "label"}, {"data.any_tokenizer=true"});
  const std::vector<std::string> byte = {"--tokenizer", "byte"};
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i)
    texts.push_back(fmt::format(R"({{"text": "{}"}})", static_cast<char>('a' + (i * 7 + i / 26) % 26)));
  folder_.write("many.jsonl", fmt::format("{}\n", fmt::join(texts, "\n")));
  const auto all = predicted("one", byte, "many.jsonl");
  ASSERT_EQ(all.size(), 300u);
  EXPECT_EQ(predicted("one", byte, "many.jsonl", 2), all);
  EXPECT_NE(all[0], all[1]);
  for (const std::size_t i : {0u, 150u, 299u}) {
    folder_.write("alone.jsonl", texts[i] + "\n");
    EXPECT_EQ(predicted("one", byte, "alone.jsonl"), std::vector{all[i]}) << i;
    folder_.write("two.jsonl", lines_[6] + "\n" + texts[i] + "\n");
    EXPECT_EQ(predicted("one", byte, "two.jsonl").back(), all[i]) << i;
  }
}

// The model says for how many tokens it has positions: RoBERTa's start behind the token of padding.
TEST_F(Predict, PositionsAreTheModels) {
  folder_.write("bert/config.json",
                R"({"model_type": "roberta", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                    "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 900, "type_vocab_size": 2,
                    "pad_token_id": 9})");
  learn("one", {"--labels", "label"}, {"data.seq_len=30"});
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "out.jsonl", {"--max-length", "31"})), Exit::usage,
                   AllOf(HasSubstr("--max-length 31"), HasSubstr("positions for 30 tokens")));
  const auto all = predicted("one", {"--max-length", "30"});
  EXPECT_EQ(predicted("one"), all) << "as many as there are, if none are named";
  folder_.write("bert/config.json",
                R"({"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 24,
                    "vocab_size": 900})");
  learn("last", {"--labels", "label"}, {"data.seq_len=24"});
  EXPECT_COMPLAINT(run(asked("last", "texts.jsonl", "other.jsonl", {"--max-length", "25"})), Exit::usage,
                   HasSubstr("positions for 24 tokens"));
}

// What is done goes on where it changes no bit, and begins anew where it may.
TEST_F(Predict, GoesOnWithTheSameMathematicsAlone) {
  learn("one", {"--labels", "label"});
  folder_.write("out.jsonl.part", "");
  fs::create_hard_link(file("out.jsonl.part"), file("kept"));
  const auto all = predicted("one");
  const std::string whole = folder_.read("kept");
  const auto again = [&](const std::vector<std::string>& options) {
    folder_.write("out.jsonl.part", std::string_view(whole).substr(0, whole.size() * 2 / 3));
    const auto lines = predicted("one", options);
    return std::pair{lines, said_.find("resumes after ") != std::string::npos};
  };
  EXPECT_EQ(again({}), std::pair(all, true));
  EXPECT_EQ(again({"--set", "zero.stage=3"}), std::pair(all, true)) << "where weights lie";
  EXPECT_EQ(again({"--set", "optimizer.learning_rate=1"}), std::pair(all, true));
  EXPECT_FALSE(again({"--set", "data.order=sequential"}).second);
  EXPECT_FALSE(again({"--set", "training.precision=bf16"}).second);
  // Losses of classes are no predictions, but who gives the key means another run.
  EXPECT_FALSE(again({"--set", "training.seed=9"}).second);
  ASSERT_EQ(setenv("STRATA_CPU_ISA", "avx2", 1), 0);
  const bool avx2 = again({}).second;
  ASSERT_EQ(unsetenv("STRATA_CPU_ISA"), 0);
  EXPECT_EQ(avx2, !__builtin_cpu_supports("avx512f")) << "kernels of another instruction set round otherwise";
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "other.jsonl", {"--set", "evaluation.max_sequences=1"})),
                   Exit::usage, HasSubstr("predictions are of every text"));
}

// Of words with tags of entities, whole entities are judged too, as seqeval does.
TEST_F(Predict, EntitiesOfWordsAreJudged) {
  std::string texts;
  for (int i = 0; i < kTexts; ++i) {
    const bool inside = i % 3 == 0;
    texts += fmt::format(R"({{"words": ["the", "good", "{}", "film"], "tags": ["O", "B-A", "{}", "{}"]}})"
                         "\n",
                         inside ? "long" : "was", inside ? "I-A" : "O", i % 4 == 0 ? "B-B" : "O");
  }
  folder_.write("tags.jsonl", texts);
  tokenize("tags", {"--labels", "tags", "--field", "words"}, "tags.jsonl");
  const std::vector<std::string> words = {"training.objective=token_classification", "training.max_steps=12",
                                          "evaluation.every=6", "evaluation.metric=eval_overall_f1",
                                          "checkpoint.keep_best=true"};
  done(run(command("train", "tags", words)));
  const auto json = evaluated("tags", {"training.objective=token_classification"});
  const double f1 = json["eval_overall_f1"], p = json["eval_overall_precision"], r = json["eval_overall_recall"];
  EXPECT_NEAR(f1, p + r > 0 ? 2 * p * r / (p + r) : 0, 1e-12);
  EXPECT_NE(f1, double(json["eval_f1"]));

  // The same of what is predicted, counted here: every tag is read of its own text.
  const auto lines = predicted("tags", {"--field", "words"}, "tags.jsonl");
  std::uint64_t said = 0, there = 0, found = 0;
  for (int i = 0; i < kTexts; ++i) {
    std::vector<std::string> tags;
    for (const auto tag : parser_.parse(lines[static_cast<std::size_t>(i)])["labels"].get_array())
      tags.emplace_back(std::string_view(tag));
    const std::vector<std::string> wanted = {"O", "B-A", i % 3 == 0 ? "I-A" : "O", i % 4 == 0 ? "B-B" : "O"};
    const auto spans = [](const std::vector<std::string>& of) {
      std::vector<std::string> out;
      for (std::size_t k = 0; k < of.size(); ++k) {
        if (of[k] == "O") continue;
        const bool goes_on = of[k][0] == 'I' && k > 0 && of[k - 1] != "O" && of[k - 1].substr(2) == of[k].substr(2);
        if (goes_on)
          out.back() += fmt::format(" {}", k);
        else
          out.push_back(fmt::format("{} {}", of[k].substr(2), k));
      }
      return out;
    };
    const auto mine = spans(tags), right = spans(wanted);
    said += mine.size();
    there += right.size();
    for (const std::string& one : mine) found += std::count(right.begin(), right.end(), one);
  }
  EXPECT_GT(there, 40u);
  EXPECT_DOUBLE_EQ(f1, 2 * static_cast<double>(found) / static_cast<double>(said + there));
  auto on_two = command("eval", "tags", {"training.objective=token_classification"});
  on_two.insert(on_two.end(), {"--json", file("two.json"), "--force"});
  done(run(under_mpirun(2, on_two)));
  EXPECT_EQ(double(parser_.load(file("two.json"))["eval_overall_f1"]), f1);

  learn("words", {"--labels", "each", "--field", "words"}, {"training.objective=token_classification"});
  EXPECT_COMPLAINT(run(command("train", "words", words)), Exit::usage,
                   AllOf(HasSubstr("eval_overall_f1"), HasSubstr("which this model has not")));
}

// The head that a checkpoint lacks is drawn, and that is said; of the same seed it is the same.
TEST_F(Predict, AHeadThatTheCheckpointLacksIsDrawnAndSaid) {
  tokenize("one", {"--labels", "label"});
  done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  done(run({STRATA, "export", file("filler"), "-o", file("encoder")}));
  const auto learnt = [&](const std::string& to, const std::string& seed) {
    return done(run(command("train", "one",
                            {"model.path=" + file("encoder"), "model.init=pretrained", "checkpoint.dir=" + file(to),
                             "training.seed=" + seed})));
  };
  const std::string said = learnt("a", "3");
  EXPECT_THAT(said, AllOf(HasSubstr("encoder has no "), HasSubstr("classifier.weight"),
                          HasSubstr("drawn from training.seed = 3")));
  EXPECT_THAT(learnt("b", "4"), HasSubstr("drawn from training.seed = 4"));
  EXPECT_EQ(predicted("a").size(), static_cast<std::size_t>(kTexts));
  EXPECT_NE(predicted("a"), predicted("b"));
}

// Without --max-length nothing is cut.
TEST_F(Predict, TextsAboveThePositionsAreRefused) {
  std::string text = "good";
  for (int i = 0; i < 60; ++i) text += " film";
  folder_.write("long.jsonl", lines_[0] + "\n" + fmt::format(R"({{"text": "{}", "label": "?"}})", text) + "\n");
  tokenize("long", {"--labels", "label"}, "long.jsonl");
  EXPECT_COMPLAINT(
      run(command("train", "long")), Exit::usage,
      AllOf(HasSubstr("long.bin: document 2 has 184 tokens, above data.seq_len"), HasSubstr("--max-length")));
  EXPECT_COMPLAINT(run(command("train", "long", {"data.seq_len=200"})), Exit::usage,
                   AllOf(HasSubstr("data.seq_len is 200"), HasSubstr("positions for 40 tokens only")));
  const Outcome cut = run({STRATA, "tokenize", "--tokenizer", file("bert"), "-o", file("cut.bin"), "--labels", "label",
                           "--max-length", "40", "--truncation", "do_not_truncate", file("long.jsonl")});
  EXPECT_NE(cut.code, 0);
  EXPECT_THAT(cut.all(), AllOf(HasSubstr("long.jsonl, line 2"), HasSubstr("184 tokens"), HasSubstr("cuts nothing")));
}

}  // namespace
}  // namespace strata::tests
