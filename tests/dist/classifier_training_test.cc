// Classifiers as the program trains and evaluates them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ClassifierTraining : public ClassifierCase {};

// Impossible settings of a classifier are refused before its first step.
TEST_F(ClassifierTraining, ImpossibleSettingsAreRefused) {
  learn("one", {"--labels", "label"});
  const auto refused = [&](const std::vector<std::string>& sets) { return run(command("train", "one", sets)); };
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

// 28 bytes per text: its label, and two numbers for each of three classes.
TEST_F(ClassifierTraining, MemoryForScoresIsPlanned) {
  tokenize("one", {"--labels", "label"});
  // The columns of the line, first the peak, then the kinds of memory; empty if there is no such line.
  const auto row = [&](int copies, const std::string& line) {
    const std::vector<std::string> files(static_cast<std::size_t>(copies), "\"" + file("one.bin") + "\"");
    std::vector<std::string> sets = {fmt::format("data.validation=[{}]", fmt::join(files, ", "))};
    if (copies > 0) sets.emplace_back("evaluation.every=1");
    const std::string text = "\n" + done(run(command("plan", "one", sets)));
    std::vector<double> kib;
    const std::size_t at = text.find("\n" + line);
    if (at == text.npos) return kib;
    std::istringstream words(text.substr(at + 1 + line.size(), text.find('\n', at + 1) - at - 1 - line.size()));
    for (std::string number, unit; words >> number;) {
      if (number == "0") {
        kib.push_back(0);
      } else if (words >> unit) {
        kib.push_back(std::stod(number) * (unit == "MiB" ? 1024 : 1));
      }
    }
    return kib;
  };
  EXPECT_TRUE(row(0, "  evaluation").empty());
  const auto few = row(1, "  evaluation"), many = row(400, "  evaluation");
  ASSERT_EQ(few.size(), 7u);
  ASSERT_EQ(many.size(), 7u);
  constexpr double kScores = 399 * kTexts * 28 / 1024.0;
  EXPECT_NEAR(many[5] - few[5], kScores, 0.1 * kScores) << "workspace";
  EXPECT_GE(many[0], few[0] + kScores);
  EXPECT_EQ(row(400, "RAM (device)").at(0), many[0]) << "the plan's peak is that of the evaluation";
}

// A classifier of texts becomes one of words with other classes: it keeps its encoder, but not the layer of scores. The
// run resumes, and its checkpoint is a classifier of words.
TEST_F(ClassifierTraining, ANewHeadForOtherClasses) {
  learn("one", {"--labels", "label"});
  done(run({kStrata, "export", file("one"), "-o", file("bert-of-texts")}));
  tokenize("words", {"--labels", "each", "--field", "words"});
  std::vector<std::string> sets = {"model.path=" + file("bert-of-texts"), "model.init=pretrained",
                                   "training.objective=token_classification"};
  EXPECT_COMPLAINT(run(command("train", "words", sets)), Exit::usage,
                   AllOf(HasSubstr("has 3 classes (maybe, no, yes)"), HasSubstr("words.bin has 2 classes (N, O)"),
                         HasSubstr("set model.new_head = true")));
  sets.emplace_back("model.new_head=true");
  EXPECT_THAT(done(run(command("train", "words", sets))),
              HasSubstr("model.new_head = true: classifier.weight, classifier.bias: initialised from training.seed"));
  sets.emplace_back("training.max_steps=3");
  const std::string resumed = done(run(command("train", "words", sets)));
  EXPECT_THAT(resumed, AllOf(HasSubstr("resumes after step 2"), testing::Not(HasSubstr("initialised from"))));
  const auto labels = predicted("words", {"--field", "words", "--tokenizer", tokenizer_});
  ASSERT_EQ(labels.size(), static_cast<std::size_t>(kTexts));
  EXPECT_THAT(labels[0], testing::MatchesRegex(R"(\{"labels": \["[NO]".*\]\})"));
  // A checkpoint works as well, without an export.
  sets[0] = "model.path=" + file("words");
  sets.emplace_back("checkpoint.dir=" + file("other"));
  EXPECT_THAT(done(run(command("train", "words", sets))),
              HasSubstr("model.new_head = true: classifier.weight, classifier.bias: initialised from training.seed"));
  EXPECT_COMPLAINT(run(command("train", "words", {"training.objective=masked_lm", "model.new_head=true"})), Exit::usage,
                   HasSubstr("model.new_head = true applies to classifiers"));
}

// An encoder learns masked words and then classes, starting from the run's checkpoint or from its export.
TEST_F(ClassifierTraining, StartsFromACheckpointOfMaskedWords) {
  tokenize("filler", {"--no-eot", "--add-special"});
  done(run(command("train", "filler", {"training.objective=masked_lm"})));
  done(run({kStrata, "export", file("filler"), "-o", file("filled")}));
  EXPECT_THAT(folder_.read("filled/config.json"), HasSubstr("BertForMaskedLM"));
  tokenize("one", {"--labels", "label"});
  for (const std::string model : {"filler", "filled"})
    EXPECT_THAT(done(run(command(
                    "train", "one",
                    {"model.path=" + file(model), "model.init=pretrained", "checkpoint.dir=" + file("of-" + model)}))),
                AllOf(HasSubstr("has no bert.pooler"), HasSubstr("classifier.weight"), HasSubstr("initialised from"),
                      HasSubstr("also has cls.predictions.transform.dense")));
  // The tokenizer is that of the directory from which the run of masked words started.
  EXPECT_EQ(predicted("of-filler"), predicted("of-filled", {"--tokenizer", tokenizer_}));
  const Outcome wider = run(command("train", "one",
                                    {"model.path=" + file("filler"), "model.init=pretrained",
                                     "model.config.intermediate_size=64", "checkpoint.dir=" + file("wider")}));
  EXPECT_EQ(wider.code, static_cast<int>(Exit::usage));
  EXPECT_THAT(wider.errors, AllOf(HasSubstr("is another model's checkpoint: its bert.encoder"),
                                  HasSubstr("but this model's is [64")));
}

// The start reports data that the objective ignores or misses.
TEST_F(ClassifierTraining, ReportsDataThatAnObjectiveIgnoresOrMisses) {
  tokenize("one", {"--labels", "label"});
  EXPECT_COMPLAINT(run({kStrata, "train", "--set", "model.path=" + file("bert"), "--set", "model.init=random", "--set",
                        "data.train=" + file("one.bin"), "--set", "training.max_steps=2", "--set", "data.seq_len=40"}),
                   Exit::usage,
                   AllOf(HasSubstr("one.bin has labels"), HasSubstr("the recipe has no training.objective")));
  const std::string masked =
      done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  EXPECT_THAT(masked,
              AllOf(HasSubstr("ignoring the labels in "), HasSubstr("one.bin: training.objective is \"masked_lm\""),
                    HasSubstr("set it to \"sequence_classification\"")));
  EXPECT_THAT(masked, testing::Not(HasSubstr("begins with a token of text")));
  tokenize("bare", {"--no-eot"});
  const std::string bare =
      done(run(command("train", "bare", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler2")})));
  EXPECT_THAT(bare, AllOf(HasSubstr("bare.bin begins with a token of text"), HasSubstr("--add-special")));
  EXPECT_THAT(bare, testing::Not(HasSubstr("ignoring")));
  tokenize("special", {"--no-eot", "--add-special"});
  EXPECT_THAT(
      done(run(command("train", "special", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler3")}))),
      testing::Not(HasSubstr("begins with a token of text")));
}

// A piece of a cut text has other labels around it, so a note accompanies the metric.
TEST_F(ClassifierTraining, AnEvaluationReportsTruncatedTexts) {
  tokenize("words", {"--labels", "each", "--field", "words"});
  const std::vector<std::string> words = {"training.objective=token_classification"};
  done(run(command("train", "words", words)));
  const auto eval = [&](const std::string& seq_len, const std::string& what) {
    auto sets = words;
    sets.insert(sets.end(), {"model.path=" + file("words"), "model.init=pretrained", "data.seq_len=" + seq_len,
                             "data.long=" + what});
    return done(run(command("eval", "words", sets)));
  };
  EXPECT_THAT(eval("40", "cut"), testing::Not(HasSubstr("data.long")));
  EXPECT_THAT(eval("6", "cut"), HasSubstr("evaluations cut 38 of 40 documents of data.validation, which are above "
                                          "data.seq_len = 6 (data.long = \"cut\")"));
  EXPECT_THAT(eval("6", "drop"), HasSubstr("evaluations leave out 38 of 40 documents"));
}

// A weighted loss is the mean over texts of their class's weight times -ln of its probability.
TEST_F(ClassifierTraining, ClassWeightsMultiplyTheLossOfTheirClass) {
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
  // Losses and scores of texts are fp32, and probabilities come from scores: 1e-6 is a few units in their last place.
  EXPECT_NEAR(double(evaluated("one")["loss"]), plain, 1e-6);
  const std::string bits(std::string_view(evaluated("one")["loss_hex"]));
  EXPECT_EQ(std::string_view(evaluated("one", {"training.class_weights=[1, 1, 1]"})["loss_hex"]), bits);
  EXPECT_NEAR(double(evaluated("one", {"training.class_weights=[2, 0.5, 1]"})["loss"]), weighted, 1e-6);
  EXPECT_GT(std::abs(weighted - plain), 1e-2);
  EXPECT_COMPLAINT(run(command("train", "one", {"training.class_weights=[1, 2]"})), Exit::usage,
                   AllOf(HasSubstr("training.class_weights has 2 numbers"), HasSubstr("3 classes")));

  // Training weights losses in the same way, on any number of ranks.
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
  const std::string unweighted = trained(1, {}), other = trained(1, {"training.class_weights=[2, 0.5, 1]"});
  EXPECT_EQ(trained(1, {"training.class_weights=[1, 1, 1]"}), unweighted);
  EXPECT_NE(other, unweighted);
  EXPECT_EQ(trained(2, {"training.class_weights=[2, 0.5, 1]"}), other);
}

TEST_F(ClassifierTraining, AMissingCurveIsReportedWithItsReason) {
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

  // As the metric for the best checkpoint, it is refused before the first step.
  for (const std::string when : {"evaluation.every=1", "evaluation.at_start=true"})
    EXPECT_COMPLAINT(
        run(command("train", "one",
                    {"data.validation=" + file("no.bin"), when, "evaluation.metric=eval_roc_auc",
                     "checkpoint.dir=" + file("never")})),
        Exit::usage,
        AllOf(HasSubstr("eval_roc_auc"), HasSubstr("nothing of data.validation belongs to the class maybe")));
  EXPECT_FALSE(fs::exists(file("never")));
  const Outcome trained = run(command(
      "train", "one", {"data.validation=" + file("no.bin"), "evaluation.every=1", "checkpoint.dir=" + file("again")}));
  const std::string said = done(trained);
  const std::size_t first = said.find("eval_roc_auc is not computed");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("eval_roc_auc is not computed", first + 1), std::string::npos) << "once per run: " << said;
}

// Each text's label comes from its own file.
TEST_F(ClassifierTraining, SeveralFilesActLikeOneFile) {
  const auto half = [](auto begin, auto end) { return fmt::format("{}\n", fmt::join(begin, end, "\n")); };
  folder_.write("a.jsonl", half(lines_.begin(), lines_.begin() + kTexts / 2));
  folder_.write("b.jsonl", half(lines_.begin() + kTexts / 2, lines_.end()));
  for (const std::string name : {"a", "b"}) tokenize(name, {"--labels", "label"}, name + ".jsonl");
  tokenize("one", {"--labels", "label"});
  const auto bits = [&](const std::string& files) {
    (void)done(run(command("train", "one",
                           {"data.train=" + files, "checkpoint.resume=none", "report.summary=" + file("summary.json"),
                            "training.max_steps=4"})));
    const std::string summary = folder_.read("summary.json");
    std::filesystem::remove(file("summary.json"));
    return summary.substr(summary.find("\"weights_hash\""), 40);
  };
  EXPECT_EQ(bits(fmt::format("[\"{}\", \"{}\"]", file("a.bin"), file("b.bin"))), bits(file("one.bin")));
}

// This is refused before weights are read or a micro-batch is computed.
TEST_F(ClassifierTraining, EvaluationsOfDataWithoutLabelsAreRefusedAtTheStart) {
  learn("one", {"--labels", "label"});
  tokenize("bare", {"--no-eot"});
  const Outcome outcome = run(command("eval", "one", {"data.validation=" + file("bare.bin")}));
  EXPECT_COMPLAINT(outcome, Exit::usage, AllOf(HasSubstr("bare.bin has no labels"), HasSubstr("--labels FIELD")));
  EXPECT_THAT(outcome.all(), testing::Not(HasSubstr("weights of")));
}

TEST_F(ClassifierTraining, ACorrelationWithOneLabelIsRefusedBeforeTheFirstStep) {
  std::string scored, constant;
  for (int i = 0; i < 8; ++i) {
    scored += fmt::format("{{\"text\": \"good film\", \"score\": {}.5}}\n", i % 3);
    constant += "{\"text\": \"good film\", \"score\": 1.5}\n";
  }
  folder_.write("scored.jsonl", scored);
  folder_.write("constant.jsonl", constant);
  tokenize("scored", {"--labels", "score"}, "scored.jsonl");
  tokenize("constant", {"--labels", "score"}, "constant.jsonl");
  const std::vector<std::string> metric = {"evaluation.every=1", "evaluation.metric=eval_pearson"};
  EXPECT_COMPLAINT(run(command("train", "scored", {metric[0], metric[1], "data.validation=" + file("constant.bin")})),
                   Exit::usage,
                   AllOf(HasSubstr("eval_pearson"), HasSubstr("all labels of data.validation are the same")));
  (void)done(run(command("train", "scored", metric)));
}

// If words have entity tags, entities are evaluated too, as in seqeval.
TEST_F(ClassifierTraining, EntitiesAreEvaluated) {
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

  // The predictions give the same counts, because each tag belongs to its own text.
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
                   AllOf(HasSubstr("eval_overall_f1"), HasSubstr("is not available with training.objective")));
}

// A head that a checkpoint lacks is initialised at random, with a note; the same seed gives the same head.
TEST_F(ClassifierTraining, AMissingHeadIsInitialisedAndReported) {
  tokenize("one", {"--labels", "label"});
  done(run(command("train", "one", {"training.objective=masked_lm", "checkpoint.dir=" + file("filler")})));
  done(run({kStrata, "export", file("filler"), "-o", file("encoder")}));
  const auto learnt = [&](const std::string& to, const std::string& seed) {
    return done(run(command("train", "one",
                            {"model.path=" + file("encoder"), "model.init=pretrained", "checkpoint.dir=" + file(to),
                             "training.seed=" + seed})));
  };
  const std::string said = learnt("a", "3");
  EXPECT_THAT(said, AllOf(HasSubstr("encoder has no "), HasSubstr("classifier.weight"),
                          HasSubstr("initialised from training.seed = 3")));
  EXPECT_THAT(learnt("b", "4"), HasSubstr("initialised from training.seed = 4"));
  EXPECT_EQ(predicted("a").size(), static_cast<std::size_t>(kTexts));
  EXPECT_NE(predicted("a"), predicted("b"));
}

}  // namespace
}  // namespace strata::tests
