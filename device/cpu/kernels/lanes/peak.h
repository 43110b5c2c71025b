#pragma once
#include <cstddef>

namespace strata::device::cpu {

// Independent multiplications and additions without memory accesses, to measure the peak rate of a core. Each call does
// `rounds` rounds and returns the number of floating-point operations.
struct PeakKernels {
  double (*fp32)(std::size_t rounds);  // uses FMA
  double (*bf16)(std::size_t rounds);  // uses VDPBF16PS; null if the kernels do not have it
};
// select.h does not choose among these: its choice depends on what they measure (device/cpu/isa.h).
namespace avx2 {
extern const PeakKernels peak_kernels_table;
}
namespace avx512 {
extern const PeakKernels peak_kernels_table;
}
namespace avx512_bf16 {
extern const PeakKernels peak_kernels_table;
}

}  // namespace strata::device::cpu
