#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace strata::offload {

// Keeps an XXH3 hash in memory of every page written to a tier: 1/512 of its bytes. It hashes pages rather than blocks,
// because a read may cover only parts of what several writes left. Thread-safe for calls whose ranges do not overlap.
class Checksums {
 public:
  explicit Checksums(std::uint64_t bytes);
  void record(std::uint64_t offset, std::span<const std::byte> bytes);
  // Offset of the first page whose bytes differ from those recorded. Pages never recorded pass.
  std::optional<std::uint64_t> mismatch(std::uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  std::vector<std::uint64_t> pages_;  // 0: never recorded
};

}  // namespace strata::offload
