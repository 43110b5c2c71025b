#pragma once
#include <cstddef>
#include <string_view>

#include "text/subwords/vocabulary.h"

namespace strata::text {

// The last place before `limit` in `text` (which need not be valid UTF-8) at which one of `separators` (ASCII) stands
// alone between two letters; 0 if there is none. ascii: only ASCII letters count. Otherwise letters of some other
// scripts count too: scripts whose Unicode blocks have long been full (all tables agree on these), and whose letters
// are changed neither by a normalization form nor by an adjoining mark.
std::size_t last_word_boundary(std::string_view text, std::size_t limit, std::string_view separators, bool ascii);

// SentencePiece's mark for a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

// Whether a token contains `mark` after another character. Such a token may span two words.
bool reaches_over(std::string_view token, std::string_view mark);
// Whether the mark is a token and no token of the vocabulary spans two words. Then a merge never joins the mark to the
// text before it.
bool words_stay_apart(const Vocabulary& vocabulary, std::string_view mark);

}  // namespace strata::text
