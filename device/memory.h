#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "device/device.h"

namespace strata::device {

// Alignment of every planned buffer, in bytes: a page, which is also what direct I/O and DMA want.
inline constexpr std::size_t kBufferAlignment = 4096;

// One allocation of `bytes` bytes that holds every buffer of a tier at its planned offset; never grows. Owns the
// memory. All its bytes are zero at first; pages of the host are taken from the system when first touched. Throws
// Error{does_not_fit} if the system refuses.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes, Device device = {});
  // Host memory, of exactly this size, that `device` reads and writes at full speed: pinned, for a GPU.
  static Arena host(std::size_t bytes, Device device);
  // Memory of the host that `owner` keeps mapped, even after the arena is gone if others hold it too: a
  // communicator's, whose peers may still be reading when this rank fails and unwinds.
  static Arena adopt(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::byte* at(std::size_t offset) const { return data_ + offset; }

  // Copies between the arena and memory of the host; they block, and any thread may call them.
  void read(std::size_t offset, std::span<std::byte> out) const;
  void write(std::size_t offset, std::span<const std::byte> in);

 private:
  Arena(std::size_t bytes, Device device, bool on_host);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  bool on_host_ = true;
  std::shared_ptr<const void> owner_;  // null: the arena's own memory
};

// Between memory of the device and any other, blocking; any thread may call it.
void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes);

// Memory of the host that others mapped, as `device` reads and writes it at full speed while this lives: pinned, for a
// GPU. Throws Error{does_not_fit} if the system refuses.
class Pin {
 public:
  Pin(Device device, std::byte* data, std::size_t bytes);
  ~Pin();
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;

 private:
  Device device_;
  std::byte* data_;
};

}  // namespace strata::device
