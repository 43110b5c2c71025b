#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata::text {

// How many bytes of a file's beginning file_kind() reads.
inline constexpr std::size_t kSignatureBytes = 4096;

// The kind of a file that is not text, by its first bytes, and what to do with it: "is a PDF: pdftotext makes text of
// it". Empty if the kind is unknown. `name` is for the commands.
std::string file_kind(std::string_view head, std::string_view name);
// The same for files whose kind is clear from their endings ("parquet", in lower case).
std::string kind_of_ending(std::string_view ending, std::string_view name);

}  // namespace strata::text
