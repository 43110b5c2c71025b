#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace strata::device {

// Alignment of every planned buffer, in bytes: a page, which is also what direct I/O and DMA want.
inline constexpr std::size_t kBufferAlignment = 4096;

// One mapping of `bytes` bytes that holds every buffer of a tier at its planned offset; never grows. Owns the mapping.
// Pages are taken from the system when first touched. Throws Error{does_not_fit} if the system refuses.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes);
  // Memory that `owner` keeps mapped, also after the arena is gone where others hold it too: a communicator's, whose
  // peers may still be reading when this rank fails and unwinds.
  static Arena adopt(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::byte* at(std::size_t offset) const { return data_ + offset; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<const void> owner_;  // null: the arena's own mapping
};

}  // namespace strata::device
