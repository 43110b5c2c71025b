#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace strata::launcher {

// The labels of documents: `problem` as in TokenSidecar::Labels (empty: none), and the names of the classes.
struct RandomLabels {
  std::string problem;
  std::vector<std::string> names;
};

// Writes a token file of random documents, with its sidecar and labels. Ids are below `vocabulary`, whose last id is
// the mask; lengths are from an eighth of `longest` to all of it; there are `tokens` tokens in all. The same arguments
// give the same file. Throws Error{failed}.
void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens, const RandomLabels& labels = {});

}  // namespace strata::launcher
