#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata::text {

// How many bytes of a file's beginning file_kind() looks at.
inline constexpr std::size_t kSignatureBytes = 4096;

// What a file is that is no text, by its first bytes, and what to do with it: "is a PDF: pdftotext makes text of it".
// Empty if nothing is known of it. `name` is for the commands.
std::string file_kind(std::string_view head, std::string_view name);
// The same of files that their names' endings ("parquet", in small letters) say enough of.
std::string kind_of_ending(std::string_view ending, std::string_view name);

}  // namespace strata::text
