#pragma once
#include <string>
#include <string_view>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What a value that a key refuses most likely means, for the end of its refusal: "; you mean \"fp16\"" for "float16",
// "; write 5" for 5.0. Empty if it is not plain. What it names is allowed; it is never taken in the value's place.
std::string meant_by(const RecipeValue& value, const RecipeKey& key);
// Whether the key names `value` among what is allowed, however it is written: "Cosine", "eval-f1".
bool has_value(const RecipeKey& key, std::string_view value);
// What another program's value is for this key: "\"adamw\"" for "adamw_torch" of optimizer.name, with a note if it
// differs. Empty if it is none.
std::string value_meant(std::string_view value, const RecipeKey& key);

}  // namespace strata::runtime
