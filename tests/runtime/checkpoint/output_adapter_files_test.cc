// Files of an adapter of the output layer: checkpoints, peft's folder, which may hold the layer's own matrix, and the
// merged model.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "runtime/weights/weights.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class OutputAdapterFiles : public testing::Test {
 protected:
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"model.config.tie_word_embeddings=false", "training.precision=fp32",
                                    "optimizer.learning_rate=1e-2"};
    all.insert(all.end(), more.begin(), more.end());
    return saved_.sets(ranks, all);
  }
  std::filesystem::path place(const char* name) const { return saved_.folder().path() / name; }
  // Two steps that begin with peft's folder.
  SavedRun::Result begin(int ranks = 1) const {
    return saved_.run(ranks, sets(ranks, {"adapter.path=" + place("peft").string(), "checkpoint.resume=none"}), 2);
  }
  // Adds to peft's file what peft saves: the output layer's own matrix, here rounded, and with one element changed.
  void add_matrix(device::DType dtype, const std::string& name, device::DType rounding = device::DType::fp32,
                  float change = 0) const {
    const std::filesystem::path path = place("peft") / kPeftWeightsName;
    const Recipe recipe = load_recipe(std::nullopt, sets(1, {}));
    const Job job = make_job(open_workload(recipe), 1, capacity_of({}, 1));
    const std::size_t head = job.model->units.size() - 1;
    const auto parameters = job.model->units[head]->parameters();
    const auto matrix = std::ranges::find(parameters, "lm_head.weight", &models::Parameter::name);
    ASSERT_NE(matrix, parameters.end());
    std::vector<float> values(matrix->size());
    random_weights(*job.model, recipe.training.seed)
        ->read(head, static_cast<std::size_t>(matrix - parameters.begin()), 0, values);
    values.back() += change;
    for (float& value : values) {
      if (rounding == device::DType::bf16) value = device::to_float(device::from_float<device::bf16>(value));
      if (rounding == device::DType::fp16) value = device::to_float(device::from_float<device::fp16>(value));
    }
    std::vector<models::TensorSpec> tensors{{name, dtype, matrix->shape}};
    std::string data;
    for (const float value : values) {
      const auto narrow = device::from_float<device::bf16>(value);
      if (dtype == device::DType::bf16)
        data.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
      else
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    {
      const auto file = models::Safetensors::open(path);
      for (const models::StoredTensor& tensor : file.tensors()) {
        if (tensor.name == name) continue;
        tensors.push_back({tensor.name, device::DType::fp32, {tensor.shape.begin(), tensor.shape.end()}});
        data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      }
    }
    std::ofstream(path, std::ios::binary) << models::safetensors_header(tensors) << data;
  }

  void expect_continued_exported_and_merged(const std::vector<std::string>& named) const;

  const std::vector<std::string> kNamed = {"adapter.kind=lora", "adapter.rank=4",
                                           R"(adapter.target_modules=["attn.c_proj", "lm_head"])"};
  SavedRun saved_;
};

void OutputAdapterFiles::expect_continued_exported_and_merged(const std::vector<std::string>& named) const {
  const auto straight = saved_.run(1, sets(1, named), 4);
  std::vector<std::string> sharded = named;
  sharded.emplace_back("zero.stage=3");
  (void)saved_.run(2, sets(2, sharded), 3, {3});
  EXPECT_EQ(saved_.run(1, sets(1, named), 4).weights, straight.weights);

  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  EXPECT_EQ(read_peft_config(place("peft")).adapter.target_modules.names,
            (std::vector<std::string>{"attn.c_proj", "lm_head"}));
  EXPECT_TRUE(
      models::Safetensors::open(place("peft") / kPeftWeightsName).find("base_model.model.lm_head.lora_A.weight"));
  export_model(ModelFolder(saved_.checkpoints()), place("merged"), {});
  std::vector<std::string> merged =
      saved_.sets(1, {"checkpoint.resume=none", "training.precision=fp32", "model.path=" + place("merged").string()});
  std::erase_if(merged, [](const std::string& set) {
    return set.starts_with("model.config.") || set.starts_with("model.preset");
  });
  EXPECT_NEAR(std::stod(saved_.run(1, merged, 1).losses[0]), std::stod(begin().losses[0]), 1e-5)
      << "the sum is rounded once";
}

