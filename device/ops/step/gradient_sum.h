#pragma once
#include <cstddef>
#include <span>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/view.h"

namespace strata::device {

// The elements in one block of a sum of squares; the summed buffer holds whole blocks. This is part of the numerics
// contract and must never change.
inline constexpr std::size_t kSquareBlock = 4096;

// Consecutive pieces that are summed separately before they are added to a gradient sum. A run that a call does not
// complete continues in the next call with the same `partial`, which holds sum.size elements in fp32.
struct GradientRuns {
  std::size_t length = 1;  // pieces in a run
  std::size_t before = 0;  // pieces of the first run that are already in `partial`
  View partial = {};       // may be empty unless needs_partial()

  // The length of the longest run that needs no `partial` on any device.
  static constexpr std::size_t kMaxInRegisters = 64;
  // True if calls of `pieces` pieces each need `partial`.
  static constexpr bool needs_partial(std::size_t length, std::size_t pieces) {
    return length > 1 && (pieces % length != 0 || length > kMaxInRegisters);
  }
};

// sum[i] = ((sum[i] + pieces[0][i]) + pieces[1][i]) + ...: the ordered gradient sum, fp32, one rounding per addition.
// With runs longer than 1, each run is such a sum from +0, is rounded to `dtype` once, and is then added like a piece.
// first: the sum starts from +0 instead of sum's old value. Pieces hold sum.size elements of `dtype`. The array of
// pointers is read when the work runs on the host, and when it is issued otherwise; it stays valid until the work has
// run.
void gradient_sum(Lane&, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first,
                  const GradientRuns& runs = {});

// A step's gradient of one element is (+0 + first[i]) + second[i], in fp32; second, for a tied weight's other use, may
// be empty. Adds the fp64 sums of its squares over blocks of kSquareBlock elements to *total; within a block there are
// 64 strided partial sums and a fixed tree. Both views may be fp32 sums or rounded gradients. size is a multiple of
// kSquareBlock.
void gradient_square_sum(Lane&, ConstView first, ConstView second, ExactSum* total);

}  // namespace strata::device
