#include "device/ops/tree_sum.h"

#include <algorithm>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tree_sum.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  const auto kernel = tree_sum_kernels().tree_sum[index(out.dtype)];
  const auto* from = partials.as<float>();
  submit(lane, [=](Team& team) {
    const std::size_t row = bias ? bias.size : out.size;
    team.for_range(out.size, std::max<std::size_t>(kGrain / count, 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t at = begin; at < end;) {
        const std::size_t column = at % row, n = std::min(end - at, row - column);
        kernel(from + at, count, out.size, bias ? bias.sub(column, n).data : nullptr, out.sub(at, n).data, n);
        at += n;
      }
    });
  });
}

}  // namespace strata::device::cpu
