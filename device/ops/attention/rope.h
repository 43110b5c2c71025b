#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// `rows` rows, each with `heads` contiguous vectors of head_dim elements; rows are `stride` elements apart.
struct RopeShape {
  std::size_t rows, heads, head_dim, stride;
};

// Rotates in place by each row's position (Su et al. 2021), pairing element i with i + head_dim/2 as Hugging Face does.
// positions: uint32 [rows]; cos, sin: fp32 [max position, head_dim/2]. inverse = true rotates back, which is the
// backward of the forward.
void rope(Lane&, const RopeShape&, View x, const std::uint32_t* positions, ConstView cos, ConstView sin, bool inverse);

}  // namespace strata::device
