#pragma once
#include <functional>
#include <string>

namespace strata {

// Receives, on rank 0, a one-line note for the user.
using Note = std::function<void(const std::string&)>;

}  // namespace strata
