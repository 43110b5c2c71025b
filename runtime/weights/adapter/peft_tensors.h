#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "base/progress.h"
#include "models/files/safetensors.h"
#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The files of a peft folder, and the prefix that they put before the model's tensor names.
inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";
inline constexpr const char* kPeftPrefix = "base_model.model.";

// The base model, opened again for comparisons and messages.
struct BaseAgain {
  std::optional<std::filesystem::path> folder;  // nullopt: the weights are random
  // Opens another source of its weights, because a source counts what is read from it (fingerprints_as_read). Empty on
  // ranks that leave comparisons to another rank.
  std::function<std::unique_ptr<WeightSource>()> open;
};

// True if a tensor is a table of the model's vocabulary with another number of rows: peft saves it like that if the
// model was resized for new tokens.
bool is_resized_table(const models::StoredTensor& tensor, const models::Parameter& own, const models::Model& model);
// Throws Error{usage}: the model's `own` tensor is smaller or larger than the adapter's.
[[noreturn]] void refuse_resized(const models::StoredTensor& tensor, const std::filesystem::path& folder,
                                 const models::Parameter& own);

// The tensors of a peft folder that its configuration does not name. peft saves the embedding and the output layer
// whole if either is a target, if they were resized for new tokens, or if asked to (save_embedding_layers). When it
// loads them, they replace the model's own, so they must be copies of those. A copy is not read. It may have been
// rounded, because a run in bf16 or fp16 saves what it holds.
class UnnamedTensors {
 public:
  // The arguments must outlive it.
  UnnamedTensors(const std::filesystem::path& folder, const models::Model& model, const BaseAgain& base,
                 const Note& note)
      : folder_(folder), model_(model), base_(base), note_(note) {}

  // Throws Error{usage} if the tensor is neither a copy nor used by backward only. If this rank compares nothing, names
  // and shapes decide.
  void require(const models::StoredTensor& tensor);

 private:
  bool is_copy_of_layer(const models::StoredTensor& tensor);
  bool is_copy_of_table(const models::StoredTensor& tensor);
  bool is_copy(const models::StoredTensor& tensor, std::size_t unit, std::size_t parameter);

  const std::filesystem::path& folder_;
  const models::Model& model_;
  const BaseAgain& base_;
  const Note& note_;
  std::unique_ptr<WeightSource> weights_;  // the base's, opened for the first comparison
};

}  // namespace strata::runtime
