// Predictions of classifiers made by the program itself: texts are tokenized, a model trains for a few steps, and
// predict runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Predict : public ClassifierCase {};

TEST_F(Predict, ATextsBytesDoNotDependOnNeighboursOrRanks) {
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
  // Results are in the order of the input, not in the order that fills sequences.
  std::vector<std::string> backward(lines_.rbegin(), lines_.rend());
  folder_.write("backward.jsonl", fmt::format("{}\n", fmt::join(backward, "\n")));
  EXPECT_EQ(predicted("one", {}, "backward.jsonl"), std::vector(all.rbegin(), all.rend()));
  EXPECT_NE(all[0], all[1]);
  // Texts may come from a pipe, as for tokenize.
  const Outcome piped = run({"sh", "-c",
                             "cat " + file("texts.jsonl") + " | " + kStrata + " predict " + file("one") + " - -o " +
                                 file("piped.jsonl") + " --set device.threads=1"});
  EXPECT_EQ(piped.code, 0) << piped.all();
  EXPECT_EQ(folder_.read("piped.jsonl"), fmt::format("{}\n", fmt::join(all, "\n")));
}

TEST_F(Predict, GivesAllLabelsFromTheThresholdUp) {
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
  // The same holds if a word has no token, or was cut off: labels stay with their words.
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

// eval and plan do the same.
TEST_F(Predict, NamesUnreadTensorsOfTheModel) {
  learn("one", {"--labels", "label"});
  const auto without = predicted("one");
  EXPECT_THAT(said_, testing::Not(HasSubstr("do not read")));
  done(run({kStrata, "export", file("one"), "-o", file("model")}));
  std::string config = folder_.read("model/config.json");
  config.insert(config.find('{') + 1, R"("chunks_of_two": 4, "auto_map": {"AutoModel": "modeling.Other"}, )");
  folder_.write("model/config.json", config);
  EXPECT_EQ(predicted("model"), without);
  EXPECT_THAT(said_, AllOf(HasSubstr("chunks_of_two"), HasSubstr("comes with its own code, which is not run")));
  (void)predicted("model", {}, "texts.jsonl", 2);
  EXPECT_EQ(said_.find("chunks_of_two"), said_.rfind("chunks_of_two")) << "once";
}

// A class name is a key of the answer, so it must be unique.
TEST_F(Predict, ClassesWithOneNameAreRefused) {
  learn("one", {"--labels", "label"});
  done(run({kStrata, "export", file("one"), "-o", file("model")}));
  EXPECT_COMPLAINT(run(asked("model", "texts.jsonl", "out.jsonl", {"--set", "model.config.id2label.1=maybe"})),
                   Exit::usage, AllOf(HasSubstr("id2label.1"), HasSubstr("as is that of class 0")));
  std::string config = folder_.read("model/config.json");
  const std::size_t at = config.find("\"no\"");
  ASSERT_NE(at, std::string::npos) << config;
  folder_.write("model/config.json", config.replace(at, 4, "\"yes\""));
  EXPECT_COMPLAINT(run(asked("model", "texts.jsonl", "out.jsonl")), Exit::corrupt,
                   AllOf(HasSubstr("config.json"), HasSubstr("is \"yes\", as is that of class")));
}

TEST_F(Predict, ReportsMistakesInOneSentence) {
  learn("one", {"--labels", "label"});
  done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("filler", "texts.jsonl", "out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("is not a classifier"), HasSubstr("masked_lm")));
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

// An adapter is used, whether it is in a checkpoint or in a peft folder.
TEST_F(Predict, RunsAdapters) {
  learn("one", {"--labels", "label"});
  done(run({kStrata, "export", file("one"), "-o", file("model")}));
  tokenize("lora", {"--labels", "label"});
  done(run(command("train", "lora", {"model.path=" + file("model"), "model.init=pretrained", "adapter.kind=lora"})));
  done(run({kStrata, "export", file("lora"), "-o", file("adapter"), "--adapter"}));
  done(run({kStrata, "export", file("lora"), "-o", file("merged")}));
  const auto plain = predicted("model"), adapted = predicted("lora"), merged = predicted("merged");
  EXPECT_NE(adapted, plain);
  EXPECT_EQ(predicted("model", {"--adapter", file("adapter")}), adapted);
  EXPECT_EQ(predicted("model", {"--set", "adapter.path=" + file("adapter")}, "texts.jsonl", 2), adapted);
  ASSERT_EQ(merged.size(), adapted.size());
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const auto of = [&](const std::string& line) { return double(parser_.parse(line)["probabilities"]["yes"]); };
    EXPECT_NEAR(of(merged[i]), of(adapted[i]), 1e-6) << i;
  }
  // The adapter names its base, so it may be given alone.
  EXPECT_EQ(predicted("adapter", {}, "texts.jsonl", 2), adapted);
  EXPECT_THAT(said_, HasSubstr("adapter is an adapter: it is read with its base model"));
  EXPECT_THAT(done(run({kStrata, "export", file("adapter"), "-o", file("alone")})), HasSubstr("merged into"));
  EXPECT_EQ(predicted("alone"), merged);
  EXPECT_COMPLAINT(run({kStrata, "export", file("adapter"), "-o", file("again"), "--adapter"}), Exit::usage,
                   HasSubstr("--adapter would write it unchanged"));
  EXPECT_COMPLAINT(run(asked("model", "texts.jsonl", "out.jsonl", {"--adapter", file("nowhere")})), Exit::usage,
                   AllOf(HasSubstr("there is no folder"), HasSubstr("nowhere")));
  const auto with_adapter = asked("model", "texts.jsonl", "out.jsonl", {"--adapter", file("adapter")});
  fs::rename(file("adapter/adapter_model.safetensors"), file("adapter/adapter_model.bin"));
  EXPECT_COMPLAINT(run(with_adapter), Exit::usage,
                   AllOf(HasSubstr("as a pickle (adapter_model.bin)"), HasSubstr("save_file(torch.load(argv[1]")));
  fs::remove(file("adapter/adapter_model.bin"));
  EXPECT_COMPLAINT(run(with_adapter), Exit::usage,
                   AllOf(HasSubstr("has no adapter_model.safetensors"), HasSubstr("download is incomplete")));
}

// peft's usual case: the base is not a classifier, and the head is in modules_to_save.
TEST_F(Predict, TheAdapterMayProvideTheHead) {
  learn("one", {"--labels", "label"});
  done(run({kStrata, "export", file("one"), "-o", file("model")}));
  tokenize("lora", {"--labels", "label"});
  done(run(command("train", "lora", {"model.path=" + file("model"), "model.init=pretrained", "adapter.kind=lora"})));
  done(run({kStrata, "export", file("lora"), "-o", file("adapter"), "--adapter"}));
  const auto adapted = predicted("lora");
  folder_.write("model/config.json", folder_.read("bert/config.json"));
  EXPECT_COMPLAINT(run(asked("model", "texts.jsonl", "out.jsonl")), Exit::usage, HasSubstr("is not a classifier"));
  const std::vector<std::string> with_adapter = {"--adapter", file("adapter")};
  std::vector<std::string> numbered = adapted;
  for (std::string& line : numbered)
    for (const auto& [name, number] :
         {std::pair{"\"maybe\"", "\"LABEL_0\""}, {"\"no\"", "\"LABEL_1\""}, {"\"yes\"", "\"LABEL_2\""}})
      for (std::size_t at = 0; (at = line.find(name)) != std::string::npos;)
        line.replace(at, std::strlen(name), number);
  EXPECT_EQ(predicted("model", with_adapter), numbered);
  EXPECT_EQ(predicted("model", with_adapter, "texts.jsonl", 2), numbered);
  EXPECT_EQ(predicted("adapter"), numbered);
  done(run({kStrata, "export", file("adapter"), "-o", file("alone")}));
  EXPECT_EQ(predicted("alone").size(), numbered.size()) << "a classifier";
  auto named = with_adapter;
  named.insert(named.end(), {"--set", R"(model.config.id2label={"0": "maybe", "1": "no", "2": "yes"})"});
  EXPECT_EQ(predicted("model", named), adapted);
  std::string config = folder_.read("adapter/adapter_config.json");
  config.replace(config.find("\"SEQ_CLS\""), 9, "null");
  folder_.write("adapter/adapter_config.json", config);
  EXPECT_COMPLAINT(
      run(asked("model", "texts.jsonl", "out.jsonl", with_adapter)), Exit::usage,
      AllOf(HasSubstr("does not say whether the adapter's classification head, base_model.model.classifier.weight"),
            HasSubstr("task_type")));
  auto objective = with_adapter;
  objective.insert(objective.end(),
                   {"--set", "training.objective=sequence_classification", "--set", "model.config.num_labels=3"});
  EXPECT_EQ(predicted("model", objective), numbered);
}

// Parameters that the adapter's base lacks (here BERT's pooler) and the run initialised are the same in every command.
TEST_F(Predict, InitialisedParametersAreTheSameInEveryCommand) {
  tokenize("fill", {"--labels", "label"});
  done(run(command("train", "fill", {"training.objective=masked_lm"})));
  done(run({kStrata, "export", file("fill"), "-o", file("filler")}));
  const std::vector<std::string> on_filler = {"model.path=" + file("filler"), "model.init=pretrained",
                                              "training.seed=7"};
  auto sets = on_filler;
  sets.emplace_back("adapter.kind=lora");
  learn("lora", {"--labels", "label"}, sets);
  EXPECT_THAT(said_, HasSubstr("has no bert.pooler.dense.weight"));
  EXPECT_THAT(done(run({kStrata, "export", file("lora"), "-o", file("adapter"), "--adapter"})),
              AllOf(HasSubstr("has no bert.pooler.dense.weight"), HasSubstr("the adapter does not hold")));
  // The adapter provides the head but not the pooler, so the note about missing parameters lists only the pooler.
  const Outcome headed = run(asked("filler", "texts.jsonl", "headed.jsonl", {"--adapter", file("adapter")}));
  EXPECT_EQ(headed.code, static_cast<int>(Exit::usage));
  EXPECT_THAT(headed.all(),
              AllOf(HasSubstr("has no bert.pooler.dense.weight, bert.pooler.dense.bias: initialised"),
                    HasSubstr("train the classifier first"), testing::Not(HasSubstr("classifier.weight"))));
  EXPECT_THAT(done(run({kStrata, "export", file("adapter"), "-o", file("alone")})),
              AllOf(HasSubstr("has bert.pooler.dense.weight, bert.pooler.dense.bias, so " + file("alone")),
                    HasSubstr("train it before use")));
  done(run({kStrata, "export", file("lora"), "-o", file("merged")}));
  const auto adapted = predicted("lora"), merged = predicted("merged");
  ASSERT_EQ(merged.size(), adapted.size());
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const auto of = [&](const std::string& line) { return double(parser_.parse(line)["probabilities"]["yes"]); };
    EXPECT_NEAR(of(merged[i]), of(adapted[i]), 1e-6) << i;
  }
  const Outcome without = run(command("eval", "lora", on_filler));
  EXPECT_EQ(without.code, static_cast<int>(Exit::usage));
  EXPECT_THAT(without.all(), AllOf(HasSubstr("is a checkpoint of an adapter"), HasSubstr("adapter.kind")));
}

TEST_F(Predict, PairsHaveTypes) {
  const std::vector<std::string> pair = {"--pair", "second"};
  learn("pair", {"--labels", "label", "--pair", "second"});
  ASSERT_TRUE(fs::exists(file("pair.bin.types")));
  const auto all = predicted("pair", pair);
  EXPECT_EQ(predicted("pair", pair, "texts.jsonl", 2), all);
  EXPECT_NE(predicted("pair", {"--pair", "text"}), all) << "the second text counts";
  const std::string bits(std::string_view(evaluated("pair")["loss_hex"]));

  // The same tokens without types are a different input.
  std::string sidecar = folder_.read("pair.bin.json");
  const std::size_t begin = sidecar.find(", \"types\"");
  ASSERT_NE(begin, std::string::npos) << sidecar;
  sidecar.erase(begin, sidecar.find('}', begin) + 1 - begin);
  folder_.write("pair.bin.json", sidecar);
  fs::remove(file("pair.bin.types"));
  EXPECT_NE(std::string_view(evaluated("pair")["loss_hex"]), bits);
}

// A classifier's checkpoints and exports record how its training read texts.
TEST_F(Predict, ReadsTextsAsInTraining) {
  learn("pair", {"--labels", "label", "--pair", "second"});
  learn("one", {"--labels", "label"});
  EXPECT_COMPLAINT(run(under_mpirun(2, asked("pair", "texts.jsonl", "out.jsonl"))), Exit::usage,
                   AllOf(HasSubstr("was trained on pairs of texts"), HasSubstr("--pair")));
  EXPECT_THAT(said_, HasSubstr("strata predict " + file("one") + " TEXTS.csv -o OUT.jsonl"));
  done(run({kStrata, "export", file("one"), "-o", file("exported")}));
  for (const std::string model : {"one", "exported"}) {
    EXPECT_COMPLAINT(run(asked(model, "texts.jsonl", "other.jsonl", {"--pair", "second"})), Exit::usage,
                     HasSubstr("was trained on single texts: leave --pair out"));
    EXPECT_COMPLAINT(
        run(asked(model, "texts.jsonl", "other.jsonl", {"--tokenizer", "byte"})), Exit::usage,
        AllOf(HasSubstr("was trained on tokens of the tokenizer bert"), HasSubstr("byte is a different one")));
    const auto all = predicted(model);
    EXPECT_EQ(predicted(model, {"--tokenizer", file("bert")}), all);
    EXPECT_NE(predicted(model, {"--tokenizer", "byte", "--set", "data.any_tokenizer=true"}), all);
  }
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "other.jsonl", {"--max-length", "41"})), Exit::usage,
                   AllOf(HasSubstr("--max-length 41"), HasSubstr("above the 40 positions of ")));
}

