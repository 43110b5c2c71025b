// Compares packed conversations with masks in fp32 with transformers: the loss of a step over all of them, and every
// gradient. tests/golden/make_packed.py describes the folders.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/open_data.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/models/reference.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/training.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

const std::filesystem::path kGolden = tests::source_dir() / "tests/golden";

// The order of sums differs from PyTorch's. Through two blocks, that makes some 1e-6 of a gradient's norm.
constexpr double kPackedLoss = 1e-6, kGradient = 1e-5;

class PackedGolden : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  // The token file of the conversations, as tokenize would write it.
  std::string conversations() const {
    simdjson::dom::parser parser;
    std::vector<std::uint16_t> tokens;
    std::vector<std::uint64_t> begins;
    std::string mask;
    for (const simdjson::dom::element one : parser.load((kGolden / "chat/ids.json").string())) {
      if (std::string_view(one["tokenizer"]) != "qwen2") continue;
      begins.push_back(tokens.size());
      for (const std::int64_t id : one["ids"].get_array()) tokens.push_back(static_cast<std::uint16_t>(id));
      mask += std::string_view(one["mask"]);
    }
    EXPECT_EQ(mask.size(), tokens.size());
    return folder_.write("chats.bin", tokens, begins, mask).string();
  }
  tests::TokenFolder folder_{1024};
};

TEST_P(PackedGolden, MatchesTransformers) {
  const auto [family, ranks, stage] = GetParam();
  const std::filesystem::path golden = kGolden / "packed" / family;
  std::vector<std::vector<float>> gradients;
  std::mutex mutex;
  // With momentum, the first moment after the first step is the gradient.
  const std::vector<std::string> sets = {"model.path=" + (golden / "model").string(),
                                         "data.train=" + conversations(),
                                         "data.seq_len=128",
                                         "data.order=sequential",
                                         "training.max_steps=1",
                                         fmt::format("training.gradient_accumulation_steps={}", 3 / ranks),
                                         "training.precision=fp32",
                                         "training.max_grad_norm=0",
                                         "optimizer.name=sgd",
                                         "optimizer.weight_decay=0",
                                         fmt::format("zero.stage={}", stage)};
  Workload resolved = open_workload(load_recipe(std::nullopt, sets));
  resolve_data(resolved.recipe, resolved.data, false, {});
  ASSERT_EQ(resolved.packing(), Packing::documents) << "a mask implies documents";
  const Trained trained = train_in_threads(std::nullopt, sets, ranks, [&](Trainer& trainer, const Job& job, int) {
    const std::lock_guard lock(mutex);
    gradients.resize(job.plan.layout.units.size());
    for (std::size_t unit = 0; unit < gradients.size(); ++unit) {
      gradients[unit].resize(job.plan.layout.units[unit].padded());
      const Storage& storage = trainer.executor().storage();
      const auto [begin, end] = storage.held(unit, StateKind::moment1);
      storage.read_state(unit, StateKind::moment1, 0,
                         std::as_writable_bytes(std::span(gradients[unit]).subspan(begin, end - begin)));
    }
  });

  const auto expected = models::Safetensors::open(golden / "expected.safetensors");
  const auto recorded = [&](const std::string& name) {
    const models::StoredTensor* tensor = expected.find(name);
    std::vector<float> values(tensor ? tensor->elements() : 0);
    if (tensor) models::read_elements(*tensor, 0, values);
    return models::testing::Doubles(values.begin(), values.end());
  };
  ASSERT_EQ(trained.steps.size(), 1u);
  const double loss = recorded("loss").at(0);
  EXPECT_NEAR(trained.steps[0].loss, loss, kPackedLoss * loss);

  const Job job = make_job(resolved, 1, capacity_of(resolved.recipe.memory, 1));
  std::size_t seen = 1;  // the loss
  for (std::size_t unit = 0; unit < job.model->units.size(); ++unit)
    for (const models::Parameter& p : job.model->units[unit]->parameters()) {
      const models::testing::Doubles want = recorded("gradient of " + p.name);
      ASSERT_EQ(want.size(), p.size()) << p.name;
      ++seen;
      const auto from = gradients[unit].begin() + static_cast<std::ptrdiff_t>(p.offset);
      const models::testing::Doubles got(from, from + static_cast<std::ptrdiff_t>(p.size()));
      EXPECT_GT(models::testing::norm_of(want), 0) << p.name;
      EXPECT_LT(models::testing::relative_error(got, want), kGradient) << p.name;
    }
  EXPECT_EQ(seen, expected.tensors().size()) << "a parameter of transformers' that the model lacks";
}

INSTANTIATE_TEST_SUITE_P(Families, PackedGolden,
                         testing::Combine(testing::Values("gpt2", "llama", "qwen2", "mistral"), testing::Values(1, 3),
                                          testing::Values(0, 3)),
                         [](const auto& each) {
                           return fmt::format("{}_{}_ranks_stage_{}", std::get<0>(each.param), std::get<1>(each.param),
                                              std::get<2>(each.param));
                         });

}  // namespace
}  // namespace strata::runtime
