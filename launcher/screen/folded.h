#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

constexpr std::size_t kColumns = 100;  // that a line of a command's output has at most

// Prose in lines of at most `columns`, broken at spaces; those that go on are indented. Line breaks in it stay, and a
// word that is longer (a path) stays whole.
std::string folded(std::string_view text, std::size_t indent = 0, std::size_t columns = kColumns);

// The same as notes (printable.h), within the columns with what stands before each.
void note_folded(std::string_view text);

// Rows of as many cells each, in lines that end in a line break: the first cell stands at the left, the others below
// each other's ends, two spaces apart, or one if `columns` are too few for that.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = kColumns);

}  // namespace strata::launcher
