#include "runtime/weights/floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace strata::runtime {

std::vector<float> floats_of(device::StorageFormat format, std::span<const std::byte> bytes) {
  using device::StorageFormat;
  STRATA_CHECK(format != StorageFormat::block8);
  if (is_nf4(format)) {
    const std::size_t block = stored_bytes(format, device::kNf4Block);
    std::vector<float> out(bytes.size() / block * device::kNf4Block);
    for (std::size_t i = 0; i * block < bytes.size(); ++i)
      read_nf4_block(format, bytes.subspan(i * block, block),
                     std::span(out).subspan(i * device::kNf4Block, device::kNf4Block));
    return out;
  }
  std::vector<float> out(bytes.size() / stored_bytes(format, 1));
  const auto read = [&](auto value) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      out[i] = device::to_float(value);
    }
  };
  if (format == StorageFormat::fp32) read(0.0f);
  if (format == StorageFormat::bf16) read(device::bf16{});
  if (format == StorageFormat::fp16) read(device::fp16{});
  return out;
}

namespace {

using device::kNf4Scales, device::kScaleBlock, device::StorageFormat;

// The code of the 8-bit scale nearest to x in [-1, 1]; the lower one of two that are equally near.
std::uint8_t scale_code(float x) {
  static const std::array<float, 255> kThresholds = [] {
    std::array<float, 255> thresholds{};
    for (unsigned code = 0; code < 255; ++code)
      thresholds[code] = (device::scale_value(static_cast<std::uint8_t>(code)) +
                          device::scale_value(static_cast<std::uint8_t>(code + 1))) *
                         0.5f;
    return thresholds;
  }();
  return static_cast<std::uint8_t>(std::ranges::lower_bound(kThresholds, x) - kThresholds.begin());
}

std::size_t codes_at(StorageFormat format) {
  return format == StorageFormat::nf4 ? device::kNf4Codes : device::kNf4PlainCodes;
}

}  // namespace

float nf4_scale(std::span<const float> values) {
  float most = 0;
  for (const float x : values) most = std::fmax(most, std::fabs(x));
  return most;
}

void write_nf4_block(StorageFormat format, std::span<const float> values, float offset, std::span<std::byte> block) {
  STRATA_CHECK_LE(values.size(), device::kNf4Block);
  STRATA_CHECK_EQ(block.size(), stored_bytes(format, device::kNf4Block));
  std::ranges::fill(block, std::byte{0});
  const std::size_t count = (values.size() + kScaleBlock - 1) / kScaleBlock;
  std::array<float, kNf4Scales> scales{};
  std::byte* const codes = block.data() + codes_at(format);
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = values.subspan(i * kScaleBlock, std::min(kScaleBlock, values.size() - i * kScaleBlock));
    scales[i] = nf4_scale(own);
    const float inverse = 1 / std::fmax(scales[i], 1e-38f);
    for (std::size_t j = 0; j < own.size(); ++j) {
      const std::size_t at = i * kScaleBlock + j;
      codes[at / 2] |= static_cast<std::byte>(device::nf4_code(own[j] * inverse) << (at % 2 == 0 ? 4 : 0));
    }
  }
  if (format == StorageFormat::nf4_plain) {
    std::memcpy(block.data(), scales.data(), sizeof scales);
    return;
  }
  float shared = 0;
  for (std::size_t i = 0; i < count; ++i) shared = std::fmax(shared, std::fabs(scales[i] - offset));
  std::memcpy(block.data(), &shared, sizeof shared);
  std::memcpy(block.data() + sizeof shared, &offset, sizeof offset);
  const float inverse = 1 / std::fmax(shared, 1e-38f);
  for (std::size_t i = 0; i < count; ++i)
    block[device::kNf4ScaleBytes + i] = static_cast<std::byte>(scale_code((scales[i] - offset) * inverse));
}

