#pragma once
#include <bit>
#include <cstdint>

#include "device/numeric/dtype.h"

namespace strata::device {

// Rounds x to one of its two neighbours in bf16, to the farther one less often, so that the mean over all 16-bit
// `random` is x (within 2^-17 of the neighbours' distance). Values that bf16 can represent stay unchanged; NaN stays
// NaN (quiet). Kernels have a vector form with the same bits.
constexpr bf16 round_stochastically(float x, std::uint16_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + random) >> 16)};
}

}  // namespace strata::device
