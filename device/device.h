#pragma once
#include <cstdint>
#include <string>

namespace strata::device {

// The processor that a rank computes on. Lanes, events, memory and products are made for one; host lanes and host
// memory are those of the default.
enum class Kind : std::uint8_t { cpu, cuda };

struct Device {
  Kind kind = Kind::cpu;
  int ordinal = 0;  // cuda: which of those that the process sees
  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace strata::device
