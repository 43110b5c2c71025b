#include "device/ops/dropout.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/numeric/philox.h"

namespace strata::device::cpu {

void dropout(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  const auto drop = dropout_kernels().dropout[index(x.dtype)];
  const auto add = dropout_kernels().add[index(x.dtype)];
  submit(lane, [=](Team& team) {
    RandomStream stream{};
    if (use.probability > 0.0f)
      stream = {use.scalars->seed, use.scalars->first_micro_batch + use.micro_batch, use.site};
    const std::uint32_t threshold = drop_threshold(use.probability);
    const float scale = 1.0f / (1.0f - use.probability);
    if (use.columns > 0 && use.probability > 0.0f) {
      const std::size_t n = use.columns;
      return for_rows(team, x.size / n, n, [&](std::size_t row) {
        drop(stream, use.first + row * use.stride, threshold, scale, x.sub(row * n, n).data,
             residual ? residual.sub(row * n, n).data : nullptr, out.sub(row * n, n).data, n);
      });
    }
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      const std::byte* from = x.sub(begin, n).data;
      const std::byte* base = residual ? residual.sub(begin, n).data : nullptr;
      std::byte* to = out.sub(begin, n).data;
      if (use.probability > 0.0f)
        drop(stream, use.first + begin, threshold, scale, from, base, to, n);
      else if (base)
        add(from, base, to, n);
      else if (from != to)
        std::memcpy(to, from, n * size_of(x.dtype));
    });
  });
}

}  // namespace strata::device::cpu
