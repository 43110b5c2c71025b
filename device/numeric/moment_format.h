#pragma once
#include <cstddef>
#include <cstdint>

namespace strata::device {

// How an optimizer's moment lies in memory, always in whole blocks of 256 elements:
//   fp32    256 floats;
//   bf16    256 bf16, rounded stochastically at each update;
//   block8  a float, the largest magnitude of the block, then 256 codes of a dynamic map
//           (device/numeric/dynamic_map.h) that are parts of it: "8-bit Optimizers via Block-wise Quantization"
//           (Dettmers et al. 2022).
// Bytes that are all zero hold zeros in every format.
enum class MomentFormat : std::uint8_t { fp32, bf16, block8 };

inline constexpr std::size_t kMomentBlock = 256;

// Bytes of a moment of so many elements. Its blocks follow each other, so block k begins at byte
// k * moment_bytes(format, kMomentBlock).
constexpr std::size_t moment_bytes(MomentFormat format, std::size_t elements) {
  const std::size_t blocks = (elements + kMomentBlock - 1) / kMomentBlock;
  switch (format) {
    case MomentFormat::bf16:
      return blocks * 2 * kMomentBlock;
    case MomentFormat::block8:
      return blocks * (sizeof(float) + kMomentBlock);
    case MomentFormat::fp32:
      break;
  }
  return blocks * sizeof(float) * kMomentBlock;
}

}  // namespace strata::device
