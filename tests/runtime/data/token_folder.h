#pragma once
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/files/tokens.h"
#include "tests/scratch_folder.h"

namespace strata::tests {

// Writes token files of documents in the same way as tokenize.
class TokenFolder {
 public:
  explicit TokenFolder(std::int64_t vocabulary = 60000) : vocabulary_(vocabulary) {}

  // Facts about the tokenizer, for sidecars.
  std::optional<std::uint32_t> mask_token;
  std::optional<std::vector<std::uint32_t>> special_tokens;

  // Writes a file of documents of these lengths, whose tokens count up from `first`. mask: "0" or "1" for each token;
  // "1" counts. Returns the path.
  std::filesystem::path write(const std::string& name, const std::vector<std::uint64_t>& lengths,
                              std::optional<std::string_view> mask = std::nullopt, std::uint32_t first = 0) const {
    std::vector<std::uint64_t> begins;
    std::uint64_t count = 0;
    for (const std::uint64_t length : lengths) {
      begins.push_back(count);
      count += length;
    }
    std::vector<std::uint16_t> tokens(count);
    for (std::uint64_t i = 0; i < count; ++i)
      tokens[i] = static_cast<std::uint16_t>((first + i) % static_cast<std::uint64_t>(vocabulary_));
    return write(name, tokens, begins, mask);
  }
  // The same for these tokens, with documents that begin here.
  std::filesystem::path write(const std::string& name, const std::vector<std::uint16_t>& tokens,
                              const std::vector<std::uint64_t>& begins, std::optional<std::string_view> mask) const {
    const std::uint64_t count = tokens.size();
    runtime::TokenSidecar sidecar{.vocab_size = vocabulary_, .width = 2, .tokenizer = "made", .count = count};
    sidecar.mask_token = mask_token;
    sidecar.special_tokens = special_tokens;
    sidecar.hash = put(name, bytes_of(tokens));
    sidecar.documents = {begins.size(), put(name + ".documents", bytes_of(begins))};
    if (mask) {
      std::string bits((count + 7) / 8, '\0');
      std::uint64_t labels = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        const bool counts = mask->at(i) == '1';
        bits[i / 8] = static_cast<char>(bits[i / 8] | counts << i % 8);
        labels += counts;
      }
      sidecar.mask = {labels, put(name + ".mask", bits)};
    }
    folder_.write(name + ".json", runtime::to_json(sidecar));
    return folder_.path() / name;
  }
  std::vector<runtime::TokenFile> open(const std::vector<std::string>& names) const {
    std::vector<runtime::TokenFile> out;
    for (const std::string& name : names) out.emplace_back(folder_.path() / name, vocabulary_);
    return out;
  }
  // Writes a file with these bytes, and returns their hash in the form of sidecars.
  std::string put(const std::string& name, const std::string& bytes) const {
    folder_.write(name, bytes);
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  }
  template <typename T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  const ScratchFolder& folder() const { return folder_; }

 private:
  std::int64_t vocabulary_;
  ScratchFolder folder_;
};

}  // namespace strata::tests