void rewrite_nf4_block(std::span<const float> values, std::span<std::byte> block) {
  // A scale is the largest magnitude of its values. If it was itself quantised, it may also be slightly below 0, and
  // the codes then stand for the negated values.
  write_nf4_block(StorageFormat::nf4_plain, values, 0, block);
  std::vector<float> read(values.size());
  read_nf4_block(StorageFormat::nf4_plain, block, read);
  if (std::memcmp(read.data(), values.data(), values.size_bytes()) == 0) return;
  std::vector<float> negated(values.size());
  std::ranges::transform(values, negated.begin(), std::negate<>());
  std::vector<std::byte> mirrored(block.size());
  write_nf4_block(StorageFormat::nf4_plain, negated, 0, mirrored);
  for (std::size_t at = 0; at < values.size(); at += kScaleBlock) {
    const std::size_t i = at / kScaleBlock, count = std::min(kScaleBlock, values.size() - at);
    if (std::memcmp(&read[at], &values[at], count * sizeof(float)) == 0) continue;
    copy_scale_block(mirrored, i, block, i);
    const float scale = -nf4_scale(values.subspan(at, count));
    std::memcpy(&block[i * sizeof scale], &scale, sizeof scale);
  }
}

void with_plain_scales(StorageFormat format, std::span<const std::byte> block, std::span<std::byte> plain) {
  STRATA_CHECK_EQ(block.size(), stored_bytes(format, device::kNf4Block));
  STRATA_CHECK_EQ(plain.size(), stored_bytes(StorageFormat::nf4_plain, device::kNf4Block));
  std::array<float, kNf4Scales> scales;
  device::read_nf4_scales(format, block.data(), scales.data());
  std::memcpy(plain.data(), scales.data(), sizeof scales);
  std::memcpy(plain.data() + device::kNf4PlainCodes, block.data() + codes_at(format), device::kNf4CodeBytes);
}

void copy_scale_block(std::span<const std::byte> from, std::size_t i, std::span<std::byte> to, std::size_t j) {
  constexpr std::size_t kBytes = kScaleBlock / 2;
  std::memcpy(&to[j * sizeof(float)], &from[i * sizeof(float)], sizeof(float));
  std::memcpy(&to[device::kNf4PlainCodes + j * kBytes], &from[device::kNf4PlainCodes + i * kBytes], kBytes);
}

void copy_elements(StorageFormat format, std::span<const std::byte> from, std::size_t first, std::span<std::byte> to,
                   std::size_t at, std::size_t count) {
  if (!is_nf4(format)) {
    std::memcpy(&to[stored_bytes(format, at)], &from[stored_bytes(format, first)], stored_bytes(format, count));
    return;
  }
  STRATA_CHECK(format == StorageFormat::nf4_plain && first % kScaleBlock == 0 && at % kScaleBlock == 0);
  constexpr std::size_t kBlock = device::kNf4Block;
  for (std::size_t i = 0; i < count; i += kScaleBlock)
    copy_scale_block(from.subspan(stored_bytes(format, (first + i) / kBlock * kBlock), device::kNf4PlainBytes),
                     (first + i) % kBlock / kScaleBlock,
                     to.subspan(stored_bytes(format, (at + i) / kBlock * kBlock), device::kNf4PlainBytes),
                     (at + i) % kBlock / kScaleBlock);
}

void read_nf4_block(StorageFormat format, std::span<const std::byte> block, std::span<float> values) {
  STRATA_CHECK_LE(values.size(), device::kNf4Block);
  STRATA_CHECK_EQ(block.size(), stored_bytes(format, device::kNf4Block));
  std::array<float, kNf4Scales> scales;
  device::read_nf4_scales(format, block.data(), scales.data());
  const std::byte* const codes = block.data() + codes_at(format);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = static_cast<unsigned>(codes[i / 2]);
    values[i] = device::kNf4Values[i % 2 == 0 ? pair >> 4 : pair & 0xf] * scales[i / kScaleBlock];
  }
}

}  // namespace strata::runtime
