#pragma once

#include <filesystem>

#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

// The path that the recipe of a checkpoint's run had for a key; empty if it had none.
std::filesystem::path stored_path(const Manifest& manifest, const char* key);

// The place of the model that a manifest names. In older manifests its path may be relative to the folder in which the
// run was started. `guessed`: it was found relative to a folder that may be the wrong one.
struct ModelPlace {
  std::filesystem::path path;
  bool guessed = false;
};
// `model`: the path in the manifest. `checkpoint`: the folder of the checkpoint.
ModelPlace place_of(const std::filesystem::path& model, const Manifest& manifest,
                    const std::filesystem::path& checkpoint);

}  // namespace strata::runtime
