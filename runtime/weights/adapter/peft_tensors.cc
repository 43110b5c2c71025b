#include "runtime/weights/adapter/peft_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "device/numeric/dtype.h"

namespace strata::runtime {
namespace {

using device::DType, models::StoredTensor;

std::vector<std::uint64_t> stored_shape_of(const models::Parameter& parameter) {
  return {parameter.shape.begin(), parameter.shape.end()};
}

// Whether `name` is peft's for the parameter, or for a layer that shares it.
bool is_named(const std::string& name, const models::Model& model, std::size_t unit, std::size_t parameter) {
  return name == kPeftPrefix + model.units[unit]->parameters()[parameter].name ||
         std::ranges::any_of(model.units, [&](const auto& other) {
           const auto& shared = other->shared();
           return shared && shared->unit == unit && shared->parameter == parameter &&
                  name == kPeftPrefix + shared->name;
         });
}

float rounded_to(DType dtype, float x) {
  switch (dtype) {
    case DType::bf16:
      return device::to_float(device::from_float<device::bf16>(x));
    case DType::fp16:
      return device::to_float(device::from_float<device::fp16>(x));
    case DType::fp32:
      return x;
  }
  return x;
}

// The first of fp32, bf16 and fp16 for which the tensor holds the parameter's values rounded to that. nullopt: none.
std::optional<DType> rounding_of(const StoredTensor& tensor, const WeightSource& weights, std::size_t unit,
                                 std::size_t parameter) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;
  if (!tensor.readable()) return std::nullopt;
  std::vector<DType> roundings = {DType::fp32, DType::bf16, DType::fp16};
  std::vector<float> stored, own;
  for (std::size_t at = 0, size = tensor.elements(); at < size && !roundings.empty(); at += stored.size()) {
    stored.resize(std::min(kAtOnce, size - at));
    own.resize(stored.size());
    models::read_elements(tensor, at, stored);
    MappedFile::release(tensor.bytes.subspan(at * tensor.element_bytes(), stored.size() * tensor.element_bytes()));
    weights.read(unit, parameter, at, own);
    std::erase_if(roundings, [&](DType rounding) {
      return !std::ranges::equal(stored, own, {}, {}, [&](float x) { return rounded_to(rounding, x); });
    });
  }
  return roundings.empty() ? std::nullopt : std::optional(roundings.front());
}

[[noreturn]] void refuse_unknown(const StoredTensor& tensor, const std::filesystem::path& folder,
                                 const models::Model& model) {
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    for (std::size_t i = 0; i < model.units[unit]->parameters().size(); ++i) {
      if (!is_named(tensor.name, model, unit, i)) continue;
      const models::Parameter& p = model.units[unit]->parameters()[i];
      if (tensor.shape != stored_shape_of(p)) refuse_resized(tensor, folder, p);
      const std::string module = p.name.substr(0, p.name.rfind('.'));
      const std::string last = module.substr(module.rfind('.') + 1);
      const bool is_shared = tensor.name != kPeftPrefix + p.name;
      fail(Exit::usage,
           "{} contains a full copy of {}, which modules_to_save in its {} does not name, and which is not a copy of "
           "the model's {}{}, exact or rounded to bf16 or fp16: if it was trained, add \"{}\" there{} to read it "
           "(training that continues from this adapter trains it, too); otherwise give the model that the adapter was "
           "trained on",
           folder.string(), tensor.name, kPeftConfigName, p.name,
           is_shared ? ", the table that it shares (tie_word_embeddings)" : "", last,
           is_shared ? ", and \"ensure_weight_tying\": true," : "");
    }
  for (const char* head : {".classifier.weight", ".classifier.out_proj.weight", ".score.weight"})
    if (tensor.name.ends_with(head))
      fail(Exit::usage,
           "{} is an adapter of a classifier: it contains the classification head {}, but training.objective is "
           "\"{}\"; set the adapter's objective (strata predict --adapter detects it)",
           folder.string(), tensor.name, models::name_of(model.objective));
  fail(Exit::usage,
       "{} is an adapter of another model: it has {}, which this {} model does not have; give its own base model as "
       "model.path",
       folder.string(), tensor.name, model.family);
}

// VeLoRA's projections (velora_config) compress what backward keeps; forward does not read them.
bool is_of_backward(const StoredTensor& tensor) {
  return tensor.name.ends_with(".lora_velora_embed");
}

}  // namespace

