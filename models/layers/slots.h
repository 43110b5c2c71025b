#pragma once
#include <cstddef>

#include "device/view.h"

namespace strata::models {

// Bytes up to where the next buffer of a workspace may begin: a cache line's start.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// A tensor's place inside a larger buffer (what a block saves, or its workspace).
struct Slot {
  std::size_t offset = 0, size = 0;  // in bytes, in elements
  device::DType dtype = device::DType::fp32;

  device::View of(const device::View& whole) const {
    STRATA_CHECK_LE(offset + size * size_of(dtype), whole.bytes());
    return {whole.data + offset, size, dtype};
  }
  device::ConstView of(const device::ConstView& whole) const {
    STRATA_CHECK_LE(offset + size * size_of(dtype), whole.bytes());
    return {whole.data + offset, size, dtype};
  }
};

// Places tensors one after another, each at the start of a cache line.
class Slots {
 public:
  Slot add(std::size_t size, device::DType dtype) {
    const Slot slot{bytes_, size, dtype};
    bytes_ += aligned(size * size_of(dtype));
    return slot;
  }
  // Raw scratch of `bytes` bytes.
  Slot add_bytes(std::size_t bytes) { return add((bytes + 3) / 4, device::DType::fp32); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace strata::models
