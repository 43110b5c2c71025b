#include "runtime/weights/adapter/peft_folder.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/weights/weight_source.h"
#include "tests/failure.h"
#include "tests/runtime/weights/adapted_models.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using models::TensorSpec;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A Llama with a vocabulary of 5 tokens, of 8 dimensions, whose tables are trained with the adapter.
std::unique_ptr<models::Model> llama_of_peft() {
  models::Adapter adapter{.rank = 2, .target_modules = {{"q_proj"}, {}}};
  adapter.modules_to_save = {"embed_tokens", "lm_head"};
  adapter.dora = true;
  return small_llama(std::make_shared<const models::Adapter>(adapter));
}

// Reads a peft file of the tensors that the model trains, each edited first. Elements are numbered from 1.
std::unique_ptr<WeightSource> read_edited(const tests::ScratchFolder& folder, const models::Model& model,
                                          const std::function<void(TensorSpec&)>& edit) {
  std::vector<TensorSpec> tensors;
  std::size_t elements = 0;
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      if (!p.trained()) continue;
      edit(tensors.emplace_back(TensorSpec{kPeftPrefix + p.name, device::DType::fp32, p.shape}));
      elements += tensors.back().bytes() / sizeof(float);
    }
  std::string data = models::safetensors_header(tensors);
  for (std::size_t i = 1; i <= elements; ++i) {
    const auto value = static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  folder.write(kPeftWeightsName, data);
  return peft_weights(random_weights(model, 1), folder.path(), model, {}, [](const std::string&) {});
}

TEST(PeftFolder, SaysWhatAnotherShapeMeans) {
  const auto model = llama_of_peft();
  const auto read = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const tests::ScratchFolder folder;
    (void)read_edited(folder, *model, [&](TensorSpec& tensor) {
      if (tensor.name == kPeftPrefix + name) tensor.shape = shape;
    });
  };
  for (const char* table : {"model.embed_tokens.weight", "lm_head.weight"}) {
    read(table, {5, 8});
    EXPECT_FAILURE(read(table, {7, 8}), Exit::usage,
                   AllOf(HasSubstr(table), HasSubstr("as [7, 8], but the model's is [5, 8]: the model was resized"),
                         HasSubstr("merge_and_unload")));
    EXPECT_FAILURE(read(table, {5, 9}), Exit::usage,
                   AllOf(HasSubstr("is an adapter of another model: its "), HasSubstr("is [5, 9], but that of this"),
                         HasSubstr("give its own base model"), Not(HasSubstr("rank"))));
  }
  EXPECT_FAILURE(read("model.layers.0.self_attn.q_proj.lora_A.weight", {3, 8}), Exit::usage,
                 HasSubstr("or its adapter_config.json gives a different rank: its base_model"));
}

// The parameters of DoRA's layers in peft are called weight, which the files that it saves leave out.
TEST(PeftFolder, ReadsMagnitudesUnderBothNames) {
  const auto model = llama_of_peft();
  const std::string magnitudes = "model.layers.0.self_attn.q_proj.lora_magnitude_vector";
  const auto read = [&](const std::string& suffix) {
    const tests::ScratchFolder folder;
    const auto weights = read_edited(folder, *model, [&](TensorSpec& tensor) {
      if (tensor.name == kPeftPrefix + magnitudes) tensor.name += suffix;
    });
    std::vector<float> values(8);
    weights->read(1, tensor_of(*model, magnitudes), 0, values);
    return values;
  };
  const std::vector<float> values = read("");
  EXPECT_EQ(values[7], values[0] + 7);
  EXPECT_EQ(read(".weight"), values);
  EXPECT_FAILURE(read(".default.weight"), Exit::usage, HasSubstr("carries the adapter's own name, default"));
}

}  // namespace
}  // namespace strata::runtime
