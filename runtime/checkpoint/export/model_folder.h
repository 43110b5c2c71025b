#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "base/progress.h"
#include "comm/communicator.h"
#include "device/numeric/dtype.h"
#include "models/files/config.h"
#include "models/model.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/plan/job.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A folder that holds a model: a Hugging Face directory, a checkpoint, or the checkpoints of a run. Throws Error{usage}
// if it is none of them, Error{failed} if it cannot be read.
class ModelFolder {
 public:
  // Takes the newest of a run's checkpoints whose files exist, which is enough for the model's config.
  explicit ModelFolder(std::filesystem::path path);
  // Takes the newest undamaged checkpoint of a run (choice.h). It stays open, and so is not removed, during
  // the lifetime of this object and its weights.
  static ModelFolder newest_undamaged(std::filesystem::path path, int threads, const Note& note,
                                      const Advance& advance = {});

  // The Hugging Face directory, or the checkpoint's own folder.
  const std::filesystem::path& path() const { return path_; }
  bool is_checkpoint() const { return checkpoint_; }

  models::Config config() const;
  // True if this is a checkpoint of a run that trained an adapter.
  bool has_adapter() const;
  // The adapter's keys; kind none if there is no adapter.
  Recipe::AdapterKeys adapter() const;
  // The format of an adapter's quantised base; nullopt if nothing is quantised or there is no adapter.
  std::optional<device::StorageFormat> quantised() const;
  // The model.path of the run that wrote the checkpoint, if it had one.
  std::optional<std::filesystem::path> base() const { return checkpoint_ ? began_with() : std::nullopt; }
  // A sentence if that path is relative to the folder in which the run was started, as in older manifests, and this
  // folder is unknown; otherwise empty.
  std::string base_note() const;
  // Thread-safe. A checkpoint's master weights are verified as they are read.
  std::unique_ptr<WeightSource> weights(const models::Model& model, std::uint64_t seed = 0,
                                        bool new_head = false) const;
  // For a checkpoint with an adapter: the weights of the model that it was trained on, without the adapter.
  // Thread-safe.
  std::unique_ptr<WeightSource> base_weights(const models::Model& model) const;
  // Throws Error{usage} if this is a checkpoint with an adapter and the model that it was trained on has moved.
  void require_base() const;
  // The dtype of the largest stored tensor.
  device::DType dtype() const;
  // The folder with the tokenizer and generation_config.json: the directory itself, or the directory that the
  // checkpoint's run started from, directly or through the checkpoints of earlier runs. nullopt if it no longer exists.
  std::optional<std::filesystem::path> hugging_face() const;

 private:
  ModelFolder() = default;
  // True if path_ itself is the model to read.
  bool find();
  Manifest manifest() const;
  // The model.path of the run that wrote the checkpoint, if it had one.
  std::optional<std::filesystem::path> began_with() const;

  std::filesystem::path path_;
  bool checkpoint_ = false;
  std::shared_ptr<const Checkpoint> open_;  // set by whole()
};

// The adapter's keys of the run that wrote the checkpoint, without adapter.path; kind none if it had no adapter.
Recipe::AdapterKeys adapter_of(const Manifest& manifest);

// Returns the recipe with the description of its model, its base and its adapter. Only this function reads the
// description from the directory or preset. Throws Error{usage} if the recipe names neither.
Workload open_workload(Recipe recipe);

// ModelFolder::newest_undamaged() on rank 0, and its choice on all ranks, because a run may still be writing to the
// folder. Collective; throws AgreedError.
ModelFolder agree_on_model(const std::filesystem::path& path, int threads, comm::World& world, const Note& note);

// Returns the initial weights of the job's model: from model.path, or random, as model.init says. From a folder of
// checkpoints, all ranks take the newest undamaged one; `note` is called for each damaged one that was passed over.
// Collective; throws AgreedError.
std::unique_ptr<WeightSource> first_weights(const Job& job, comm::World& world, int threads, const Note& note);
// Like first_weights(), but for the base of an adapter: ignores adapter.path, and requires that the base has the
// BaseHash `hash`.
std::unique_ptr<WeightSource> first_base(const Job& job, comm::World& world, int threads, const Note& note,
                                         const std::string& hash);

}  // namespace strata::runtime
