#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>

#include "models/objective.h"

namespace strata::launcher {

// The layer of class scores that an adapter's files hold, for a base model that is not a classifier.
struct AdapterHead {
  models::Objective objective{};
  std::size_t classes = 0;
};
// nullopt: the adapter has no such layer. Throws Error{usage} if the folder is none of peft's, or does not say what is
// classified.
std::optional<AdapterHead> head_of_adapter(const std::filesystem::path& folder);

}  // namespace strata::launcher
