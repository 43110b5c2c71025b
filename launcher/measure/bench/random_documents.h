#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace strata::launcher {

// What each document is: `problem` as TokenSidecar::Labels has it, none if empty, and the names of the classes.
struct RandomLabels {
  std::string problem;
  std::vector<std::string> names;
};

// Writes a token file of random documents, with its sidecar: ids below `vocabulary`, of which the last is the mask,
// lengths from an eighth of `longest` to all of it, until there are `tokens` of them; and labels. The same for the same
// arguments. Throws Error{failed}.
void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens, const RandomLabels& labels = {});

}  // namespace strata::launcher
