// Compares small fp32 runs with PyTorch and transformers (made by the reference script; each folder holds the model
// before step 1, tokens, recipe, every step's loss and gradient norm, and the weights after the last step).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <cmath>
#include <optional>

#include "models/files/safetensors.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "tests/runtime/training.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

// Sums are in another order. The bounds are those of the reference's own comparison, but ten times the update's for
// biases, because the true gradient of a key bias is zero.
constexpr double kLoss = 2e-5, kNorm = 20 * 2e-5, kRate = 1e-6, kUpdate = 1e-3;

class Golden : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  static void agree(int shards, int stages = 1, int tensor = 1);
};

double relative(double got, double want) {
  return std::abs(got - want) / std::max(std::abs(want), 1e-12);
}

void Golden::agree(int shards, int stages, int tensor) {
  const auto [family, ranks, stage] = GetParam();
  const std::filesystem::path folder = tests::source_dir() / "tests/golden" / family;
  const std::vector<std::string> in_shards = {fmt::format("parallel.tensor_shards={}", shards),
                                              fmt::format("parallel.tensor={}", tensor)};
  // Indexed by place among the ranks that share a layer, then by unit.
  std::vector<std::vector<std::vector<float>>> of_ranks(static_cast<std::size_t>(tensor));
  std::mutex mutex;
  const Trained trained = train_in_threads(
      folder / "recipe.toml",
      {fmt::format("training.gradient_accumulation_steps={}", 4 * stages * tensor / ranks),
       fmt::format("parallel.stages={}", stages), fmt::format("zero.stage={}", stage), in_shards[0], in_shards[1]},
      ranks, [&](Trainer& trainer, const Job& job, int rank) {
        const std::lock_guard lock(mutex);
        auto& final_weights = of_ranks[static_cast<std::size_t>(job.plan.mesh().at(rank).tensor)];
        final_weights.resize(job.plan.layout.units.size());
        for (std::size_t unit = 0; unit < final_weights.size(); ++unit) {
          if (!job.plan.own.has(static_cast<int>(unit))) continue;
          final_weights[unit].resize(job.plan.layout.units[unit].padded());
          const Executor& executor = trainer.executor();
          const auto [begin, end] = executor.storage().held(unit, StateKind::master);
          executor.storage().read_state(
              unit, StateKind::master, 0,
              std::as_writable_bytes(std::span(final_weights[unit]).subspan(begin, end - begin)));
        }
      });

  simdjson::dom::parser parser;
  const simdjson::dom::array steps = parser.load((folder / "expected.json").string())["steps"];
  ASSERT_EQ(trained.steps.size(), steps.size());
  std::size_t i = 0;
  for (const simdjson::dom::element want : steps) {
    const StepReport& got = trained.steps[i++];
    EXPECT_LE(relative(got.loss, want["loss"]), kLoss) << "step " << i;
    EXPECT_LE(relative(got.grad_norm, want["grad_norm"]), kNorm) << "step " << i;
    EXPECT_LE(relative(got.learning_rate, want["lr"]), kRate) << "step " << i;
  }

  const Recipe recipe = load_recipe(folder / "recipe.toml", in_shards);
  const auto start = models::Safetensors::open(*recipe.model.path),
             end = models::Safetensors::open(folder / "final.safetensors");
  std::optional<models::Safetensors> adapter;
  if (recipe.adapter.path) adapter = models::Safetensors::open(*recipe.adapter.path / kPeftWeightsName);
  std::vector<Job> jobs;
  for (int rank = 0; rank < tensor; ++rank)
    jobs.push_back(make_job(open_workload(recipe), tensor, capacity_of(recipe.memory, 1), Purpose::train, {}, rank));
  for (std::size_t unit = 0; unit < jobs[0].model->units.size(); ++unit)
    for (std::size_t index = 0; index < jobs[0].model->units[unit]->parameters().size(); ++index) {
      const models::Parameter& p = jobs[0].model->units[unit]->parameters()[index];
      if (!p.trained()) continue;
      const models::StoredTensor* before = adapter ? adapter->find(kPeftPrefix + p.name) : start.find(p.name);
      const models::StoredTensor* after = end.find(p.name);
      ASSERT_TRUE(before && after) << p.name;
      std::vector<float> from(p.size()), to(p.size());
      models::read_elements(*before, 0, from);
      models::read_elements(*after, 0, to);
      double difference = 0, update = 0;
      std::size_t seen = 0;
      for (std::size_t rank = 0; rank < jobs.size() && seen < p.size(); ++rank) {
        const models::Parameter& own = jobs[rank].model->units[unit]->parameters()[index];
        for (std::size_t piece = 0; piece < own.pieces(); ++piece)
          for (std::size_t k = 0; k < own.piece_size(piece); ++k, ++seen) {
            const std::size_t whole = own.piece(piece).full_index(k);
            difference += std::pow(double{of_ranks[rank][unit][own.offset_of(piece) + k]} - to[whole], 2);
            update += std::pow(double{to[whole]} - from[whole], 2);
          }
      }
      EXPECT_EQ(seen, p.size()) << p.name;
      // If all rows see the same keys, a key bias changes no probability. Its gradient is 0, and from its rounding Adam
      // makes updates up to the learning rate.
      if (p.name.ends_with("key.bias") || p.name.ends_with("k_lin.bias")) continue;
      const double bound = kUpdate * (p.name.ends_with("bias") ? 10 : 1);
      EXPECT_LE(std::sqrt(difference), bound * std::sqrt(update)) << p.name;
    }
}

