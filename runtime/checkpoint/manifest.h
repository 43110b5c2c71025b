#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace strata::runtime {

// One file of a checkpoint as its manifest describes it.
struct ShardEntry {
  std::string name;
  std::uint64_t bytes = 0, header_bytes = 0;
  std::uint64_t header_hash = 0;  // XXH3-64 of the first header_bytes bytes
};

// A parameter of the model, in the order of units. This layout does not depend on the number of ranks.
struct TensorEntry {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool frozen = false;  // only its weights are stored
  std::uint64_t elements() const;
};

// State of fp16 loss scaling: the scale, and the number of consecutive steps without a non-finite gradient.
struct LossScale {
  float scale = 1;
  std::int64_t growth_tracker = 0;
  bool operator==(const LossScale&) const = default;
};

// The evaluations between steps: the best one so far by evaluation.metric, and the newest.
struct Best {
  std::int64_t step = 0;
  double value = 0;
  std::int64_t since = 0;   // evaluations since then, none of them better
  std::int64_t newest = 0;  // the step of the newest evaluation
  bool operator==(const Best&) const = default;
};

// A run's state between two steps, other than its tensors.
struct Progress {
  std::int64_t step = 0, updates = 0;  // updates: Adam's t
  std::uint64_t next_micro_batch = 0;  // global index of the next step's first micro-batch
  std::uint64_t tokens = 0;            // trained on so far
  LossScale loss_scale;
  std::optional<Best> best;
  bool operator==(const Progress&) const = default;
};

// manifest.json of a checkpoint (docs/formats.md, "Checkpoints"). It is written last, so every file that it names is
// complete.
struct Manifest {
  std::uint64_t serial = 0;  // numbers the checkpoints of a folder: the highest is the newest
  Progress progress;
  std::uint64_t micro_batches_per_step = 0;
  int ranks = 0;               // the ranks that wrote the checkpoint
  std::string family, config;  // config: JSON
  std::vector<TensorEntry> tensors;
  // Key -> value, as to_text(Recipe) writes them, with absolute paths. In older manifests paths may be relative to the
  // folder in which the run was started; so may base_path.
  std::map<std::string, std::string> recipe;
  // For an adapter's checkpoint, which does not contain its base: the base's path, and its BaseHash
  // (runtime/weights/weights.h). An empty hash means that the files contain all tensors.
  std::string base_path, base_hash;
  std::string data_hash;        // the hash of the files of data.train (Trainer::data_hash); empty: not stored
  std::string validation_hash;  // likewise, of data.validation
  std::string algorithms;       // the products' algorithms on a GPU (device/algorithm_table.h); else empty
  bool boxes = false;  // the files hold parts of tensors that are boxes (shard.h), not only ranges of whole tensors
  std::vector<ShardEntry> files;
};
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 28;

// The content of the file, with its checksum.
std::string to_json(const Manifest& manifest);
// Returns `json` with its checksum filled in.
std::string with_checksum(std::string json);
// Throws Error{corrupt} naming `path` if the text is damaged or is not a manifest, Error{usage} if its version is
// newer.
Manifest parse_manifest(std::string_view json, const std::filesystem::path& path);

// The parameters of a model as a manifest lists them.
std::vector<TensorEntry> tensors_of(const models::Model& model);

}  // namespace strata::runtime
