#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace strata::device {

// The dynamic maps of "8-bit Optimizers via Block-wise Quantization" (Dettmers et al. 2022), as bitsandbytes publishes
// them: 8-bit codes, in the order of their values, for numbers of [-1, 1] (signed) or [0, 1] (unsigned). Seven decades,
// each cut into twice as many equal steps as the one below it; a code stands for the middle of its step. Zero and one
// have codes of their own.
//
// No table of 256 values is looked up: with n = |code - 127| (signed) or code + 1 (unsigned), e = floor(log2 n) is the
// decade and the value is linear in n there. An entry of the tables below is found by e % 8.
struct DynamicMap {
  float slope[8], offset[8];  // value = slope * n + offset
  float least[8];             // the smallest number that rounds into decade e; below it, e - 1
  float steps[8], shift[8];   // n = floor(steps * value + shift), within [2^e, 2^(e+1))
  float exponent;             // what floor(log10(value) + exponent) needs to be e, or one above
  int first;                  // the lowest decade
};

constexpr DynamicMap make_dynamic_map(bool has_sign) {
  constexpr double kDecades[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  DynamicMap map{};
  map.first = has_sign ? 0 : 1;
  // 0.03: the logarithm that encode() takes is too small by up to 0.026.
  map.exponent = has_sign ? 7.03f : 8.03f;
  double below = 0;  // the largest value of the decade below
  for (int e = map.first; e < map.first + 7; ++e) {
    const double count = 1 << e, base = kDecades[e + 1 - map.first];
    map.slope[e] = static_cast<float>(0.9 * base / count);
    map.offset[e] = static_cast<float>(base * (0.45 / count - 0.8));
    map.steps[e] = static_cast<float>(count / (0.9 * base));
    map.shift[e] = static_cast<float>(count * 8 / 9);
    map.least[e] = static_cast<float>((below + base * (0.1 + 0.45 / count)) / 2);
    below = base * (1 - 0.45 / count);
  }
  // One: n = 128, e = 7, or n = 256, e = 8, whose entry is also that of zero, n = 1, e = 0.
  const int one = has_sign ? 7 : 0;
  map.slope[one] = has_sign ? 0.0f : static_cast<float>(1.0 / 255);
  map.offset[one] = has_sign ? 1.0f : -map.slope[one];
  map.steps[one] = has_sign ? 0.0f : 300.0f;
  map.shift[one] = has_sign ? 128.0f : 1.0f;
  map.least[one] = static_cast<float>((below + 1) / 2);
  // Of the unsigned map only zero rounds to zero: a second moment of zero beside a first that is not would make a step
  // of moment1 / eps.
  if (!has_sign) map.least[1] = std::numeric_limits<float>::denorm_min();
  return map;
}
inline constexpr DynamicMap kSignedMap = make_dynamic_map(true), kUnsignedMap = make_dynamic_map(false);

// The value of a code. Kernels have vector forms of both functions, with the same bits.
template <bool kSigned>
constexpr float decode(std::uint8_t code) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const int n = kSigned ? (code < 127 ? 127 - code : code - 127) : code + 1;
  if (n == 0) return 0;
  const int e = (31 - std::countl_zero(static_cast<std::uint32_t>(n))) % 8;
  const float value = __builtin_fmaf(map.slope[e], static_cast<float>(n), map.offset[e]);
  return kSigned && code < 127 ? -value : value;
}

// The code of the nearest value, up to the rounding of one fp32 fma; what is larger than one counts as one.
template <bool kSigned>
constexpr std::uint8_t encode(float value) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const float magnitude = value < 0 ? -value : value, x = magnitude < 1.0f ? magnitude : 1.0f;
  if (kSigned && x < map.least[0]) return 127;
  // log2 of a float is its bits / 2^23 - 127, up to 0.086.
  constexpr float kLog10Of2 = 0.30103f;
  const float log10 = __builtin_fmaf(static_cast<float>(std::bit_cast<std::int32_t>(x)), kLog10Of2 * 0x1p-23f,
                                     -127 * kLog10Of2 + map.exponent);
  int e = static_cast<int>(log10);
  if (e < map.first) e = map.first;
  if (x < map.least[e % 8]) --e;
  int n = static_cast<int>(__builtin_fmaf(map.steps[e % 8], x, map.shift[e % 8]));
  const int low = 1 << e, high = 2 * low - 1;
  n = n < low ? low : n > high ? high : n;
  const int code = !kSigned ? n - 1 : value < 0 ? 127 - n : 127 + n;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code > 255 ? 255 : code);  // -1 has no code, 1 may come out above
}

}  // namespace strata::device
