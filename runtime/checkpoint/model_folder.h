#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "base/note.h"
#include "comm/communicator.h"
#include "device/numeric/dtype.h"
#include "models/files/config.h"
#include "models/model.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/plan/job.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A folder that holds a model: a Hugging Face directory, one checkpoint, or the checkpoints of a run. Throws
// Error{usage} if it is none of them, Error{failed} if it cannot be read.
class ModelFolder {
 public:
  // Of the checkpoints of a run it is the newest whose files are there, enough for the model's config.
  explicit ModelFolder(std::filesystem::path path);
  // Of the checkpoints of a run it is the newest that is whole (newest_whole()). A checkpoint stays open, and so is not
  // removed, for as long as this or its weights live.
  static ModelFolder whole(std::filesystem::path path, int threads, const Note& note, const Advance& advance = {});

  // The Hugging Face directory, or the checkpoint's own folder.
  const std::filesystem::path& path() const { return path_; }
  bool is_checkpoint() const { return checkpoint_; }

  models::Config config() const;
  // Whether it is a checkpoint of a run that trained an adapter.
  bool has_adapter() const;
  // The adapter's keys; kind none: it has no adapter.
  Recipe::AdapterKeys adapter() const;
  // The format of what an adapter's base has quantised; nullopt: nothing, or there is no adapter.
  std::optional<device::StorageFormat> quantised() const;
  // Of a checkpoint: the run's model.path, if it had one.
  std::optional<std::filesystem::path> base() const { return checkpoint_ ? began_with() : std::nullopt; }
  // Thread-safe; a checkpoint's master weights are verified as they are read.
  std::unique_ptr<WeightSource> weights(const models::Model& model, std::uint64_t seed = 0,
                                        bool new_head = false) const;
  // In which the weights are stored: of the largest tensor.
  device::DType dtype() const;
  // Where the tokenizer and generation_config.json are: the directory itself, or the one that the checkpoint's run
  // started from, or the run whose checkpoint it started from; nullopt if there is none any more.
  std::optional<std::filesystem::path> hugging_face() const;

 private:
  ModelFolder() = default;
  // True if the path is itself what is to be read.
  bool find();
  // Of a checkpoint: the run's model.path, if it had one.
  std::optional<std::filesystem::path> began_with() const;

  std::filesystem::path path_;
  bool checkpoint_ = false;
  std::shared_ptr<const Checkpoint> open_;  // of whole()
};

// The recipe with the description of its model, which is read from its directory or preset here and nowhere else.
// Throws Error{usage} if the recipe names neither.
Workload open_workload(Recipe recipe);

// Rank 0's choice of ModelFolder::whole() on all ranks, whose folder a run may be writing to meanwhile. Collective;
// throws AgreedError.
ModelFolder agree_on_model(const std::filesystem::path& path, int threads, comm::World& world, const Note& note);

// What model.init says of the job's model: the weights of model.path, or random ones. Of a folder of checkpoints all
// ranks take the newest that is whole; `note` is told which were passed over. Collective; throws AgreedError.
std::unique_ptr<WeightSource> first_weights(const Job& job, comm::World& world, int threads, const Note& note);
// Without the folder that adapter.path names: the base of an adapter, which has to have the BaseHash `hash`.
std::unique_ptr<WeightSource> first_base(const Job& job, comm::World& world, int threads, const Note& note,
                                         const std::string& hash);

}  // namespace strata::runtime
