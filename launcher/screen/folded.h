#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

constexpr std::size_t kColumns = 100;  // the maximum width of a command's output

// Wraps prose at spaces to lines of at most `columns`; continuation lines are indented. Existing line breaks stay, and
// a word that is longer than a line (a path) stays whole.
std::string folded(std::string_view text, std::size_t indent = 0, std::size_t columns = kColumns);

// Prints wrapped text as notes (printable.h), including each note's prefix in the width.
void note_folded(std::string_view text);

// Rows with the same number of cells, as lines with line breaks. The first column is left-aligned, the others
// right-aligned. Columns are two spaces apart, or one if the width is too small.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = kColumns);

}  // namespace strata::launcher