bool is_resized_table(const StoredTensor& tensor, const models::Parameter& own, const models::Model& model) {
  const std::vector<std::uint64_t> shape = stored_shape_of(own);
  return !own.of_adapter && shape[0] == model.vocabulary && tensor.shape.size() == shape.size() &&
         std::ranges::equal(tensor.shape | std::views::drop(1), shape | std::views::drop(1));
}

void refuse_resized(const StoredTensor& tensor, const std::filesystem::path& folder, const models::Parameter& own) {
  fail(Exit::usage,
       "{} contains a full copy of {}, as [{}], but the model's is [{}]: the model was resized when the adapter was "
       "trained; merge the two with peft (merge_and_unload, save_pretrained), and give the result",
       folder.string(), tensor.name, fmt::join(tensor.shape, ", "), fmt::join(own.shape, ", "));
}

void UnnamedTensors::require(const StoredTensor& tensor) {
  if (is_of_backward(tensor) || is_copy_of_layer(tensor) || is_copy_of_table(tensor)) return;
  refuse_unknown(tensor, folder_, model_);
}

bool UnnamedTensors::is_copy(const StoredTensor& tensor, std::size_t unit, std::size_t parameter) {
  const models::Parameter& own = model_.units[unit]->parameters()[parameter];
  if (tensor.shape != stored_shape_of(own)) return false;
  if (!base_.open) return true;
  if (!weights_) weights_ = base_.open();
  const auto rounding = rounding_of(tensor, *weights_, unit, parameter);
  if (rounding && *rounding != DType::fp32)
    note_(fmt::format(
        "{} holds {}, a copy of {} rounded to {}: the model's own values are read, and peft would read the copy",
        folder_.string(), tensor.name, own.name, device::name_of(*rounding)));
  return rounding.has_value();
}

// Whether the tensor is a copy of the weight of a layer that has an adapter.
bool UnnamedTensors::is_copy_of_layer(const StoredTensor& tensor) {
  for (std::size_t unit = 0; unit < model_.units.size(); ++unit)
    for (const auto& layer : model_.units[unit]->linear_layers()) {
      if (layer.low_rank.rank == 0 || tensor.name != kPeftPrefix + layer.name + ".base_layer.weight") continue;
      const auto parameters = model_.units[unit]->parameters();
      const auto weight = std::ranges::find(parameters, layer.name + ".weight", &models::Parameter::name);
      STRATA_CHECK(weight != parameters.end());
      if (tensor.shape != stored_shape_of(*weight)) refuse_resized(tensor, folder_, *weight);
      if (is_copy(tensor, unit, static_cast<std::size_t>(weight - parameters.begin()))) return true;
      fail(Exit::usage,
           "{} contains a full copy of {}, which is not a copy of the model's {}, exact or rounded to bf16 or fp16, "
           "and peft would compute with it: give the model that has these values as model.path, or merge the two with "
           "peft (merge_and_unload, save_pretrained) and give the result",
           folder_.string(), tensor.name, weight->name);
    }
  return false;
}

// Whether the tensor is a copy of a frozen tensor of the model, under its name or that of a layer that shares it.
bool UnnamedTensors::is_copy_of_table(const StoredTensor& tensor) {
  for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
    const auto parameters = model_.units[unit]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (!parameters[p].trained() && is_named(tensor.name, model_, unit, p)) return is_copy(tensor, unit, p);
  }
  return false;
}

}  // namespace strata::runtime