TEST_F(OutputAdapterFiles, AreContinuedExportedAndMerged) {
  expect_continued_exported_and_merged(kNamed);
  EXPECT_FALSE(models::Safetensors::open(place("peft") / kPeftWeightsName)
                   .find("base_model.model.lm_head.lora_magnitude_vector"));
}

TEST_F(OutputAdapterFiles, OfDoraAreContinuedExportedAndMerged) {
  std::vector<std::string> named = kNamed;
  named.emplace_back("adapter.dora=true");
  expect_continued_exported_and_merged(named);
  const auto file = models::Safetensors::open(place("peft") / kPeftWeightsName);
  const models::StoredTensor* magnitudes = file.find("base_model.model.lm_head.lora_magnitude_vector");
  ASSERT_TRUE(magnitudes);
  EXPECT_EQ(magnitudes->elements(), file.find("base_model.model.lm_head.lora_B.weight")->shape[0]);
}

// peft saves the own matrix of an output layer that is a target, and of any adapter if it is asked to
// (save_embedding_layers): in the dtype of its run, or widened again.
TEST_F(OutputAdapterFiles, ACopyOfTheMatrixMustBeTheModels) {
  const struct {
    std::vector<std::string> adapter;
    std::string name;
    const char* refusal;
  } cases[] = {{kNamed, "base_model.model.lm_head.base_layer.weight", "give the model that has these values"},
               {{"adapter.kind=lora", R"(adapter.target_modules=["attn.c_proj"])"},
                "base_model.model.lm_head.weight",
                "if it was trained, add \"lm_head\" there to read it"}};
  using enum device::DType;
  for (const auto& [adapter, name, refusal] : cases) {
    SCOPED_TRACE(name);
    for (const std::filesystem::path& old : {saved_.checkpoints(), place("peft")}) std::filesystem::remove_all(old);
    (void)saved_.run(1, sets(1, adapter), 3, {3});
    export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
    const std::vector<std::string> without = begin().losses;
    for (const auto& [dtype, rounding] : {std::pair(fp32, fp32), {bf16, bf16}, {fp32, bf16}, {fp32, fp16}}) {
      add_matrix(dtype, name, rounding);
      const SavedRun::Result run = begin();
      EXPECT_EQ(run.losses, without) << name_of(dtype);
      if (rounding == fp32) {
        EXPECT_THAT(run.notes, Not(Contains(HasSubstr("a copy of"))));
      } else {
        EXPECT_THAT(run.notes,
                    Contains(HasSubstr(fmt::format("a copy of lm_head.weight rounded to {}", name_of(rounding)))));
      }
      // Ranks compare hashes of what each has read of the model, which comparisons must not change.
      EXPECT_NO_THROW((void)begin(2));
    }
    add_matrix(fp32, name, fp32, 0x1p-10f);
    EXPECT_FAILURE(
        (void)begin(), Exit::usage,
        AllOf(HasSubstr("contains a full copy of " + name), HasSubstr("is not a copy of the model's lm_head.weight"),
              HasSubstr("exact or rounded to bf16 or fp16"), HasSubstr(refusal)));
  }
}

// One rank compares for all of them, so the others read none of the copy.
TEST_F(OutputAdapterFiles, ARankMayLeaveTheComparisonToAnother) {
  (void)saved_.run(1, sets(1, kNamed), 1, {1});
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const Recipe recipe = load_recipe(std::nullopt, sets(1, {"adapter.path=" + place("peft").string()}));
  const Job job = make_job(open_workload(recipe), 1, capacity_of({}, 1));
  const auto base = [&] { return random_weights(*job.model, recipe.training.seed); };
  const auto read = [&](const std::function<std::unique_ptr<WeightSource>()>& compared) {
    (void)peft_weights(base(), place("peft"), *job.model, {{}, compared}, [](const std::string&) {});
  };
  add_matrix(device::DType::fp32, "base_model.model.lm_head.base_layer.weight", device::DType::fp32, 1);
  EXPECT_NO_THROW(read({}));
  EXPECT_FAILURE(read(base), Exit::usage, HasSubstr("is not a copy"));
  add_matrix(device::DType::fp32, "base_model.model.of_another.weight");
  EXPECT_FAILURE(read({}), Exit::usage, HasSubstr("model does not have"));
}

}  // namespace
}  // namespace strata::runtime
