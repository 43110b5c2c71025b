#include "device/cpu/kernels/adamw.h"

#include <type_traits>

#include "device/cpu/kernels/lanes16.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename Gradient, typename Parameter>
[[gnu::flatten]] static void update(const AdamWElements& a, std::size_t n, const AdamWFactors& factors) {
  const AdamWFactors f = factors;  // a copy that no store can alias
  const auto* first = reinterpret_cast<const Gradient*>(a.first);
  const auto* second = reinterpret_cast<const Gradient*>(a.second);
  auto* parameter = reinterpret_cast<Parameter*>(a.parameter);
  float *master = a.master, *moment1 = a.moment1, *moment2 = a.moment2;
  const auto run = [&](auto has_second, auto has_parameter) {
    for16(n, [&](std::size_t i, auto some) {
      F32x16 g = zeros() + load(first + i, some);
      if constexpr (has_second) g = g + load(second + i, some);
      F32x16 p = load(master + i, some), m = load(moment1 + i, some), v = load(moment2 + i, some);
      rounding::adamw_update(g, p, m, v, f, [](float x) { return broadcast(x); });
      store(master + i, p, some);
      store(moment1 + i, m, some);
      store(moment2 + i, v, some);
      if constexpr (has_parameter) store(parameter + i, p, some);
    });
  };
  if (second && parameter)
    run(std::true_type{}, std::true_type{});
  else if (second)
    run(std::true_type{}, std::false_type{});
  else if (parameter)
    run(std::false_type{}, std::true_type{});
  else
    run(std::false_type{}, std::false_type{});
}

extern const AdamWKernels adamw_kernels_table = {
    .update = {{update<float, float>, update<float, bf16>, update<float, fp16>},
               {update<bf16, float>, update<bf16, bf16>, update<bf16, fp16>},
               {update<fp16, float>, update<fp16, bf16>, update<fp16, fp16>}},
};

}  // namespace strata::device::cpu::STRATA_ISA
