#pragma once
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace strata::text {

// Writes bytes to a file in large blocks, and hashes them.
class HashedFile {
 public:
  explicit HashedFile(AtomicFile& file);

  void write(std::span<const std::byte> bytes);
  void flush();
  // The XXH3-64 of all bytes so far, 16 hex digits.
  std::string hash() const;

 private:
  AtomicFile& file_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
};

// Writes one bit per token to a file, the lowest bit of each byte first (docs/formats.md).
class BitFile {
 public:
  explicit BitFile(AtomicFile& file) : file_(file) {}

  void add(bool value, std::uint64_t count);
  void finish();
  // The number of 1 bits.
  std::uint64_t ones() const { return ones_; }
  // After finish(): the XXH3-64 of the bytes, 16 hex digits.
  std::string hash() const { return file_.hash(); }

 private:
  HashedFile file_;
  std::uint64_t count_ = 0, ones_ = 0;
  unsigned bits_ = 0;  // bits in the unfinished byte
};

// Writes tokens to a file, `width` bytes each. The separator between two documents belongs to the first of them. A
// second file contains where documents begin, and a third one marks the tokens that count as labels (docs/formats.md).
// Documents without tokens are left out. The caller owns the files and commits them after finish().
class TokenWriter {
 public:
  // mask: null if every token counts.
  TokenWriter(AtomicFile& tokens, AtomicFile& documents, AtomicFile* mask, int width,
              std::optional<std::uint32_t> separator);

  // Tokens added from now on belong to the next document.
  void begin_document();
  // Adds tokens to the document. Either all of them count as labels, or none.
  void add(std::span<const std::uint32_t> tokens, bool counts = true);
  // Like above, with one flag per token: 0 if it is not a label. A separator counts if the token before it does.
  void add(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> counts);
  void finish();

  std::uint64_t count() const { return count_; }
  std::uint64_t documents() const { return documents_; }
  // The number of documents without tokens.
  std::uint64_t empty_documents() const { return empty_documents_ + (pending_ && begun_ ? 1 : 0); }
  // The number of tokens that count as labels.
  std::uint64_t labels() const { return mask_ ? mask_->ones() : count_; }
  bool separated() const { return separated_; }
  // After finish(): the XXH3-64 of all tokens written, 16 hex digits.
  std::string hash() const { return tokens_.hash(); }
  std::string documents_hash() const { return begins_.hash(); }
  std::string mask_hash() const { return mask_ ? mask_->hash() : ""; }

 private:
  template <typename T>
  void write_as(std::span<const std::uint32_t> tokens);
  void write(std::span<const std::uint32_t> tokens, bool counts);

  HashedFile tokens_, begins_;
  std::optional<BitFile> mask_;
  int width_;
  std::optional<std::uint32_t> separator_;
  bool begun_ = false, pending_ = true;  // a document has begun; it has no tokens yet
  bool separated_ = false, counted_ = true;
  std::uint64_t count_ = 0, documents_ = 0, empty_documents_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace strata::text
