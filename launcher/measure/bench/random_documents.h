#pragma once
#include <cstdint>
#include <filesystem>

namespace strata::launcher {

// Writes a token file of random documents, with its sidecar: ids below `vocabulary`, of which the
// last is the mask, lengths from an eighth of
// `longest` to all of it, until there are `tokens` of them. The same for the same arguments. Throws Error{failed}.
void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens);

}  // namespace strata::launcher
