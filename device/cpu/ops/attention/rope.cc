#include "device/ops/attention/rope.h"

#include <algorithm>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/attention/rope.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim, half = shape.head_dim / 2;
  const auto *c = cos.as<float>(), *s = sin.as<float>();
  const auto rotate = rope_kernels().rotate[index(x.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(shape.rows, std::max<std::size_t>(1, kGrain / used), [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        const std::size_t angle = positions[row] * half;
        STRATA_CHECK_LE(angle + half, cos.size);
        rotate(x.sub(row * shape.stride, used).data, shape.heads, half, c + angle, s + angle, inverse);
      }
    });
  });
}

}  // namespace strata::device::cpu
