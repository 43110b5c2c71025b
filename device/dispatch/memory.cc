#include "device/memory.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/backend.h"

namespace strata::device {

Arena::Arena(std::size_t bytes, Device device) : Arena(bytes, device, device.kind == Kind::cpu) {}

Arena::Arena(std::size_t bytes, Device device, bool on_host) : bytes_(bytes), device_(device), on_host_(on_host) {
  const Backend& of = backend(device.kind);
  if (bytes > 0) data_ = on_host ? of.allocate_host(device, bytes) : of.allocate(device, bytes);
}

Arena Arena::host(std::size_t bytes, Device device) {
  return Arena(bytes, device, true);
}

Arena Arena::adopt(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner) {
  Arena arena;
  arena.data_ = data;
  arena.bytes_ = bytes;
  arena.owner_ = std::move(owner);
  return arena;
}

Arena::~Arena() {
  if (!data_ || owner_) return;
  const Backend& of = backend(device_.kind);
  on_host_ ? of.free_host(device_, data_, bytes_) : of.free(device_, data_, bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      on_host_(other.on_host_),
      owner_(std::move(other.owner_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(on_host_, other.on_host_);
  std::swap(owner_, other.owner_);
  return *this;
}

void Arena::read(std::size_t offset, std::span<std::byte> out) const {
  STRATA_CHECK_LE(offset + out.size(), bytes_);
  if (on_host_)
    std::memcpy(out.data(), at(offset), out.size());
  else
    copy(device_, out.data(), at(offset), out.size());
}

void Arena::write(std::size_t offset, std::span<const std::byte> in) {
  STRATA_CHECK_LE(offset + in.size(), bytes_);
  if (on_host_)
    std::memcpy(at(offset), in.data(), in.size());
  else
    copy(device_, at(offset), in.data(), in.size());
}

void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes) {
  backend(device.kind).copy(device, to, from, bytes);
}

Pin::Pin(Device device, std::byte* data, std::size_t bytes) : device_(device), data_(data) {
  if (const auto pin = backend(device.kind).pin) pin(device, data, bytes);
}

Pin::~Pin() {
  if (const auto unpin = backend(device_.kind).unpin; data_ && unpin) unpin(device_, data_);
}

Pin::Pin(Pin&& other) noexcept : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace strata::device
