#pragma once
#include <cstddef>
#include <string_view>

namespace strata::runtime {

// The number of letters to insert, delete or replace to turn `a` into `b` (Levenshtein 1966).
std::size_t edits(std::string_view a, std::string_view b);
// Whether a word of `letters` with this many edits is still a typo: at most one edit, or one per `per_edit` letters.
bool is_slip(std::size_t edits, std::size_t letters, std::size_t per_edit);

}  // namespace strata::runtime
