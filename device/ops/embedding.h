#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// out[i] = table[tokens[i]] (+ position_table[positions[i]]), i in [0, rows); position_table may be empty.
void embedding_forward(Lane&, std::size_t rows, std::size_t width, const std::uint32_t* tokens,
                       const std::uint32_t* positions, ConstView table, ConstView position_table, View out);
// Writes all `indices_size` rows of dtable: row t is the sum of dout[i] over i with indices[i] = t, in rising i, in
// fp32, rounded once; 0 where there is none. Used for tokens and, once more, for positions.
void embedding_backward(Lane&, std::size_t rows, std::size_t width, const std::uint32_t* indices,
                        std::size_t indices_size, ConstView dout, View dtable, View workspace);
std::size_t embedding_backward_workspace(std::size_t rows, std::size_t indices_size);

}  // namespace strata::device
