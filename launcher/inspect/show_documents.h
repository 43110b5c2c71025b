#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>

namespace strata::launcher {

// `strata inspect OUT.bin --show N`: prints the first `number` documents as text, with tokens that count as labels in
// green (colour: for a terminal) or in brackets. tokenizer: "byte" or a Hugging Face directory; required if the sidecar
// names another than `byte`. Returns the exit code; throws Error{usage} if it is missing or not the tokens' own.
int show_documents(const std::filesystem::path& path, std::uint64_t number,
                   const std::optional<std::filesystem::path>& tokenizer, bool colour, std::ostream& out);

}  // namespace strata::launcher
