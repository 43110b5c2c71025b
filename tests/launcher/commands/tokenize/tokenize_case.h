#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "runtime/data/files/tokens.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::launcher {

// Tokenizes files of a folder into out.bin.
class TokenizeCase : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  int run(std::vector<std::string> inputs, const std::string& tokenizer = "byte") {
    for (auto& input : inputs) input = path(input);
    return tokenize({.tokenizer = tokenizer, .out = path("out.bin"), .inputs = inputs});
  }
  std::string text() const {
    const runtime::TokenFile file(path("out.bin"), 256);
    file.check_all();  // includes the sidecar's count and hash
    std::vector<std::uint32_t> tokens(file.count());
    file.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }
  std::vector<std::uint64_t> begins() const {
    const std::string bytes = folder_.read("out.bin.documents");
    std::vector<std::uint64_t> out(bytes.size() / sizeof(std::uint64_t));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  std::size_t files() const {
    const std::filesystem::directory_iterator list(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(list), end(list)));
  }
  tests::ScratchFolder folder_;
};

// Tokens of out.bin, whatever the tokenizer.
inline std::vector<std::uint32_t> tokens_of(const std::string& path) {
  const runtime::TokenFile file(path, std::nullopt);
  file.check_all();
  std::vector<std::uint32_t> tokens(file.count());
  file.read(0, tokens);
  return tokens;
}

inline const std::string kTokenizers = (tests::source_dir() / "tests/golden/tokenizers/").string();

}  // namespace strata::launcher