TEST_P(Golden, AgreesWithPyTorch) {
  agree(1);
}

class GoldenInShards : public Golden {};
TEST_P(GoldenInShards, AgreesWithPyTorch) {
  agree(2);
}

class GoldenOverRanks : public Golden {};
TEST_P(GoldenOverRanks, AgreesWithPyTorch) {
  agree(2, 1, 2);
}

class GoldenInStages : public Golden {};
TEST_P(GoldenInStages, AgreesWithPyTorch) {
  agree(1, 2);
}

std::string name_of_run(const ::testing::TestParamInfo<std::tuple<const char*, int, int>>& each) {
  std::string folder = std::get<0>(each.param);
  std::ranges::replace(folder, '/', '_');
  return fmt::format("{}_{}_ranks_stage_{}", folder, std::get<1>(each.param), std::get<2>(each.param));
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Combine(testing::Values("gpt2", "llama", "qwen2", "qwen3", "mistral", "bert",
                                                          "roberta", "distilbert", "modernbert"),
                                          testing::Values(1, 2, 4), testing::Values(0, 3)),
                         name_of_run);
// These families have heads that two virtual shards divide.
INSTANTIATE_TEST_SUITE_P(Families, GoldenInShards,
                         testing::Combine(testing::Values("llama", "adapters/llama_head", "adapters/llama_head_dora",
                                                          "qwen3", "bert", "roberta", "distilbert", "modernbert"),
                                          testing::Values(1, 2), testing::Values(0, 3)),
                         name_of_run);
// Two ranks of each layer, with one data rank and two.
INSTANTIATE_TEST_SUITE_P(Families, GoldenOverRanks,
                         testing::Combine(testing::Values("llama", "adapters/llama_head", "adapters/llama_head_dora",
                                                          "qwen3", "bert", "roberta", "distilbert", "modernbert"),
                                          testing::Values(2, 4), testing::Values(0, 3)),
                         name_of_run);
// Two pipeline stages, with one data rank and with two.
INSTANTIATE_TEST_SUITE_P(
    Models, GoldenInStages,
    testing::Combine(testing::Values("gpt2", "llama", "qwen2", "qwen3", "mistral", "bert", "roberta", "distilbert",
                                     "modernbert", "frozen/llama", "adapters/llama", "adapters/llama_head",
                                     "adapters/llama_head_dora", "adapters/gpt2_dora", "nf4/llama", "nf4/gpt2",
                                     "class_runs/bert_pairs", "class_runs/modernbert_words"),
                     testing::Values(2, 4), testing::Values(0, 3)),
    name_of_run);
// Single layers have windows, and YaRN stretches positions, over sequences longer than both.
INSTANTIATE_TEST_SUITE_P(Long, Golden,
                         testing::Combine(testing::Values("long/qwen2_windows", "long/qwen3_windows",
                                                          "long/mistral_windows", "long/qwen2_yarn", "long/llama_yarn"),
                                          testing::Values(1, 2), testing::Values(0, 3)),
                         name_of_run);
// Runs in which some tensors are frozen (requires_grad = False in PyTorch).
INSTANTIATE_TEST_SUITE_P(Frozen, Golden,
                         testing::Combine(testing::Values("frozen/gpt2", "frozen/llama"), testing::Values(1, 2),
                                          testing::Values(0, 3)),
                         name_of_run);
// Adapters as peft trains them, read from peft's folders.
INSTANTIATE_TEST_SUITE_P(Adapters, Golden,
                         testing::Combine(testing::Values("adapters/gpt2", "adapters/llama", "adapters/llama_head",
                                                          "adapters/llama_head_dora", "adapters/qwen3",
                                                          "adapters/gpt2_dora", "adapters/llama_dora",
                                                          "adapters/bert_pairs", "adapters/modernbert_words"),
                                          testing::Values(1, 2), testing::Values(0, 3)),
                         name_of_run);
// Models that bitsandbytes quantised. transformers trains everything except the quantised matrices.
INSTANTIATE_TEST_SUITE_P(Quantised, Golden,
                         testing::Combine(testing::Values("nf4/llama", "nf4/gpt2"), testing::Values(1, 2, 4),
                                          testing::Values(0, 3)),
                         name_of_run);
// Classifiers of documents, of words, and of pairs of texts.
INSTANTIATE_TEST_SUITE_P(
    Classes, Golden,
    testing::Combine(testing::Values("class_runs/bert_pairs", "class_runs/bert_words", "class_runs/roberta_multi",
                                     "class_runs/distilbert_regression", "class_runs/modernbert_first",
                                     "class_runs/modernbert_mean", "class_runs/modernbert_words"),
                     testing::Values(1, 2), testing::Values(0, 3)),
    name_of_run);

}  // namespace
}  // namespace strata::runtime
