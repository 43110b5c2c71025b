#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// Sets every byte to zero.
void zero(Lane&, View x);
// to[i] = from[i], rounded to to's dtype; both have the same size. Also used as the plain copy.
void cast(Lane&, ConstView from, View to);
// The same for rows of `columns` elements, which are `from_stride` and `to_stride` elements apart.
void cast_columns(Lane&, std::size_t rows, std::size_t columns, std::size_t from_stride, ConstView from,
                  std::size_t to_stride, View to);
// to[i] += from[i]; to is fp32.
void add(Lane&, ConstView from, View to);
// out[i] = factor x[i], in fp32, rounded once; out has x's dtype and size, and may be x.
void scale(Lane&, ConstView x, float factor, View out);
// Adds the number of elements that are not finite to *count.
void count_nonfinite(Lane&, ConstView x, std::uint64_t* count);
// out[j] = sum over rows of x[r, j], in fp32 in a fixed order, rounded once; rows of x are `stride` elements apart.
// This is the gradient of a bias.
void column_sum(Lane&, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, View out,
                View workspace);
std::size_t column_sum_workspace(std::size_t rows, std::size_t columns);
// A GPU cuts each of the row blocks once more, so that every multiprocessor has some.
inline constexpr std::size_t kColumnShares = 4;

}  // namespace strata::device
