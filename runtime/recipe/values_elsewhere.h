#pragma once
#include <string>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What a value that a key refuses most likely means, for the end of its refusal: "; you mean \"fp16\"" for "float16",
// "; write 5" for 5.0. Empty if it is not plain. What it names is allowed; it is never taken in the value's place.
std::string meant_by(const RecipeValue& value, const RecipeKey& key);

}  // namespace strata::runtime
