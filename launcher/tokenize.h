#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace strata::launcher {

struct TokenizeOptions {
  std::string tokenizer;            // "byte"
  std::filesystem::path out;        // OUT.bin; OUT.bin.json is written beside it
  std::vector<std::string> inputs;  // text files, or .jsonl with a "text" in each line; "-": standard input
};

// `strata tokenize`: inputs one after the other, nothing added between them; in pieces, so of any size. Both files are
// replaced whole or not at all. Returns the exit code; throws Error.
int tokenize(const TokenizeOptions& options);

}  // namespace strata::launcher
