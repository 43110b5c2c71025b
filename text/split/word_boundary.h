#pragma once
#include <cstddef>
#include <string_view>

#include "text/subwords/vocabulary.h"

namespace strata::text {

// The last place before `limit`, inside `text` (which need not be valid UTF-8), at which one of `separators` (ASCII)
// stands alone between two letters; 0 if there is none. ascii: only ASCII letters. Otherwise also letters of scripts
// whose blocks have long been full, so that every Unicode table agrees on them, that no normalization form changes, and
// that no adjoining mark turns into others.
std::size_t last_word_boundary(std::string_view text, std::size_t limit, std::string_view separators, bool ascii);

// SentencePiece's mark for a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

// Whether a token has `mark` after another character. Such a token may span two words.
bool reaches_over(std::string_view token, std::string_view mark);
// Whether no token of the vocabulary does that, and the mark is a token. Then a merge never joins the mark to the text
// before it.
bool words_stay_apart(const Vocabulary& vocabulary, std::string_view mark);

}  // namespace strata::text
