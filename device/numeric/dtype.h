#pragma once
// device/numeric/ holds the arithmetic that both twins share bit for bit: dtypes and their roundings (here), exact sums
// of norms and losses (exact_sum.h), counter-based random numbers (philox.h), the formats of an optimizer's moments
// (storage_format.h) and its update rule (optimizer_update.h). These are plain functions of numbers, without lanes or
// memory.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::device {

// Element types of parameters, activations and gradients. A run's compute dtype is also its wire dtype.
enum class DType : std::uint8_t { fp32, bf16, fp16 };

constexpr std::size_t size_of(DType t) {
  return t == DType::fp32 ? 4 : 2;
}
constexpr std::string_view name_of(DType t) {
  return t == DType::fp32 ? "fp32" : t == DType::bf16 ? "bf16" : "fp16";
}

// bfloat16, as its bits. Conversion from float rounds to nearest even; NaN stays NaN (quiet).
struct bf16 {
  std::uint16_t bits;
};
// IEEE binary16, as its bits. Conversion from float rounds to nearest even; above 65,504 the result is infinite.
struct fp16 {
  std::uint16_t bits;
};

constexpr float to_float(float x) {
  return x;
}
constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
constexpr float to_float(fp16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fu, mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

template <typename T>
constexpr T from_float(float x);
template <>
constexpr float from_float<float>(float x) {
  return x;
}
template <>
constexpr bf16 from_float<bf16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
constexpr fp16 from_float<fp16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (a >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to at least 65,536
  if (a < 0x38800000u) {
    // Subnormal half: adding 0.5 aligns the half's last place with float's, so the addition does the rounding.
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

template <typename T>
inline constexpr DType dtype_of = DType::fp32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<fp16> = DType::fp16;

// Calls f with a value of the C++ type that `t` names: visit(t, [&](auto zero) { using T = decltype(zero); ... }).
template <typename F>
decltype(auto) visit(DType t, F&& f) {
  switch (t) {
    case DType::bf16:
      return f(bf16{});
    case DType::fp16:
      return f(fp16{});
    case DType::fp32:
      break;
  }
  return f(float{});
}

// Rounds x to one of its two neighbours in bf16, less often to the farther one, so that the mean over all 16-bit values
// of `random` is x (within 2^-17 of the neighbours' distance). Values that bf16 can represent stay unchanged; NaN stays
// NaN (quiet). Kernels have a vector form with the same bits.
constexpr bf16 round_stochastically(float x, std::uint16_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + random) >> 16)};
}

}  // namespace strata::device
