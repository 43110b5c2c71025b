#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

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

// The folder inside `folder`, a trainer's or peft's output, that the user probably means: the newest checkpoint-N (the
// largest N) with one of these files, or else the only subfolder with one of them.
std::optional<std::filesystem::path> subfolder_with(std::span<const std::string_view> files,
                                                    const std::filesystem::path& folder);

}  // namespace strata::runtime
