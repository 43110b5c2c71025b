#pragma once
#include <cstdint>
#include <string>

namespace strata::device {

// The processor on which a rank computes. Lanes, events, memory and products are made for one. Host lanes and host
// memory belong to the default one.
enum class Kind : std::uint8_t { cpu, cuda };

struct Device {
  Kind kind = Kind::cpu;
  int ordinal = 0;  // cuda: the index among the GPUs that the process sees
  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace strata::device
