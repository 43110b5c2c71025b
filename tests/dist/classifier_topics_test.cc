// Classifiers with more classes than a label has bits.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ClassifierTopics : public ClassifierCase {};

// There are ninety topics, any number of them per text. Loss and metrics agree with the predictions for each text, and
// the bits do not depend on the number of ranks or files.
TEST_F(ClassifierTopics, TextsHaveAnyNumberOfNinety) {
  constexpr int kTopics = 90;
  const auto topics = [](int text) {
    std::vector<std::string> out;
    for (int c = text % 30; c < kTopics; c += 1 + text * 7) out.push_back(fmt::format("\"t{:02}\"", c));
    return out;
  };
  std::vector<std::string> halves(2);
  for (int i = 0; i < kTexts; ++i)
    halves[i < kTexts / 2 ? 0 : 1] += fmt::format("{{\"text\": \"{} film\", \"topics\": [{}]}}\n",
                                                  i % 2 == 0 ? "good" : "very long", fmt::join(topics(i), ", "));
  folder_.write("a.jsonl", halves[0]);
  folder_.write("b.jsonl", halves[1]);
  folder_.write("many.jsonl", halves[0] + halves[1]);
  for (const std::string name : {"a", "b", "many"}) tokenize(name, {"--labels", "topics"}, name + ".jsonl");
  const auto trained = [&](int ranks, const std::string& files) {
    fs::remove(file("summary"));
    fs::remove_all(file("many"));
    const auto all = command(
        "train", "many",
        {"data.train=" + files, "training.max_steps=8", "training.micro_batch_size=2", "training.global_batch_size=4",
         "evaluation.every=4", "evaluation.metric=eval_f1_micro", "report.summary=" + file("summary")});
    done(run(ranks > 1 ? under_mpirun(ranks, all) : all));
    return std::string(std::string_view(parser_.load(file("summary"))["weights_hash"]));
  };
  const std::string alone = trained(1, file("many.bin"));
  EXPECT_EQ(trained(2, file("many.bin")), alone);
  EXPECT_EQ(trained(1, fmt::format("[\"{}\", \"{}\"]", file("a.bin"), file("b.bin"))), alone);

  done(run({kStrata, "export", file("many"), "-o", file("export")}));
  EXPECT_THAT(folder_.read("export/config.json"),
              AllOf(HasSubstr("\"problem_type\": \"multi_label_classification\""), HasSubstr("\"89\": \"t89\"")));
  const auto lines = predicted("export", {"--threshold", "0.5"}, "many.jsonl");
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kTexts));
  double loss = 0, there = 0, said = 0, found = 0, of_all = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string& line = lines[static_cast<std::size_t>(i)];
    const auto wanted = topics(i);
    there += static_cast<double>(wanted.size());
    bool right = true;
    for (int c = 0; c < kTopics; ++c) {
      const std::string name = fmt::format("t{:02}", c);
      const bool is = std::find(wanted.begin(), wanted.end(), "\"" + name + "\"") != wanted.end();
      const double p = parser_.parse(line)["probabilities"][name];
      loss -= std::log(is ? p : 1 - p) / kTopics / kTexts;
      said += p >= 0.5 ? 1 : 0;
      found += is && p >= 0.5 ? 1 : 0;
      right = right && is == (p >= 0.5);
    }
    of_all += right ? 1.0 / kTexts : 0;
  }
  const auto json = evaluated("many", {"model.path=" + file("export"), "model.init=pretrained"});
  EXPECT_NEAR(double(json["loss"]), loss, 1e-6);
  EXPECT_EQ(double(json["eval_f1_micro"]), 2 * found / (there + said));
  EXPECT_NEAR(double(json["eval_accuracy"]), of_all, 1e-12);
  EXPECT_GT(double(json["eval_roc_auc"]), 0.0);
}

}  // namespace
}  // namespace strata::tests
