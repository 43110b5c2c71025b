#pragma once
#include <functional>
#include <string>

namespace strata {

// Is told, on rank 0, what a user should know, in one line.
using Note = std::function<void(const std::string&)>;

}  // namespace strata
