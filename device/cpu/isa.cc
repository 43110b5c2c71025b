#include "device/cpu/isa.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "base/error.h"
#include "device/cpu/kernels/lanes/peak.h"

namespace strata::device::cpu {
namespace {

struct Processor {
  Isa isa;
  bool forced;  // set by STRATA_CPU_ISA
  bool bf16_products, tile_products;
};

// True if oneDNN multiplies with AMX: the processor has it, DNNL_MAX_CPU_ISA allows it, and the kernel lets this
// process use the tile registers.
bool onednn_uses_amx() {
  const std::string_view name = dnnl_cpu_isa2str(static_cast<dnnl_cpu_isa_t>(dnnl::get_effective_cpu_isa()));
  return name.find("amx") != std::string_view::npos;
}

Processor choose() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    fail(Exit::failed, "this processor lacks AVX2, FMA or F16C, which Strata needs: use a newer machine (x86-64-v3)");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const char* wish = std::getenv("STRATA_CPU_ISA");
  const std::string_view name = wish ? wish : "";
  if (!name.empty() && name != "avx2" && name != "avx512")
    fail(Exit::usage, "STRATA_CPU_ISA is '{}': use avx2 or avx512, or leave it unset", name);
  if (name == "avx512" && !avx512)
    fail(Exit::usage, "STRATA_CPU_ISA is avx512, which this processor lacks: use avx2, or leave it unset");
  if (avx512 && name != "avx2")
    return {Isa::avx512, !name.empty(), __builtin_cpu_supports("avx512bf16") != 0, onednn_uses_amx()};
  // oneDNN accepts this only once, before it creates its first primitive. Code that creates primitives calls isa()
  // first.
  if (avx512 && dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2) != dnnl::status::success)
    fail(Exit::failed, "STRATA_CPU_ISA=avx2 has no effect on oneDNN here: unset DNNL_MAX_CPU_ISA");
  return {Isa::avx2, !name.empty(), false, false};
}

const Processor& processor() {
  static const Processor chosen = choose();
  return chosen;
}

std::string model_name() {
  unsigned words[12] = {};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* w = words + 4 * leaf;
    if (__get_cpuid(0x80000002u + leaf, w, w + 1, w + 2, w + 3) == 0) return "unknown processor";
  }
  char text[49] = {};
  std::memcpy(text, words, 48);
  std::string_view name = text;
  while (name.starts_with(' ')) name.remove_prefix(1);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return std::string(name);
}

std::string name_of(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("{:#x}", static_cast<unsigned>(isa));
  }
}

// The best of several runs of a few microseconds: interruptions only slow a run down.
double flops_per_second(double (*kernel)(std::size_t rounds)) {
  constexpr std::size_t kRounds = 2000;
  double best = 0;
  for (int time = 0; time < 8; ++time) {
    const auto begin = std::chrono::steady_clock::now();
    const double flops = kernel(kRounds);
    best = std::max(best, flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

Isa isa() {
  return processor().isa;
}

bool native_bf16() {
  return processor().bf16_products || processor().tile_products;
}

bool has_avx512_bf16() {
  return processor().bf16_products;
}

bool has_amx() {
  return processor().tile_products;
}

std::string describe() {
  const Processor& p = processor();
  return fmt::format("{} ({}{}, fp32 products native, bf16 products {}, fp16 products widened to fp32)", model_name(),
                     p.isa == Isa::avx512 ? "AVX-512" : "AVX2", p.forced ? " as set by STRATA_CPU_ISA" : "",
                     p.tile_products   ? "native (AMX)"
                     : p.bf16_products ? "native (AVX512_BF16)"
                                       : "widened to fp32");
}

bool avx512_bf16_products() {
  static const bool faster = has_avx512_bf16() && flops_per_second(avx512_bf16::peak_kernels_table.bf16) >
                                                      flops_per_second(avx512_bf16::peak_kernels_table.fp32);
  return faster;
}

std::string describe_libraries() {
  (void)isa();  // sets oneDNN's instruction set if one is forced
  const dnnl_version_t* version = dnnl_version();
  const char* threads = version->cpu_runtime == DNNL_RUNTIME_OMP   ? "omp"
                        : version->cpu_runtime == DNNL_RUNTIME_TBB ? "tbb"
                        : version->cpu_runtime == DNNL_RUNTIME_SEQ ? "sequential"
                                                                   : "another pool";
  return fmt::format("oneDNN {}.{}.{}, instruction set {}, threads {}", version->major, version->minor, version->patch,
                     name_of(dnnl::get_effective_cpu_isa()), threads);
}

}  // namespace strata::device::cpu
