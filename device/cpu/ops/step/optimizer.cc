#include "device/ops/step/optimizer.h"

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/optimizer_update.h"

namespace strata::device::cpu {
namespace {

UpdateFactors factors_of(const Optimizer& o, const StepScalars& s) {
  switch (o.algorithm) {
    case Algorithm::lion:
      return lion_factors(o, s);
    case Algorithm::sgd:
      return sgd_factors(o, s);
    case Algorithm::adamw:
      break;
  }
  return adamw_factors(o, s);
}

}  // namespace

void update(Lane& lane, const Optimizer& optimizer, const StepScalars* scalars, const UpdateOperands& s,
            OnSkip on_skip) {
  const std::size_t size = s.master.size;
  static_assert(2 * kGrain % kMomentBlock == 0);
  Optimizer options = optimizer;
  if (!s.decay) options.weight_decay = 0;
  auto* master = s.master.as<float>();
  submit(lane, [=](Team& team) {
    const OptimizerKernels& kernels = optimizer_kernels();
    const auto write = s.parameter ? kernels.write[index(s.parameter.dtype)] : nullptr;
    if (scalars->skip != 0 && (on_skip == OnSkip::leave_parameter || !write)) return;
    const auto update = kernels.update[static_cast<std::size_t>(options.algorithm)][static_cast<std::size_t>(s.format)];
    const UpdateFactors factors = factors_of(options, *scalars);
    const RandomStream stream{scalars->seed, scalars->first_micro_batch, kMomentSites | s.unit};
    team.for_range(size, 2 * kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin, moments = stored_bytes(s.format, begin);
      std::byte* parameter = write ? s.parameter.sub(begin, n).data : nullptr;
      if (scalars->skip != 0) return write(master + begin, parameter, n);
      update({.read = kernels.read[index(s.first.dtype)],
              .write = write,
              .first = s.first.sub(begin, n).data,
              .second = s.second ? s.second.sub(begin, n).data : nullptr,
              .element_bytes = size_of(s.first.dtype),
              .master = master + begin,
              .moment1 = s.moment1 + moments,
              .moment2 = s.moment2 ? s.moment2 + moments : nullptr,
              .parameter = parameter,
              .parameter_bytes = size_of(s.parameter.dtype),
              .stream = stream,
              .begin = s.begin + begin},
             n, factors);
    });
  });
}

}  // namespace strata::device::cpu
