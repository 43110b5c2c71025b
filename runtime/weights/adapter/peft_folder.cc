#include "runtime/weights/adapter/peft_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
#include "device/numeric/dtype.h"
#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// Throws if the file has the tensor under a name that save_pretrained does not write: with the adapter's own name in it
// (a state_dict), or with another prefix (a wrapper's, or none).
void refuse_other_names(const models::Safetensors& file, const fs::path& path, const std::string& tensor) {
  const auto command = [&](std::string_view old, std::string_view now) {
    return python_command(
        "from safetensors.torch import load_file, save_file; "
        "save_file({k.replace(argv[2], argv[3], 1): t.clone() for k, t in load_file(argv[1]).items()}, "
        "argv[1], {'format': 'pt'})",
        {path.string(), old, now});
  };
  const auto renamed = [&](std::string_view what, std::string_view old, std::string_view now) {
    fail(Exit::usage,
         "{}: {}, unlike in a file of peft's save_pretrained: save the adapter with that, or rename its tensors once: "
         "{}",
         path.string(), what, command(old, now));
  };
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names;
  for (const models::StoredTensor& stored : file.tensors()) names.push_back(stored.name);
  // Without ".weight", for lora_A.NAME.weight and lora_magnitude_vector.NAME.
  const std::string stem = tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size()) : tensor;
  for (const std::string& name : names) {
    const std::size_t at = name.find(stem + ".");
    if (at == std::string::npos || name.find("lora_") == std::string::npos) continue;
    const std::string_view rest = std::string_view(name).substr(at + stem.size());  // ".default.weight"
    const std::string own(rest.substr(0, rest.find('.', 1)));
    if (own != kWeight) renamed(fmt::format("{} carries the adapter's own name, {}", name, own.substr(1)), own, "");
  }
  // The model without its head: Hugging Face's AutoModel has no "transformer." or "model." before the layers' names.
  const std::string first = tensor.substr(0, tensor.find('.') + 1);
  if (file.find(kPeftPrefix + tensor.substr(first.size())))
    fail(Exit::usage,
         "{}: the names of its tensors lack {} after {}: the adapter was trained on a model without its head "
         "(AutoModel); rename them once: {}",
         path.string(), first, kPeftPrefix, command(kPeftPrefix, kPeftPrefix + first));
  const bool bare = file.find(tensor) != nullptr;
  if (const std::string prefix = prefix_of_wrapper(names, tensor); bare || !prefix.empty())
    renamed(bare ? fmt::format("the names of its tensors do not begin with {}", kPeftPrefix)
                 : fmt::format("the names of its tensors begin with {}", prefix),
            prefix, kPeftPrefix);
}

// Throws Error{usage} for a tensor that the adapter's configuration does not name. peft saves embeddings whole if they
// were resized for new tokens, and reads them over the model's own.
[[noreturn]] void refuse_unknown(const models::StoredTensor& tensor, const fs::path& folder,
                                 const models::Model& model) {
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      const bool is_shared = std::ranges::any_of(model.units, [&](const auto& other) {
        const auto& shared = other->shared();
        return shared && tensor.name == kPeftPrefix + shared->name &&
               &model.units[shared->unit]->parameters()[shared->parameter] == &p;
      });
      if (tensor.name != kPeftPrefix + p.name && !is_shared) continue;
      const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
      const std::string module = p.name.substr(0, p.name.rfind('.'));
      if (tensor.shape == shape && is_shared)
        fail(Exit::usage,
             "{} holds all of {}, which shares its table with {} (tie_word_embeddings) and which modules_to_save in "
             "its {} does not name: add \"{}\" there, and \"ensure_weight_tying\": true, to read it (a training that "
             "continues from this adapter trains it, too)",
             folder.string(), tensor.name, p.name, kPeftConfigName, module.substr(module.rfind('.') + 1));
      if (tensor.shape == shape)
        fail(Exit::usage,
             "{} holds all of {}, which modules_to_save in its {} does not name: add \"{}\" there to read it (a "
             "training that continues from this adapter trains it, too)",
             folder.string(), tensor.name, kPeftConfigName, module.substr(module.rfind('.') + 1));
      fail(Exit::usage,
           "{} holds all of {}, as [{}], and the model's is [{}]: the model was resized when the adapter was trained; "
           "merge the two with peft (merge_and_unload, save_pretrained), and give the result",
           folder.string(), tensor.name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    }
  for (const char* head : {".classifier.weight", ".classifier.out_proj.weight", ".score.weight"})
    if (tensor.name.ends_with(head))
      fail(
          Exit::usage,
          "{} is an adapter of a classifier: it holds its layer of class scores, {}, and training.objective is \"{}\"; "
          "give that of the adapter (strata predict --adapter finds it out)",
          folder.string(), tensor.name, models::name_of(model.objective));
  fail(Exit::usage, "{} has {}, for which this {} model has no place: it is an adapter of another model",
       folder.string(), tensor.name, model.family);
}

