#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>

namespace strata::launcher {

// `strata inspect OUT.bin --show N`: the first `number` documents as text, what counts as a label in green (colour: for
// a terminal) or in brackets. tokenizer: "byte" or a Hugging Face directory; needed if the sidecar names another
// than `byte`. Returns the exit code; throws Error{usage} if there is none, or it is another than the tokens'.
int show_documents(const std::filesystem::path& path, std::uint64_t number,
                   const std::optional<std::filesystem::path>& tokenizer, bool colour, std::ostream& out);

}  // namespace strata::launcher
