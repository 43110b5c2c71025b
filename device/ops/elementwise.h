#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/lane.h"
#include "device/numeric/storage_format.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// Sets every byte to zero.
void zero(Lane&, View x);
// to[i] = from[i], rounded to to's dtype; both have the same size. Also used as the plain copy.
void cast(Lane&, ConstView from, View to);
// The same for rows of `columns` elements that are `from_stride` and `to_stride` elements apart.
void cast_columns(Lane&, std::size_t rows, std::size_t columns, std::size_t from_stride, ConstView from,
                  std::size_t to_stride, View to);
// to[i] += from[i]; to is fp32.
void add(Lane&, ConstView from, View to);
// out[i] = factor x[i], in fp32, rounded once; out has x's dtype and size, and may be x.
void scale(Lane&, ConstView x, float factor, View out);
// Adds the number of non-finite elements to *count.
void count_nonfinite(Lane&, ConstView x, std::uint64_t* count);
// out[j] = sum over rows of x[r, j], in fp32 in a fixed order, rounded once; rows of x are `stride` elements apart.
// This is the gradient of a bias.
void column_sum(Lane&, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, View out,
                View workspace);
std::size_t column_sum_workspace(std::size_t rows, std::size_t columns);
// The number of shares into which a GPU cuts each row block, so that every multiprocessor has work.
inline constexpr std::size_t kColumnShares = 4;

// Identifies one use of dropout. Its random numbers are Philox4x32-10 (Salmon et al. 2011) keyed by scalars->seed, with
// a counter made from the global micro-batch (scalars->first_micro_batch + micro_batch), `site` (unique per layer and
// place) and the element's index. So they are the same for any rank and number of threads, and when recomputed.
struct Dropout {
  float probability = 0;  // 0: everything is kept, without random numbers
  std::uint32_t site = 0;
  std::uint64_t micro_batch = 0;  // g * W + rank
  const StepScalars* scalars = nullptr;
  std::uint64_t first = 0;  // the index of the operand's first element
  // Above 0: the operand is that many columns of a matrix with rows of `stride` elements. All three are multiples of 4.
  std::uint32_t columns = 0, stride = 0;
};

// out = x * keep / (1 - p), or residual + that if residual is given. out may be x or residual.
void dropout(Lane&, const Dropout&, ConstView x, ConstView residual, View out);
// out = x + residual, rounded once. out may be x or residual.
inline void add_residual(Lane& lane, ConstView x, ConstView residual, View out) {
  dropout(lane, {}, x, residual, out);
}

// The maximum number of partial results that tree_sum() adds.
inline constexpr std::size_t kMaxPartials = 1024;

// out[i] = the sum of partials[p][i] over p, by a balanced binary tree, plus bias[i % bias.size], in fp32, rounded
// once. `partials` holds `count` fp32 results of out's size, one after another; count is a power of two. The tree adds
// neighbours: with four, (0 + 1) + (2 + 3). So adding the sums of two halves gives the bits of the whole. `bias` has
// out's dtype, and may be empty. `out` may be the first of the partials.
void tree_sum(Lane&, std::size_t count, ConstView partials, ConstView bias, View out);

// The same for partials in several places, as an all-to-all leaves them: at most kMaxPieces, the maximum number of
// ranks that share a layer. The array of pointers is read when the work runs on the host, and when it is issued
// otherwise; it stays valid until the work has run.
inline constexpr std::size_t kMaxPieces = 64;
void tree_sum_of_pieces(Lane&, std::span<const std::byte* const> partials, ConstView bias, View out);

// out[i] = value of its code * scale of its 64 elements, in fp32, rounded once to out's dtype. `packed` holds whole
// blocks of nf4 or nf4_plain (device/numeric/nf4.h), stored_bytes(format, out.size) in all.
void unpack(Lane&, StorageFormat format, const std::byte* packed, View out);

}  // namespace strata::device
