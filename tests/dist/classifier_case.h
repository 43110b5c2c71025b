#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/dist/tiny_run.h"
#include "tests/source_dir.h"

namespace strata::tests {

// Texts with one class, with several classes, or with a class per word, and a small BERT that trains on one kind for
// two steps.
class ClassifierCase : public testing::Test {
 protected:
  static constexpr int kTexts = 40;
  ClassifierCase() {
    folder_.write("bert/config.json",
                  R"({"model_type": "bert", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                      "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 900, "type_vocab_size": 2})");
    std::filesystem::copy(source_dir() / "tests/golden/tokenizers/bert/tokenizer.json",
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

  // Tokenizes the texts into NAME.bin.
  void tokenize(const std::string& name, std::vector<std::string> options, const std::string& texts = "texts.jsonl") {
    std::vector<std::string> command = {kStrata, "tokenize", "--tokenizer", tokenizer_, "-o", file(name + ".bin")};
    command.insert(command.end(), options.begin(), options.end());
    command.push_back(file(texts));
    done(run(command));
  }
  std::vector<std::string> command(const std::string& verb, const std::string& name,
                                   const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {kStrata, verb};
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
    return outcome.output + outcome.errors;
  }
  std::vector<std::string> asked(const std::string& model, const std::string& texts, const std::string& out,
                                 const std::vector<std::string>& options = {}) const {
    std::vector<std::string> all = {kStrata, "predict", file(model), file(texts),
                                    "-o",    file(out), "--set",     "device.threads=1"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  // The lines that predict writes for the texts.
  std::vector<std::string> predicted(const std::string& model, const std::vector<std::string>& options = {},
                                     const std::string& texts = "texts.jsonl", int ranks = 1) {
    const auto all = asked(model, texts, "out.jsonl", options);
    std::filesystem::remove(file("out.jsonl"));
    said_ = done(run(ranks > 1 ? under_mpirun(ranks, all) : all));
    for (const char* ending : {".part", ".tokens", ".tokens.json", ".tokens.types", ".tokens.documents"})
      EXPECT_FALSE(std::filesystem::exists(file("out.jsonl") + ending)) << ending;
    std::vector<std::string> out;
    const std::string all_lines = folder_.read("out.jsonl");
    for (std::size_t begin = 0; begin < all_lines.size();) {
      const std::size_t end = all_lines.find('\n', begin);
      out.push_back(all_lines.substr(begin, end - begin));
      begin = end + 1;
    }
    return out;
  }
  // The report of strata eval --json.
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

}  // namespace strata::tests
