#include "device/ops/adamw.h"

#include "device/adamw_update.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {

void adamw(Lane& lane, const AdamW& rule, const StepScalars* scalars, ConstView first, ConstView second, View master,
           View moment1, View moment2, View parameter) {
  const std::size_t size = master.size;
  STRATA_CHECK_EQ(first.size, size);
  STRATA_CHECK(!second || (second.size == size && second.dtype == first.dtype));
  STRATA_CHECK_EQ(moment1.size, size);
  STRATA_CHECK_EQ(moment2.size, size);
  STRATA_CHECK(!parameter || parameter.size == size);
  auto *p = master.as<float>(), *m = moment1.as<float>(), *v = moment2.as<float>();
  const auto kernel = cpu::adamw_kernels().update[cpu::index(first.dtype)][cpu::index(parameter.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    if (scalars->skip != 0) return;
    const AdamWFactors factors = adamw_factors(rule, *scalars);
    team.for_range(size, 2 * cpu::kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel({.first = first.sub(begin, n).data,
              .second = second ? second.sub(begin, n).data : nullptr,
              .master = p + begin,
              .moment1 = m + begin,
              .moment2 = v + begin,
              .parameter = parameter ? parameter.sub(begin, n).data : nullptr},
             n, factors);
    });
  });
}

}  // namespace strata::device
