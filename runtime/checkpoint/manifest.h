#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "runtime/checkpoint/progress.h"

namespace strata::runtime {

// One file of a checkpoint, as the manifest promises it.
struct ShardEntry {
  std::string name;
  std::uint64_t bytes = 0, header_bytes = 0;
  std::uint64_t header_hash = 0;  // XXH3-64 of the first header_bytes
};

// A parameter of the model, in the order of units: the layout that every number of ranks shares.
struct TensorEntry {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool frozen = false;  // its weights are all that there is of it
  std::uint64_t elements() const;
};

// manifest.json of a checkpoint (docs/formats.md, "Checkpoints"): written last, so that what it names is there.
struct Manifest {
  std::uint64_t serial = 0;  // counts the checkpoints of a folder: the highest is the newest
  Progress progress;
  std::uint64_t micro_batches_per_step = 0;
  int ranks = 0;               // that wrote it
  std::string family, config;  // config: JSON
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> recipe;  // key -> value, as to_text(Recipe) gives them
  // Of an adapter's base, whose tensors are not in the files: where it was read, and its BaseHash (runtime/weights/
  // weights.h); no hash: the files have everything.
  std::string base_path, base_hash;
  std::string algorithms;  // of products, on a GPU (device/algorithm_table.h); else empty
  std::vector<ShardEntry> files;
};
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::size_t kMostManifestBytes = std::size_t{1} << 28;

// With its checksum: what the file holds.
std::string to_json(const Manifest& manifest);
// The same text with the checksum that belongs to it.
std::string with_checksum(std::string json);
// Throws Error{corrupt}, naming `path`, for what is damaged or no manifest; Error{usage} if a newer version wrote
// it.
Manifest parse_manifest(std::string_view json, const std::filesystem::path& path);

// The parameters of a model as a manifest lists them.
std::vector<TensorEntry> tensors_of(const models::Model& model);

}  // namespace strata::runtime
