#pragma once
#include <string>
#include <string_view>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// The most likely meaning of a refused value, to append to the refusal: "; use \"fp16\"" for "float16", "; write
// 5" for 5.0. Empty if that is unclear. The suggestion is an allowed value; it is never used in place of the refused
// one.
std::string meant_by(const RecipeValue& value, const RecipeKey& key);
// The first mistake inside the tables of data.train, with its source: an unknown key, a weight or files that are not
// allowed. Empty if the value is not a list of tables, or if no table is wrong.
std::string mistake_in_sources(const RecipeValue& value);
// True if `value` is one of the key's allowed names, however it is spelled: "Cosine", "eval-f1".
bool has_value(const RecipeKey& key, std::string_view value);
// Our value for another program's value of this key: "\"adamw\"" for "adamw_torch" of optimizer.name, with a note if
// the two differ. Empty if there is none.
std::string value_meant(std::string_view value, const RecipeKey& key);

}  // namespace strata::runtime
