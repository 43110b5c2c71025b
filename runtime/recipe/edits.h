#pragma once
#include <cstddef>
#include <string_view>

namespace strata::runtime {

// Letters to add, drop or replace to make `b` of `a` (Levenshtein 1966).
std::size_t edits(std::string_view a, std::string_view b);
// Whether so many of a word of `letters` are still a slip: one, or one for each `per_edit` letters.
bool is_slip(std::size_t edits, std::size_t letters, std::size_t per_edit);

}  // namespace strata::runtime
