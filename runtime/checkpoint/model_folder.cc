#include "runtime/checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

bool has(const fs::path& folder, std::string_view file) {
  std::error_code ignored;
  return fs::exists(folder / file, ignored);
}

class OwnedCheckpoint final : public WeightSource {
 public:
  OwnedCheckpoint(const fs::path& path, const models::Model& model)
      : checkpoint_(path), weights_(checkpoint_weights(checkpoint_, model)) {}
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    weights_->read(unit, parameter, begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    weights_->prefetch(unit, parameter, begin, count);
  }

 private:
  Checkpoint checkpoint_;
  std::unique_ptr<WeightSource> weights_;
};

}  // namespace

ModelFolder::ModelFolder(fs::path path) : path_(std::move(path)) {
  if (has(path_, "config.json")) return;
  checkpoint_ = true;
  if (has(path_, kManifestName)) return;
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) {
    const auto all = list_checkpoints(path_, CheckpointTest::shards);
    for (const FoundCheckpoint& found : all)
      if (found.damage.empty()) {
        path_ = found.path;
        return;
      }
    if (!all.empty())
      fail(Exit::corrupt, "{}: none of its {} checkpoints is whole: {}", path_.string(), all.size(), all[0].damage);
  }
  fail(Exit::usage,
       "{} holds no model: give a Hugging Face directory (config.json), a checkpoint ({}), or a folder of "
       "checkpoints",
       path_.string(), kManifestName);
}

models::Config ModelFolder::config() const {
  if (!checkpoint_) return models::Config::read(path_);
  return models::Config::parse(read_manifest(path_).config, (path_ / kManifestName).string());
}

std::unique_ptr<WeightSource> ModelFolder::weights(const models::Model& model) const {
  if (!checkpoint_) return stored_weights(model, path_);
  return std::make_unique<OwnedCheckpoint>(path_, model);
}

device::DType ModelFolder::dtype() const {
  if (checkpoint_) return device::DType::fp32;
  const models::Safetensors file = models::Safetensors::open(path_);
  const auto& tensors = file.tensors();
  const auto largest = std::max_element(tensors.begin(), tensors.end(),
                                        [](const auto& a, const auto& b) { return a.elements() < b.elements(); });
  return largest == tensors.end() ? device::DType::fp32 : largest->type.value_or(device::DType::fp32);
}

std::optional<fs::path> ModelFolder::hugging_face() const {
  if (!checkpoint_) return path_;
  const Manifest manifest = read_manifest(path_);
  const auto stored = manifest.recipe.find("model.path");
  // A key's text is TOML: of a path, a string as JSON has it; of none, something else.
  if (stored == manifest.recipe.end() || !stored->second.starts_with('"')) return std::nullopt;
  const auto recipe = models::Config::parse(fmt::format(R"({{"path":{}}})", stored->second), path_.string());
  const fs::path directory = recipe.text_or("path", "");
  return !directory.empty() && has(directory, "config.json") ? std::optional(directory) : std::nullopt;
}

}  // namespace strata::runtime
