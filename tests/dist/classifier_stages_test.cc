// Classifiers that are trained in pipeline stages have evaluations with the metrics of a single stage, bit for bit.
#include <gmock/gmock.h>

#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

class ClassifierStages : public ClassifierCase {
 protected:
  // The metrics of all evaluations of a training run, and its report on the best one.
  std::string metrics(const std::string& name, int ranks, int stages, std::vector<std::string> sets) {
    sets.insert(sets.end(), {"training.max_steps=4", "training.global_batch_size=4", "evaluation.every=2",
                             "evaluation.at_start=true", "checkpoint.keep_best=true", "checkpoint.resume=none",
                             "report.jsonl=" + file("lines.jsonl"), fmt::format("parallel.stages={}", stages)});
    std::filesystem::remove(file("lines.jsonl"));
    std::filesystem::remove_all(file(name));
    const auto all = command("train", name, sets);
    const std::string said = done(run(ranks > 1 ? under_mpirun(ranks, all) : all));
    std::string out;
    for (const auto line : parser_.load_many(file("lines.jsonl")))
      for (const auto field : line.get_object())
        if (field.key.starts_with("eval_") && !field.key.ends_with("_per_s"))
          out += fmt::format("{} {}\n", field.key, simdjson::minify(field.value));
    for (const std::string_view best : {"the best so far", "the best is"})
      for (std::size_t at = 0; (at = said.find(best, at)) != said.npos; ++at)
        out += said.substr(at, said.find('\n', at) - at) + "\n";
    return out;
  }
};

// Cases: texts of one class, with curves; words, whose entities are counted by the ranks with their scores; numbers.
TEST_F(ClassifierStages, EvaluationsHaveTheMetricsOfOneStage) {
  tokenize("one", {"--labels", "label"});
  tokenize("words", {"--labels", "each", "--field", "words"});
  std::string scored;
  for (int i = 0; i < 9; ++i) scored += fmt::format("{{\"text\": \"good film\", \"score\": {}.5}}\n", i % 4);
  folder_.write("scored.jsonl", scored);
  tokenize("scored", {"--labels", "score"}, "scored.jsonl");
  const std::vector<std::string> words = {"training.objective=token_classification"};
  const std::tuple<std::string, std::string, std::vector<std::string>> cases[] = {
      {"one", "eval_roc_auc", {"evaluation.metric=eval_roc_auc"}},
      {"words", "eval_f1", words},
      {"scored", "eval_mse", {}}};
  for (const auto& [name, metric, sets] : cases) {
    SCOPED_TRACE(name);
    const std::string alone = metrics(name, 1, 1, sets);
    EXPECT_THAT(alone, testing::HasSubstr(metric + " ")) << alone;
    EXPECT_EQ(metrics(name, 2, 2, sets), alone);
    auto sharded = sets;
    sharded.insert(sharded.end(), {"zero.stage=2", "comm.transport=messages"});
    EXPECT_EQ(metrics(name, 4, 2, sharded), alone);
  }
}

}  // namespace
}  // namespace strata::tests
