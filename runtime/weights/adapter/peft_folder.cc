#include "runtime/weights/adapter/peft_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
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
         "{}: {}, unlike in files that peft's save_pretrained writes: save the adapter with it, or rename its tensors "
         "once: "
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

// peft writes magnitudes under the layer's name without ".weight", and reads them under both names.
const models::StoredTensor* find_trained(const models::Safetensors& file, const std::string& name) {
  const models::StoredTensor* const found = file.find(name);
  return found || !name.ends_with(models::kMagnitude) ? found : file.find(name + ".weight");
}

[[noreturn]] void refuse_shape(const models::StoredTensor& tensor, const fs::path& folder, const models::Model& model,
                               const models::Parameter& own) {
  if (is_resized_table(tensor, own, model)) refuse_resized(tensor, folder, own);
  fail(
      Exit::usage,
      "{} is an adapter of another model{}: its {} is [{}], but that of this {} model is [{}]; give its own base model "
      "as model.path",
      folder.string(), own.of_adapter ? fmt::format(", or its {} gives a different rank", kPeftConfigName) : "",
      tensor.name, fmt::join(tensor.shape, ", "), model.family, fmt::join(own.shape, ", "));
}

// The trained weights, from a peft file.
class PeftWeights final : public WeightSource {
 public:
  PeftWeights(const fs::path& folder, const models::Model& model, const BaseAgain& base, const Note& note)
      : file_(models::Safetensors::open(folder / kPeftWeightsName)) {
    std::vector<bool> wanted(file_.tensors().size());
    for (const auto& unit : model.units) {
      auto& tensors = tensors_.emplace_back();
      for (const models::Parameter& p : unit->parameters()) {
        const models::StoredTensor*& tensor = tensors.emplace_back(nullptr);
        if (!p.trained()) continue;
        const std::string name = kPeftPrefix + p.name;
        tensor = find_trained(file_, name);
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        if (!tensor) refuse_other_names(file_, folder / kPeftWeightsName, p.name);
        if (!tensor)
          fail(Exit::usage,
               "{} is an adapter of another model: it has no {}, which this {} model's has; give its own base model as "
               "model.path",
               folder.string(), name, model.family);
        if (!tensor->readable())
          fail(Exit::usage, "{}: {} is stored as {}, but adapters are read from F32, BF16, F16 or F64",
               (folder / kPeftWeightsName).string(), name, tensor->dtype);
        if (tensor->elements() == 0)
          fail(Exit::usage,
               "{}: {} is empty, as DeepSpeed's ZeRO-3 leaves it in a process that has not gathered the parameters: "
               "save the adapter again from gathered ones",
               (folder / kPeftWeightsName).string(), name);
        if (tensor->shape != shape) refuse_shape(*tensor, folder, model, p);
        wanted[static_cast<std::size_t>(tensor - file_.tensors().data())] = true;
      }
    }
    require_copies_of_tied(folder, model, base);
    UnnamedTensors unnamed(folder, model, base, note);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (!wanted[i] && !is_copy_of_tied(file_.tensors()[i], folder, model, base)) unnamed.require(file_.tensors()[i]);
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
  void require_copies_of_tied(const fs::path& folder, const models::Model& model, const BaseAgain& base) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared) continue;
      const models::StoredTensor* table = tensors_[shared->unit][shared->parameter];
      if (table && !file_.find(kPeftPrefix + shared->name))
        fail(Exit::usage,
             "{} has {} but no {}{}, which an adapter that was trained with ensure_weight_tying has: if it was trained "
             "without, set that to false in its {}, and untie the model: {}; if it was trained with it, save it again "
             "(save_pretrained), with both",
             folder.string(), table->name, kPeftPrefix, shared->name, kPeftConfigName,
             how_to_untie(model, base.folder));
    }
  }
  // True if the tensor is a second copy of a trained table, under the name of the layer that shares it
  // (ensure_weight_tying).
  bool is_copy_of_tied(const models::StoredTensor& tensor, const fs::path& folder, const models::Model& model,
                       const BaseAgain& base) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared || tensor.name != kPeftPrefix + shared->name) continue;
      const models::StoredTensor* table = tensors_[shared->unit][shared->parameter];
      if (!table) return false;
      if (tensor.dtype != table->dtype || !std::ranges::equal(tensor.bytes, table->bytes))
        fail(Exit::usage,
             "{}: {} and {} differ, but are one table in this {} model (tie_word_embeddings): if both were trained, "
             "name both in modules_to_save in its {}, set ensure_weight_tying to false there, and untie the model: {}; "
             "otherwise train the adapter again with ensure_weight_tying",
             (folder / kPeftWeightsName).string(), tensor.name, table->name, model.family, kPeftConfigName,
             how_to_untie(model, base.folder));
      return true;
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
  std::string unpacked_dtype(std::size_t unit, std::size_t parameter) const override {
    return source_of(unit, parameter).unpacked_dtype(unit, parameter);
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
                                           const models::Model& model, const BaseAgain& again, const Note& note) {
  auto trained = std::make_unique<PeftWeights>(folder, model, again, note);
  return joined_weights(std::move(base), std::move(trained), model);
}

void add_adapter_note(const models::Config& config, const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kPeftConfigName, ignored))
    config.add_note(fmt::format("{} also holds an adapter ({}), which is not used: give it as adapter.path (--adapter)",
                                folder.string(), kPeftConfigName));
}

}  // namespace strata::runtime
