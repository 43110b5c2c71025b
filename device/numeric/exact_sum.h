#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace strata::device {

// An exact sum of doubles: a fixed-point number wide enough for every finite double (Kulisch; the layout is Neal's
// small superaccumulator, 2015). Sums are integers, so any order and any grouping gives the same bits; round() rounds
// once, to nearest even. It is plain data of constant size, which ranks exchange as bytes, and all zero bytes are its
// initial value. Terms that are not finite are counted, never added. Up to 2^29 add() calls or merges may happen
// between normalisations.
struct ExactSum {
  static constexpr int kChunks = 68;
  // Each addition or merged addition changes a chunk by less than 2^32, so this many fit into 63 bits.
  static constexpr std::uint64_t kMaxUncarried = std::uint64_t{1} << 29;

  std::array<std::int64_t, kChunks>
      chunks{};  // chunk i counts units of 2^(32 i - 1074), signed; the last two are spare
  std::uint64_t nonfinite = 0;
  std::uint64_t uncarried = 0;  // additions since carries were last propagated

  constexpr void add(double x);
  constexpr void merge(const ExactSum& other);
  constexpr void normalize();
  constexpr double round() const;  // NaN if a term was not finite
  // Like round(), but without a copy, for kernels. It leaves the normalised magnitude of the sum behind.
  constexpr double round_in_place();

 private:
  static constexpr std::uint64_t kLowHalf = 0xffffffffu;
};

// A double in the form that an exact sum adds: to chunk `first` and the two above it.
struct ExactTerm {
  bool finite;
  std::uint32_t first;
  std::int64_t parts[3];

  explicit constexpr ExactTerm(double x) : finite(false), first(0), parts{0, 0, 0} {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t exponent = bits >> 52 & 0x7ffu, fraction = bits & ((std::uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) return;
    finite = true;
    // |x| = mantissa * 2^(place - 1074); subnormals share the place of the smallest normals.
    const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52;
    const std::uint64_t place = exponent == 0 ? 0 : exponent - 1, shift = place % 32, low_half = 0xffffffffu;
    const std::uint64_t low = (mantissa & low_half) << shift, high = (mantissa >> 32) << shift;
    const std::uint64_t middle = (low >> 32) + (high & low_half);  // below 2^33; its carry goes up
    const std::uint64_t magnitudes[3] = {low & low_half, middle & low_half, (high >> 32) + (middle >> 32)};
    first = static_cast<std::uint32_t>(place / 32);
    for (int i = 0; i < 3; ++i) {
      const auto part = static_cast<std::int64_t>(magnitudes[i]);
      parts[i] = bits >> 63 != 0 ? -part : part;
    }
  }
};

constexpr void ExactSum::add(double x) {
  const ExactTerm term(x);
  if (!term.finite) {
    ++nonfinite;
    return;
  }
  if (uncarried >= kMaxUncarried) normalize();
  ++uncarried;
  for (std::size_t i = 0; i < 3; ++i) chunks[term.first + i] += term.parts[i];
}

constexpr void ExactSum::merge(const ExactSum& other) {
  const bool full = uncarried + other.uncarried + 1 > kMaxUncarried;
  if (full) normalize();
  std::int64_t carry = 0;  // the other sum is normalised on the way
  for (std::size_t i = 0; i < kChunks; ++i) {
    std::int64_t chunk = other.chunks[i] + carry;
    if (full && i + 1 < kChunks) {
      carry = chunk >> 32;
      chunk = static_cast<std::int64_t>(static_cast<std::uint64_t>(chunk) & kLowHalf);
    }
    chunks[i] += chunk;
  }
  nonfinite += other.nonfinite;
  uncarried += (full ? 0 : other.uncarried) + 1;
}

constexpr void ExactSum::normalize() {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < kChunks; ++i) {
    const std::int64_t total = chunks[i] + carry;
    chunks[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(total) & kLowHalf);
    carry = total >> 32;  // rounds down, so the remainder above is never negative
  }
  chunks[kChunks - 1] += carry;
  uncarried = 0;
}

constexpr double ExactSum::round() const {
  ExactSum copy = *this;
  return copy.round_in_place();
}

constexpr double ExactSum::round_in_place() {
  if (nonfinite != 0) return std::numeric_limits<double>::quiet_NaN();
  normalize();
  const bool negative = chunks[kChunks - 1] < 0;
  if (negative) {
    for (std::size_t i = 0; i < kChunks; ++i) chunks[i] = -chunks[i];
    normalize();
  }
  int top = kChunks - 1;
  while (top >= 0 && chunks[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0.0;
  // Takes 96 bits from the top chunk down, and finds out whether any lower bit is set.
  const auto chunk = [this](int i) {
    return i < 0 ? 0 : static_cast<std::uint64_t>(chunks[static_cast<std::size_t>(i)]);
  };
  const std::uint64_t sign = negative ? std::uint64_t{1} << 63 : 0, infinity = std::uint64_t{0x7ff} << 52;
  // Not std::bit_width: its 64-bit form is undefined in GPU code, and nvcc gives no warning.
  const int width = 64 - __builtin_clzll(chunk(top));  // exceeds 32 only if the sum is beyond every double
  if (width > 32) return std::bit_cast<double>(sign | infinity);
  const int highest = 32 * top + width - 1;  // place of the leading bit, in units of 2^-1074
  std::uint64_t mantissa = 0;                // the 64 bits from the leading one down
  mantissa = chunk(top) << (64 - width) | chunk(top - 1) << (32 - width) | chunk(top - 2) >> width;
  bool below = (chunk(top - 2) & ((std::uint64_t{1} << width) - 1)) != 0;
  for (int i = top - 3; i >= 0 && !below; --i) below = chunk(i) != 0;
  // Keeps 53 bits, or fewer if 53 would reach below 2^-1074: those are exactly a double's bits, and there are none
  // below them. Otherwise the leading bit adds one to the exponent's field, and so does a carry out of the rounding.
  std::uint64_t bits = 0;
  if (highest < 53) {
    bits = mantissa >> (63 - highest);
  } else {
    const std::uint64_t kept = mantissa >> 11, rest = mantissa & 0x7ffu;
    const bool up = rest > 0x400 || (rest == 0x400 && (below || (kept & 1) != 0));
    bits = (static_cast<std::uint64_t>(highest - 52) << 52) + kept + (up ? 1 : 0);
    if (bits > infinity) bits = infinity;
  }
  return std::bit_cast<double>(sign | bits);
}

}  // namespace strata::device