// Whether the tensor holds what it would if the parameter had been saved in its dtype.
bool holds(const models::StoredTensor& tensor, const WeightSource& weights, std::size_t unit, std::size_t parameter,
           std::size_t size) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;
  if (!tensor.readable() || tensor.elements() != size) return false;
  std::vector<float> stored, own;
  for (std::size_t at = 0; at < size; at += stored.size()) {
    stored.resize(std::min(kAtOnce, size - at));
    own.resize(stored.size());
    models::read_elements(tensor, at, stored);
    weights.read(unit, parameter, at, own);
    if (tensor.type == device::DType::bf16)
      for (float& x : own) x = device::to_float(device::from_float<device::bf16>(x));
    if (tensor.type == device::DType::fp16)
      for (float& x : own) x = device::to_float(device::from_float<device::fp16>(x));
    if (stored != own) return false;
  }
  return true;
}

// VeLoRA's projections (velora_config) compress what backward keeps; forward does not read them.
bool is_of_backward(const models::StoredTensor& tensor) {
  return tensor.name.ends_with(".lora_velora_embed");
}

// The trained weights, from a peft file.
class PeftWeights final : public WeightSource {
 public:
  PeftWeights(const fs::path& folder, const models::Model& model, const WeightSource& base)
      : file_(models::Safetensors::open(folder / kPeftWeightsName)) {
    std::vector<bool> wanted(file_.tensors().size());
    for (const auto& unit : model.units) {
      auto& tensors = tensors_.emplace_back();
      for (const models::Parameter& p : unit->parameters()) {
        const models::StoredTensor*& tensor = tensors.emplace_back(nullptr);
        if (!p.trained()) continue;
        const std::string name = kPeftPrefix + p.name;
        tensor = file_.find(name);
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        if (!tensor) refuse_other_names(file_, folder / kPeftWeightsName, p.name);
        if (!tensor)
          fail(Exit::usage, "{} is an adapter of another model: it has no {}, which this {} model's has",
               folder.string(), name, model.family);
        if (!tensor->readable())
          fail(Exit::usage, "{}: {} is stored as {}, and adapters are read from F32, BF16, F16 or F64",
               (folder / kPeftWeightsName).string(), name, tensor->dtype);
        if (tensor->elements() == 0)
          fail(Exit::usage,
               "{}: {} is empty, as DeepSpeed's ZeRO-3 leaves it in a process that has not gathered the parameters: "
               "save the adapter again from gathered ones",
               (folder / kPeftWeightsName).string(), name);
        if (tensor->shape != shape)
          fail(Exit::usage,
               "{} is an adapter of another model, or its {} says another rank: its {} is [{}], and that of this {} "
               "model is [{}]",
               folder.string(), kPeftConfigName, name, fmt::join(tensor->shape, ", "), model.family,
               fmt::join(shape, ", "));
        wanted[static_cast<std::size_t>(tensor - file_.tensors().data())] = true;
      }
    }
    require_copies_of_tied(folder, model);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (const models::StoredTensor& tensor = file_.tensors()[i];
          !wanted[i] && !is_of_backward(tensor) && !is_copy_of_tied(tensor, folder, model) &&
          !is_copy_of_base(tensor, folder, model, base) && !is_unchanged(tensor, model, base))
        refuse_unknown(tensor, folder, model);
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const models::StoredTensor& tensor = *tensors_[unit][parameter];
    models::read_elements(tensor, begin, out);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!std::isfinite(out[i]))
        fail(Exit::corrupt, "{}: tensor {} holds {} at element {}, but weights must be finite", tensor.file.string(),
             tensor.name, out[i], begin + i);
  }
  std::vector<comm::FileFingerprint> fingerprints() const override {
    std::vector<comm::FileFingerprint> all;
    for (const auto& tensors : tensors_)
      for (const models::StoredTensor* tensor : tensors)
        if (tensor)
          all.push_back({fmt::format("tensor {} of {}", tensor->name, tensor->file.string()),
                         comm::fingerprint_of(tensor->bytes, comm::of_tensors(tensor->bytes.size()))});
    return all;
  }

 private:
  // A trained table that a layer shares is saved under both names (ensure_weight_tying). A folder with only one of them
  // was trained without ensure_weight_tying: peft then trained a copy that the other layer did not see.
  void require_copies_of_tied(const fs::path& folder, const models::Model& model) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared) continue;
      const models::StoredTensor* table = tensors_[shared->unit][shared->parameter];
      if (table && !file_.find(kPeftPrefix + shared->name))
        fail(Exit::usage,
             "{} has {} and no {}{}, which an adapter that was trained with ensure_weight_tying has: set that to false "
             "in its {}, and untie the model (model.config.tie_word_embeddings = false)",
             folder.string(), table->name, kPeftPrefix, shared->name, kPeftConfigName);
    }
  }
  // True if the tensor is a second copy of a trained table, under the name of the layer that shares it
  // (ensure_weight_tying).
  bool is_copy_of_tied(const models::StoredTensor& tensor, const fs::path& folder, const models::Model& model) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared || tensor.name != kPeftPrefix + shared->name) continue;
      const models::StoredTensor* table = tensors_[shared->unit][shared->parameter];
      if (!table) return false;
      if (tensor.dtype != table->dtype || !std::ranges::equal(tensor.bytes, table->bytes))
        fail(Exit::usage,
             "{}: {} and {} differ, and are one table in this {} model (tie_word_embeddings): untie it "
             "(model.config.tie_word_embeddings = false)",
             (folder / kPeftWeightsName).string(), tensor.name, table->name, model.family);
      return true;
    }
    return false;
  }

  // Whether the tensor is the own weight of a layer with an adapter. peft saves it for an output layer that is a
  // target, and reads it over the model's.
  static bool is_copy_of_base(const models::StoredTensor& tensor, const fs::path& folder, const models::Model& model,
                              const WeightSource& base) {
    for (std::size_t unit = 0; unit < model.units.size(); ++unit)
      for (const auto& layer : model.units[unit]->linear_layers()) {
        if (layer.low_rank.rank == 0 || tensor.name != kPeftPrefix + layer.name + ".base_layer.weight") continue;
        const auto parameters = model.units[unit]->parameters();
        const auto weight = std::ranges::find(parameters, layer.name + ".weight", &models::Parameter::name);
        STRATA_CHECK(weight != parameters.end());
        const std::vector<std::uint64_t> shape(weight->shape.begin(), weight->shape.end());
        const auto number = static_cast<std::size_t>(weight - parameters.begin());
        if (tensor.shape != shape || !holds(tensor, base, unit, number, weight->size()))
          fail(
              Exit::usage,
              "{} holds all of {}, and it differs from the model's {}: the adapter was trained on another model, or on "
              "a resized one; give that as model.path, or merge the two with peft (merge_and_unload, save_pretrained) "
              "and give the result",
              folder.string(), tensor.name, weight->name);
        return true;
      }
    return false;
  }

  // Whether the tensor is one of the model's own, unchanged, under its name or that of a layer that shares it. peft
  // saves the embedding and the output layer if either is a target, or if asked to (save_embedding_layers).
  static bool is_unchanged(const models::StoredTensor& tensor, const models::Model& model, const WeightSource& base) {
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
      const auto parameters = model.units[unit]->parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (parameters[p].trained()) continue;
        const bool named =
            tensor.name == kPeftPrefix + parameters[p].name || std::ranges::any_of(model.units, [&](const auto& other) {
              const auto& shared = other->shared();
              return shared && shared->unit == unit && shared->parameter == p &&
                     tensor.name == kPeftPrefix + shared->name;
            });
        if (!named) continue;
        const std::vector<std::uint64_t> shape(parameters[p].shape.begin(), parameters[p].shape.end());
        return tensor.shape == shape && holds(tensor, base, unit, p, parameters[p].size());
      }
    }
    return false;
  }

  models::Safetensors file_;
  std::vector<std::vector<const models::StoredTensor*>> tensors_;  // by unit and parameter; null: frozen
};

