#include "device/cpu/libraries.h"

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "device/cpu/isa.h"

namespace strata::device::cpu {
namespace {

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

}  // namespace

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
