#pragma once
#include <cstdint>

namespace strata::device {

// The processor on which a rank computes. Each lane, event, memory and product is created for one device. Host lanes
// and host memory belong to the default device.
enum class Kind : std::uint8_t { cpu, cuda };

struct Device {
  Kind kind = Kind::cpu;
  int ordinal = 0;  // cuda: the index among the GPUs that the process sees
  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace strata::device