TEST_F(Predict, TruncatesTextsAsInTraining) {
  const std::vector<std::string> cut = {"--max-length", "18", "--truncation", "only_first"};
  std::vector<std::string> options = {"--labels", "label", "--pair", "second"};
  options.insert(options.end(), cut.begin(), cut.end());
  learn("pair", options);
  EXPECT_THAT(said_, HasSubstr("TEXTS.csv --pair second -o OUT.jsonl"));
  done(run({kStrata, "export", file("pair"), "-o", file("exported")}));
  for (const char* model : {"pair", "exported"})
    EXPECT_THAT(done(run({kStrata, "inspect", file(model)})),
                HasSubstr("predicts: 3 classes (maybe, no, yes), one per text; trained on tokens of bert, pairs of "
                          "texts, at most 18 tokens\n"));
  EXPECT_THAT(done(run({kStrata, "inspect", file("pair.bin")})),
              HasSubstr("labels: single_label_classification of 40 documents, 3 classes (maybe, no, yes), pairs of "
                        "texts, at most 18 tokens\n"));
  std::vector<std::string> as_said = {"--pair", "second"};
  const auto as_in_training = predicted("pair", as_said);
  EXPECT_THAT(said_, HasSubstr("truncated to 18 tokens"));
  EXPECT_EQ(predicted("exported", as_said), as_in_training);
  as_said.insert(as_said.end(), cut.begin(), cut.end());
  EXPECT_EQ(predicted("pair", as_said), as_in_training);
  as_said.back() = "longest_first";
  EXPECT_NE(predicted("pair", as_said), as_in_training);
  EXPECT_NE(predicted("pair", {"--pair", "second", "--max-length", "40"}), as_in_training);
  EXPECT_COMPLAINT(run(asked("pair", "texts.jsonl", "other.jsonl",
                             {"--pair", "second", "--max-length", "5", "--truncation", "do_not_truncate"})),
                   Exit::corrupt, HasSubstr("do_not_truncate cuts nothing"));
  learn("words", {"--labels", "each", "--field", "words"}, {"training.objective=token_classification"});
  EXPECT_THAT(said_, HasSubstr("TEXTS.jsonl --field words -o OUT.jsonl"));
}

