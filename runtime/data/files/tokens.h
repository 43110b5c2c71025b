#pragma once
// runtime/data/files/ reads what `strata tokenize` wrote (docs/formats.md): tokens (here), their sidecar
// (token_sidecar.h), where documents begin (documents.h), and their labels (labels.h).
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "comm/same_files.h"
#include "runtime/data/files/token_sidecar.h"

namespace strata::runtime {

// Tokens from `first` to `last`.
struct TokenRange {
  std::uint32_t first, last;
};

// A mapped token file: nanoGPT's (no header) or llm.c's (docs/guide.md, "Token files"). Throws an Error{corrupt} with
// file, offset, expected and found if it is empty, truncated, or contradicts its sidecar.
class TokenFile {
 public:
  // `vocab_size`: the model's. It gives the width if neither header nor sidecar does, and every token must be below it.
  // nullopt (for `inspect`): the width comes from the file, or is 2 bytes, and any token is allowed.
  TokenFile(std::filesystem::path path, std::optional<std::int64_t> vocab_size);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t count() const { return count_; }
  int width() const { return width_; }
  // All tokens are below it.
  std::uint64_t limit() const { return limit_; }
  // For a file with a sidecar, opened before its model was known: applies the model's vocabulary afterwards.
  void limit_to(std::int64_t vocab_size);
  bool has_header() const { return header_bytes_ != 0; }
  const std::optional<TokenSidecar>& sidecar() const { return sidecar_; }

  // Copies tokens [begin, begin + out.size()) to out. Throws Error{corrupt} for a token outside the vocabulary, or if
  // the file has been truncated.
  void read(std::uint64_t begin, std::span<std::uint32_t> out) const;
  // The number of tokens in [begin, begin + count) that are in none of the sets, and whether there is one. Fast enough
  // for many calls in a row, because neither the vocabulary nor the file's size is checked.
  std::uint64_t count_outside(std::uint64_t begin, std::uint64_t count, std::span<const TokenRange> sets) const;
  bool any_outside(std::uint64_t begin, std::uint64_t count, std::span<const TokenRange> sets) const;
  // Throws Error{corrupt} if the file has been truncated.
  void require_untruncated() const { file_.require_untruncated(); }
  // Reads every token once. Throws Error{corrupt} at the first one outside the vocabulary, or if the sidecar's hash
  // differs.
  void check_all() const;

  // The file and how it is read, for comparison between ranks: all of its bytes if it has at most 1 GiB, otherwise
  // samples.
  comm::FileFingerprint fingerprint(const std::string& key) const;

 private:
  [[noreturn]] void outside(std::uint64_t index, std::uint64_t value) const;
  template <typename T>
  std::span<const T> tokens(std::uint64_t begin, std::uint64_t count) const;
  template <typename T>
  void read_as(std::uint64_t begin, std::span<std::uint32_t> out) const;

  MappedFile file_;
  std::optional<TokenSidecar> sidecar_;
  std::size_t header_bytes_ = 0;
  int width_ = 2;
  std::uint64_t count_ = 0;
  std::uint64_t limit_ = 0;  // tokens are below it
};

// The files that match `patterns` (paths or globs), each pattern's in byte order. Throws Error{usage} if a pattern
// matches nothing; `key` names it.
std::vector<std::filesystem::path> expand_patterns(std::span<const std::string> patterns, const char* key);

// Checks files below 1 GiB completely (larger ones are checked when they are read). Appends this rank's view of each to
// `fingerprints`.
void check_token_files(std::span<const TokenFile> files, const char* key,
                       std::vector<comm::FileFingerprint>& fingerprints);
// Opens the files that match `patterns`, and checks them as above.
std::vector<TokenFile> open_token_files(std::span<const std::string> patterns, const char* key, std::int64_t vocab_size,
                                        std::vector<comm::FileFingerprint>& fingerprints);

}  // namespace strata::runtime
