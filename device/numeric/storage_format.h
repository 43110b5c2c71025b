#pragma once
#include <cstddef>
#include <cstdint>

#include "device/numeric/dtype.h"

namespace strata::device {

// Formats in which values are stored, in memory or in files, while nothing is computed with them: an optimizer's master
// and moments, sums of gradients, parameters at rest.
//   fp32, bf16, fp16   as that dtype; bf16 moments are rounded stochastically at each update;
//   block8             blocks of 256 elements: a float, the largest magnitude of the block, then 256 codes of a dynamic
//                      map (device/numeric/dynamic_map.h) that are parts of it: "8-bit Optimizers via Block-wise
//                      Quantization" (Dettmers et al. 2022);
//   nf4, nf4_plain     blocks of 16,384 elements in 4 bits each (device/numeric/nf4.h): frozen weights.
// Bytes that are all zero hold zeros in every format. Formats of moments come first, so that they can index tables.
enum class StorageFormat : std::uint8_t { fp32, bf16, block8, fp16, nf4, nf4_plain };

// Elements in a block of block8. In every format, moments take whole blocks of this size.
inline constexpr std::size_t kMomentBlock = 256;
// Elements of a block of nf4, and its bytes: in nf4 two floats, 256 scales of 8 bits and 8,192 bytes of codes; in
// nf4_plain the scales are floats.
inline constexpr std::size_t kNf4Block = 16384, kNf4Bytes = 8456, kNf4PlainBytes = 9216;

constexpr bool is_nf4(StorageFormat format) {
  return format == StorageFormat::nf4 || format == StorageFormat::nf4_plain;
}

// Bytes of this many elements, with a full last block. Elements and blocks follow each other without gaps.
constexpr std::size_t stored_bytes(StorageFormat format, std::size_t elements) {
  switch (format) {
    case StorageFormat::bf16:
    case StorageFormat::fp16:
      return 2 * elements;
    case StorageFormat::block8:
      return (elements + kMomentBlock - 1) / kMomentBlock * (sizeof(float) + kMomentBlock);
    case StorageFormat::nf4:
      return (elements + kNf4Block - 1) / kNf4Block * kNf4Bytes;
    case StorageFormat::nf4_plain:
      return (elements + kNf4Block - 1) / kNf4Block * kNf4PlainBytes;
    case StorageFormat::fp32:
      break;
  }
  return sizeof(float) * elements;
}

constexpr std::size_t fp32_bytes(std::size_t elements) {
  return stored_bytes(StorageFormat::fp32, elements);
}

// The format of values that are computed with.
constexpr StorageFormat format_of(DType dtype) {
  return dtype == DType::fp32 ? StorageFormat::fp32 : dtype == DType::bf16 ? StorageFormat::bf16 : StorageFormat::fp16;
}

}  // namespace strata::device
