#pragma once
#include <cstddef>
#include <span>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// The most partial results that tree_sum() adds.
inline constexpr std::size_t kMaxPartials = 1024;

// out[i] = the sum of partials[p][i] over p, by a balanced binary tree, plus bias[i % bias.size], in fp32, rounded
// once. `partials` holds `count` fp32 results of out's size, one after the other; count is a power of two. The tree
// adds neighbours: with four, (0 + 1) + (2 + 3). So adding the sums of two halves gives the bits of the whole. `bias`
// has out's dtype, and may be empty. `out` may be the first of the partials.
void tree_sum(Lane&, std::size_t count, ConstView partials, ConstView bias, View out);

// The same for partials in several places, as an all-to-all leaves them: at most kMaxPieces, the maximum number of
// ranks that share a layer. The array of pointers is read when the work runs on the host, and when it is issued
// otherwise; it stays valid until the work has run.
inline constexpr std::size_t kMaxPieces = 64;
void tree_sum_of_pieces(Lane&, std::span<const std::byte* const> partials, ConstView bias, View out);

}  // namespace strata::device
