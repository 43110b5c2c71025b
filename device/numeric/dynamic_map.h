#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace strata::device {

// The dynamic maps of "8-bit Optimizers via Block-wise Quantization" (Dettmers et al. 2022), with the values that
// bitsandbytes publishes: a byte for a number in [-1, 1] (signed) or [0, 1] (unsigned). There are seven decades, each
// cut into twice as many equal steps as the decade below it, and a byte stands for the middle of its step. Zero and one
// have their own bytes; -1 has none. If bitsandbytes' codes are counted in the order of their values, the byte is the
// code itself (unsigned), or 127 - code as an int8 (signed), so a zero byte is zero in both.
//
// The values need no table of 256 entries: with n = |byte| (signed) or byte + 1 (unsigned), e = floor(log2 n) is the
// decade, in which the value is linear in n.
struct DynamicMap {
  float slope[8], offset[8];  // value = slope * n + offset; at (e + 127) % 8, which n's exponent as a float gives
  // At e % 8:
  float least[8];            // the smallest number that rounds into the decade; numbers below it belong to e - 1
  float steps[8], shift[8];  // |byte| = floor(steps * value + shift)
  float most[8];             // the last of the decade, if it is smaller
  float exponent;            // such that floor(log10(value) + exponent) is e or e + 1
  int first;                 // the lowest decade

  // As decode() and encode() below, for kernels with their own copy of a map.
  template <bool kSigned>
  constexpr float value_of(std::uint8_t byte) const;
  template <bool kSigned>
  constexpr std::uint8_t byte_of(float value) const;
};

constexpr DynamicMap make_dynamic_map(bool has_sign) {
  constexpr double kDecades[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  DynamicMap map{};
  map.first = has_sign ? 0 : 1;
  // 0.03, because encode()'s logarithm is too small by up to 0.026.
  map.exponent = has_sign ? 7.03f : 8.03f;
  const double lead = has_sign ? 0 : 1;  // n minus the byte
  double below = 0;                      // the largest value in the decade below
  for (int e = map.first; e < map.first + 7; ++e) {
    const double count = 1 << e, base = kDecades[e + 1 - map.first];
    map.slope[(e + 7) % 8] = static_cast<float>(0.9 * base / count);
    map.offset[(e + 7) % 8] = static_cast<float>(base * (0.45 / count - 0.8));
    map.least[e] = static_cast<float>((below + base * (0.1 + 0.45 / count)) / 2);
    map.steps[e] = static_cast<float>(count / (0.9 * base));
    map.shift[e] = static_cast<float>(count * 8 / 9 - lead);
    map.most[e] = static_cast<float>(2 * count - 1 - lead);
    below = base * (1 - 0.45 / count);
  }
  // One is n = 128, e = 7, or n = 256, e = 8. Zero (n = 1, e = 0) shares the latter's entry.
  const int one = has_sign ? 7 : 0;
  map.slope[(one + 7) % 8] = has_sign ? 0.0f : static_cast<float>(1.0 / 255);
  map.offset[(one + 7) % 8] = has_sign ? 1.0f : -static_cast<float>(1.0 / 255);
  map.least[one] = static_cast<float>((below + 1) / 2);
  map.steps[one] = has_sign ? 0.0f : 300.0f;  // the result is above 255, and is limited to it
  map.shift[one] = has_sign ? 128.0f : 0.0f;
  map.most[one] = 300.0f;
  if (!has_sign) {
    // Only zero rounds to zero: a zero second moment with a non-zero first moment would make a step of moment1 / eps.
    // The line through (0, 1) cuts the decade's two steps, like the other one, at the threshold 0.55e-6.
    map.least[1] = std::numeric_limits<float>::denorm_min();
    map.steps[1] = static_cast<float>(1 / 0.55e-6);
    map.shift[1] = 1;
  }
  return map;
}
inline constexpr DynamicMap kSignedMap = make_dynamic_map(true), kUnsignedMap = make_dynamic_map(false);
inline constexpr float kLog10Of2 = 0.30103f;

template <bool kSigned>
constexpr float DynamicMap::value_of(std::uint8_t byte) const {
  const int count = kSigned ? static_cast<std::int8_t>(byte) : byte + 1, n = count < 0 ? -count : count;
  if (n == 0) return 0;
  const auto field = std::bit_cast<std::uint32_t>(static_cast<float>(n)) >> 23;
  const float value = __builtin_fmaf(slope[field % 8], static_cast<float>(n), offset[field % 8]);
  return kSigned && count > 0 ? -value : value;
}

template <bool kSigned>
constexpr std::uint8_t DynamicMap::byte_of(float value) const {
  const float x = kSigned && value < 0 ? -value : value;
  if (kSigned && x < least[0]) return 0;
  // log2 of a float is its bits / 2^23 - 127, within 0.086.
  const float log10 = __builtin_fmaf(static_cast<float>(std::bit_cast<std::int32_t>(x)), kLog10Of2 * 0x1p-23f,
                                     -127 * kLog10Of2 + exponent);
  int e = static_cast<int>(log10);
  if (e < first) e = first;
  if (x < least[e % 8]) --e;
  const float step = __builtin_fmaf(steps[e % 8], x, shift[e % 8]);
  const int n = static_cast<int>(step < most[e % 8] ? step : most[e % 8]);
  if (!kSigned) return static_cast<std::uint8_t>(n < 255 ? n : 255);
  const int count = value < 0 ? n : -n;
  return static_cast<std::uint8_t>(count < 127 ? count : 127);
}

// The value of a byte. The CPU's kernels have vector forms of both functions, with the same bits.
template <bool kSigned>
constexpr float decode(std::uint8_t byte) {
  return (kSigned ? kSignedMap : kUnsignedMap).value_of<kSigned>(byte);
}

// The byte of the nearest value, up to the rounding of one fp32 fma, for a number in the map's range (or above it by a
// rounding).
template <bool kSigned>
constexpr std::uint8_t encode(float value) {
  return (kSigned ? kSignedMap : kUnsignedMap).byte_of<kSigned>(value);
}

}  // namespace strata::device
