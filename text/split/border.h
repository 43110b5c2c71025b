#pragma once
#include <cstddef>
#include <string_view>

#include "text/subwords/vocabulary.h"

namespace strata::text {

// The last place before `limit`, inside `text` (which need not be valid UTF-8), of one of `separators` (ASCII)
// that stands alone between two letters; 0: none. ascii: letters of ASCII only; else also of scripts whose blocks have
// long been full, so that every table of Unicode has the same for them, that no normalization form changes, and that no
// mark before or after turns into others.
std::size_t last_border(std::string_view text, std::size_t limit, std::string_view separators, bool ascii);

// SentencePiece's mark of a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

// Whether a token has `mark` after another character: then a token may reach from one word into the next.
bool reaches_over(std::string_view token, std::string_view mark);
// Whether no token of the vocabulary does, and the mark is one: a merge never joins what stands before it to it.
bool words_stay_apart(const Vocabulary& vocabulary, std::string_view mark);

}  // namespace strata::text
