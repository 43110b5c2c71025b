#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "device/device.h"

namespace strata::device {

// The alignment of every planned buffer, in bytes: a page, which direct I/O and DMA need too.
inline constexpr std::size_t kBufferAlignment = 4096;

// One allocation of `bytes` bytes that holds every buffer of a tier at its planned offset; it never grows. Owns the
// memory. All bytes are initially zero; the system allocates pages of host memory when they are first touched. Throws
// Error{does_not_fit} if the system refuses.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes, Device device = {});
  // Host memory of exactly this size that `device` reads and writes at full speed: pinned, for a GPU.
  static Arena host(std::size_t bytes, Device device);
  // Host memory that `owner` keeps mapped, even after the arena is destroyed if there are other owners. A communicator
  // needs this, because its peers may still be reading when this rank fails and unwinds.
  static Arena adopt(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::byte* at(std::size_t offset) const { return data_ + offset; }

  // Copy between the arena and host memory. They block, and any thread may call them.
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

// Copies between device memory and any other memory. It blocks, and any thread may call it.
void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes);

// During its lifetime, `device` can access host memory that was mapped elsewhere at full speed (pinned, for a GPU).
// Throws Error{does_not_fit} if the system refuses.
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
