#pragma once
#include <cstddef>

#include "device/view.h"

namespace strata::models {

// Rounds up to whole cache lines: the next buffer of a workspace begins at a cache line.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// The activations that a forward writes: saved for backward, or passing, which means that nothing needs them after the
// call.
struct ActivationViews {
  device::View saved, passing;
};

// A tensor's place inside a larger buffer (a block's saved values, or its workspace).
struct Slot {
  std::size_t offset = 0, size = 0;  // in bytes, in elements
  device::DType dtype = device::DType::fp32;
  bool passing = false;  // it lies in ActivationViews::passing

  device::View of(const device::View& whole) const {
    STRATA_CHECK_LE(offset + size * size_of(dtype), whole.bytes());
    return {whole.data + offset, size, dtype};
  }
  // The same in backward, which only reads saved activations.
  device::ConstView of(const device::ConstView& whole) const {
    STRATA_CHECK(!passing);
    STRATA_CHECK_LE(offset + size * size_of(dtype), whole.bytes());
    return {whole.data + offset, size, dtype};
  }
  device::View of(const ActivationViews& all) const { return of(passing ? all.passing : all.saved); }
};

// Places tensors one after another, each at the start of a cache line.
class Slots {
 public:
  // passing: the slots are for activations that only the forward needs.
  explicit Slots(bool passing = false) : passing_(passing) {}

  Slot add(std::size_t size, device::DType dtype) {
    const Slot slot{bytes_, size, dtype, passing_};
    bytes_ += aligned(size * size_of(dtype));
    return slot;
  }
  // Raw scratch of `bytes` bytes.
  Slot add_bytes(std::size_t bytes) { return add((bytes + 3) / 4, device::DType::fp32); }
  std::size_t bytes() const { return bytes_; }

 private:
  bool passing_;
  std::size_t bytes_ = 0;
};

}  // namespace strata::models
