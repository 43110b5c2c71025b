#pragma once
#include <array>
#include <cstdint>

namespace strata::device {

// An exact sum of doubles: a fixed-point number wide enough for every finite double (Kulisch; the layout is Neal's
// small superaccumulator, 2015). Sums are integers, so any order and any grouping gives the same bits; round() rounds
// once, to nearest even. Plain data of constant size: ranks exchange it as bytes. Starts as all zero bytes.
// Not finite terms are counted, never added; up to 2^29 add() calls or merges between normalisations are carried.
struct ExactSum {
  static constexpr int kChunks = 68;
  std::array<std::int64_t, kChunks> chunks{};  // chunk i counts units of 2^(32 i - 1074), signed; the last two are room
  std::uint64_t nonfinite = 0;
  std::uint64_t pending = 0;  // additions since chunks were last normalised

  void add(double x);
  void merge(const ExactSum& other);
  void normalize();
  double round() const;  // NaN if a term was not finite
};

}  // namespace strata::device
