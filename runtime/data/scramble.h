#pragma once
#include <cstdint>

namespace strata::runtime {

// The finalizer of SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit of x. It turns
// consecutive numbers into random ones. Part of the numerics contract.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace strata::runtime
