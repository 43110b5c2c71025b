#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/files/mapped_file.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

// Opens a file that the sidecar of a token file names, and compares it with the sidecar's hash. Throws Error{usage} if
// it is missing, Error{corrupt} if its hash or (if given) its number of bytes differs.
MappedFile open_companion(const TokenFile& tokens, const std::filesystem::path& path, const std::string& named,
                          std::optional<std::uint64_t> bytes = {});

// The start of each document in a token file, which tokens count as labels, and the tokens' types, from the files that
// the sidecar names (docs/formats.md). The token file outlives it.
class Documents {
 public:
  // Throws Error{usage} if the sidecar names no documents. Throws Error{corrupt} if a file contradicts the sidecar, or
  // if documents are empty, out of order or beyond the last token.
  explicit Documents(const TokenFile& file);

  std::uint64_t count() const { return begins_.size(); }
  // Document i has tokens [begin(i), begin(i + 1)).
  std::uint64_t begin(std::uint64_t i) const { return i < begins_.size() ? begins_[i] : tokens_; }
  // The document of a token, found in log(count()) steps.
  std::uint64_t document_of(std::uint64_t token) const {
    return static_cast<std::uint64_t>(std::upper_bound(begins_.begin(), begins_.end(), token) - begins_.begin()) - 1;
  }
  // The type of a token: 0 or 1.
  std::uint32_t type(std::uint64_t token) const { return types_.bytes().empty() ? 0 : bit(types_, token); }
  bool has_mask() const { return !mask_.bytes().empty(); }
  bool counts(std::uint64_t token) const;
  // The number of tokens in [begin, end) that count as labels.
  std::uint64_t labels(std::uint64_t begin, std::uint64_t end) const;

 private:
  static unsigned bit(const MappedFile& bits, std::uint64_t token) {
    return std::to_integer<unsigned>(bits.bytes()[token / 8]) >> token % 8 & 1;
  }

  MappedFile file_, mask_, types_;
  std::span<const std::uint64_t> begins_;
  std::uint64_t tokens_;
};

}  // namespace strata::runtime
