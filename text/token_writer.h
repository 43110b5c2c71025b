#pragma once
#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"

namespace strata::text {

// Writes tokens into a file, `width` bytes each, with a separator between documents; documents without a token leave
// no trace.
class TokenWriter {
 public:
  TokenWriter(AtomicFile& file, int width, std::optional<std::uint32_t> separator);

  void begin_document() { separate_ = count_ > 0 && separator_.has_value(); }
  void add(std::span<const std::uint32_t> tokens);
  std::uint64_t count() const { return count_; }
  bool separated() const { return separated_; }
  // XXH3-64 of all bytes so far, 16 hex digits.
  std::string hash() const;

 private:
  template <typename T>
  void write_as(std::span<const std::uint32_t> tokens);

  AtomicFile& file_;
  int width_;
  std::optional<std::uint32_t> separator_;
  bool separate_ = false, separated_ = false;
  std::uint64_t count_ = 0;
  std::vector<std::byte> bytes_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
};

}  // namespace strata::text
