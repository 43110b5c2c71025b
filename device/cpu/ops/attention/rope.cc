#include "device/ops/attention/rope.h"

#include <algorithm>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim, half = shape.head_dim / 2;
  const auto *c = cos.as<float>(), *s = sin.as<float>();
  const auto rotate = rope_kernels().rotate[index(x.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, shape.rows, used, [&](std::size_t row) {
      const std::size_t angle = positions[row] * half;
      STRATA_CHECK_LE(angle + half, cos.size);
      rotate(x.sub(row * shape.stride, used).data, shape.heads, half, c + angle, s + angle, inverse);
    });
  });
}

}  // namespace strata::device::cpu