// transformers gives "" the scores of [CLS] [SEP].
TEST_F(Predict, AnEmptyTextHasAResult) {
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

TEST_F(Predict, MessagesNameTheUsersFiles) {
  learn("one", {"--labels", "label"});
  const Outcome made = run(under_mpirun(2, asked("one", "texts.jsonl", "none/out.jsonl")));
  EXPECT_EQ(made.code, 0) << made.all();
  EXPECT_TRUE(fs::exists(file("none/out.jsonl"))) << "the folder is created, as export does";
  fs::create_directory(file("folder"));
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "folder", {"--force"})), Exit::usage,
                   HasSubstr("folder is a folder: give the name of a file"));
  folder_.write("nothing.jsonl", "\n");
  EXPECT_COMPLAINT(run(asked("one", "nothing.jsonl", "out.jsonl")), Exit::usage,
                   HasSubstr("nothing.jsonl holds no record"));
  EXPECT_COMPLAINT(run(asked("one", "none.jsonl", "out.jsonl")), Exit::usage, HasSubstr("none.jsonl cannot be opened"));
}

// The tokenizer's template has token types, which transformers does not pass to this family either.
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
                   AllOf(HasSubstr("tokens of two types"), HasSubstr("only one type")));
}

// If a tokenizer adds nothing, a text may have a single token, and a sequence as many texts as tokens.
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

}  // namespace
}  // namespace strata::tests
