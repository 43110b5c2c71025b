#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "device/numeric/dtype.h"
#include "models/files/config.h"
#include "models/model.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A folder that holds a model: a Hugging Face directory, one checkpoint, or the checkpoints of a run, of which it is
// the newest that is whole. Throws Error{usage} where it is none of them.
class ModelFolder {
 public:
  explicit ModelFolder(std::filesystem::path path);

  // The Hugging Face directory, or the checkpoint's own folder.
  const std::filesystem::path& path() const { return path_; }
  bool is_checkpoint() const { return checkpoint_; }

  models::Config config() const;
  // Thread-safe; a checkpoint's master weights are verified as they are read.
  std::unique_ptr<WeightSource> weights(const models::Model& model) const;
  // In which the weights are stored: of the largest tensor.
  device::DType dtype() const;
  // Where the tokenizer and generation_config.json are: the directory itself, or the one that the checkpoint's run
  // started from; nullopt where there is none any more.
  std::optional<std::filesystem::path> hugging_face() const;

 private:
  std::filesystem::path path_;
  bool checkpoint_ = false;
};

}  // namespace strata::runtime