class JoinedWeights final : public ForwardedWeights {
 public:
  // `trained`: null if `base` has everything.
  JoinedWeights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained, const models::Model& model,
                Base wanted)
      : ForwardedWeights(std::move(base)), trained_(std::move(trained)), model_(model), wanted_(std::move(wanted)) {}

  Base base() const override { return wanted_; }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    source_of(unit, parameter).read(unit, parameter, begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    source_of(unit, parameter).prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    return source_of(unit, parameter).quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    source_of(unit, parameter).read_block(unit, parameter, begin, block);
  }
  std::vector<comm::FileFingerprint> fingerprints() const override {
    std::vector<comm::FileFingerprint> all = weights_.fingerprints();
    if (!trained_) return all;
    const std::vector<comm::FileFingerprint> more = trained_->fingerprints();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> initialised() const override {
    std::vector<std::string> names = weights_.initialised();
    if (!trained_) return names;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(model_.units, [&](const auto& unit) {
        return std::ranges::any_of(unit->parameters(),
                                   [&](const models::Parameter& p) { return p.trained() && p.name == name; });
      });
    });
    return names;
  }

 private:
  const WeightSource& source_of(std::size_t unit, std::size_t parameter) const {
    return trained_ && model_.units[unit]->parameters()[parameter].trained() ? *trained_ : weights_;
  }

  std::unique_ptr<WeightSource> trained_;
  const models::Model& model_;
  Base wanted_;
};

}  // namespace

std::unique_ptr<WeightSource> joined_weights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained,
                                             const models::Model& model, WeightSource::Base wanted) {
  return std::make_unique<JoinedWeights>(std::move(base), std::move(trained), model, std::move(wanted));
}

std::unique_ptr<WeightSource> require_hash(std::unique_ptr<WeightSource> weights, WeightSource::Base wanted,
                                           const models::Model& model) {
  return std::make_unique<JoinedWeights>(std::move(weights), nullptr, model, std::move(wanted));
}

std::unique_ptr<WeightSource> peft_weights(std::unique_ptr<WeightSource> base, const fs::path& folder,
                                           const models::Model& model) {
  auto trained = std::make_unique<PeftWeights>(folder, model, *base);
  return joined_weights(std::move(base), std::move(trained), model);
}

void add_adapter_note(const models::Config& config, const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kPeftConfigName, ignored))
    config.add_note(fmt::format("{} also holds an adapter ({}), which is not used: give it as adapter.path (--adapter)",
                                folder.string(), kPeftConfigName));
}

}  // namespace strata::runtime
