#pragma once
#include <cstddef>
#include <span>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/view.h"

namespace strata::device {

// Elements of one block of a sum of squares: what such a sum is taken of holds whole blocks. Part of the numerics
// contract: it must never change.
inline constexpr std::size_t kSquareBlock = 4096;

// sum[i] = ((sum[i] + pieces[0][i]) + pieces[1][i]) + ...: the ordered gradient sum, fp32, one rounding per addition.
// first: the sum starts from +0 instead of its memory. Pieces hold sum.size elements of `dtype`; the array of pointers
// is read when the work runs, or, where the lane's work is not the host's, when it is issued; it stays valid until the
// work has run.
void gradient_sum(Lane&, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first);

// A step's gradient of one element is (+0 + first[i]) + second[i], in fp32; second, of a tied weight's
// other use, may be empty. Adds the fp64 sums of its squares over blocks of kSquareBlock elements to *total, inside a
// block 64 strided partial sums and a fixed tree. Both views may be fp32 sums or rounded gradients; size is a multiple
// of kSquareBlock.
void gradient_square_sum(Lane&, ConstView first, ConstView second, ExactSum* total);

}  // namespace strata::device
