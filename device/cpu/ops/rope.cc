#include "device/ops/rope.h"

#include <algorithm>

#include "device/cpu/kernels/rope.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim, half = shape.head_dim / 2;
  STRATA_CHECK_EQ(shape.head_dim % 2, 0u);
  STRATA_CHECK_LE(used, shape.stride);
  if (shape.rows > 0) STRATA_CHECK_LE((shape.rows - 1) * shape.stride + used, x.size);
  STRATA_CHECK_EQ(cos.size, sin.size);
  const auto *c = cos.as<float>(), *s = sin.as<float>();
  const auto rotate = cpu::rope_kernels().rotate[cpu::index(x.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    team.for_range(shape.rows, std::max<std::size_t>(1, cpu::kGrain / used), [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        const std::size_t angle = positions[row] * half;
        STRATA_CHECK_LE(angle + half, cos.size);
        rotate(x.sub(row * shape.stride, used).data, shape.heads, half, c + angle, s + angle, inverse);
      }
    });
  });
}

}  // namespace strata::device
