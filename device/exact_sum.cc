#include "device/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace strata::device {
namespace {

constexpr std::uint64_t kLowHalf = 0xffffffffu;
// Each addition or merged addition moves a chunk by less than 2^32, so this many leave room in 63 bits.
constexpr std::uint64_t kMaxPending = std::uint64_t{1} << 29;

}  // namespace

void ExactSum::add(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t exponent = bits >> 52 & 0x7ffu, fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    ++nonfinite;
    return;
  }
  if (pending >= kMaxPending) normalize();
  ++pending;
  // |x| = mantissa * 2^(place - 1074); subnormals share the place of the smallest normals.
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const std::uint64_t place = exponent == 0 ? 0 : exponent - 1, chunk = place / 32, shift = place % 32;
  const std::uint64_t low = (mantissa & kLowHalf) << shift, high = (mantissa >> 32) << shift;
  const std::uint64_t middle = (low >> 32) + (high & kLowHalf);  // below 2^33; its carry goes up
  const auto part0 = static_cast<std::int64_t>(low & kLowHalf);
  const auto part1 = static_cast<std::int64_t>(middle & kLowHalf);
  const auto part2 = static_cast<std::int64_t>((high >> 32) + (middle >> 32));
  const bool negative = bits >> 63 != 0;
  chunks[chunk] += negative ? -part0 : part0;
  chunks[chunk + 1] += negative ? -part1 : part1;
  chunks[chunk + 2] += negative ? -part2 : part2;
}

void ExactSum::merge(const ExactSum& other) {
  if (pending + other.pending + 1 > kMaxPending) {
    normalize();
    if (other.pending > 0) {
      ExactSum normal = other;
      normal.normalize();
      return merge(normal);
    }
  }
  for (std::size_t i = 0; i < kChunks; ++i) chunks[i] += other.chunks[i];
  nonfinite += other.nonfinite;
  pending += other.pending + 1;
}

void ExactSum::normalize() {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < kChunks; ++i) {
    const std::int64_t total = chunks[i] + carry;
    chunks[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(total) & kLowHalf);
    carry = total >> 32;  // rounds down: the remainder above is never negative
  }
  chunks[kChunks - 1] += carry;
  pending = 0;
}

double ExactSum::round() const {
  if (nonfinite != 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum a = *this;
  a.normalize();
  const bool negative = a.chunks[kChunks - 1] < 0;
  if (negative) {
    for (std::int64_t& chunk : a.chunks) chunk = -chunk;
    a.normalize();
  }
  int top = kChunks - 1;
  while (top >= 0 && a.chunks[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0.0;
  // 96 bits from the top chunk down, and whether anything lies below them.
  const auto chunk = [&](int i) {
    return i < 0 ? 0 : static_cast<std::uint64_t>(a.chunks[static_cast<std::size_t>(i)]);
  };
  const int width = std::bit_width(chunk(top));  // the top chunk itself may exceed 32 bits only beyond every double
  if (width > 32) return negative ? -INFINITY : INFINITY;
  const int highest = 32 * top + width - 1;  // place of the leading bit, in units of 2^-1074
  std::uint64_t mantissa = 0;                // the 64 bits from the leading one down
  mantissa = chunk(top) << (64 - width) | chunk(top - 1) << (32 - width) | chunk(top - 2) >> width;
  bool below = (chunk(top - 2) & ((std::uint64_t{1} << width) - 1)) != 0;
  for (int i = top - 3; i >= 0 && !below; --i) below = chunk(i) != 0;
  // Keep 53 bits, fewer where that would reach below 2^-1074 (there nothing lies below, so nothing is lost).
  double value;
  if (highest < 53) {
    value = std::ldexp(static_cast<double>(mantissa >> (63 - highest)), -1074);
  } else {
    std::uint64_t kept = mantissa >> 11;
    const std::uint64_t rest = mantissa & 0x7ffu;
    if (rest > 0x400 || (rest == 0x400 && (below || (kept & 1) != 0))) ++kept;
    value = std::ldexp(static_cast<double>(kept), highest - 52 - 1074);
  }
  return negative ? -value : value;
}

}  // namespace strata::device
