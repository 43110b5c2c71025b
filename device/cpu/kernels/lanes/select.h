#pragma once
#include "device/cpu/isa.h"

// Every kernel source here is compiled once per instruction set, in namespace STRATA_ISA. It must not instantiate
// inline functions of other headers with external linkage: the linker would keep one copy, possibly compiled for the
// wrong instruction set. So kernels include only C headers, intrinsics and constexpr dtype conversions, and declare
// their own functions static.
//
// A kernel header uses this macro to declare a table of function pointers, its two definitions and the choice between
// them:
//   STRATA_KERNEL_TABLE(NormKernels, norm_kernels)   ->   const NormKernels& norm_kernels();
#define STRATA_KERNEL_TABLE(Table, name)                                     \
  STRATA_KERNEL_TABLE_OF(avx2, Table, name)                                  \
  STRATA_KERNEL_TABLE_OF(avx512, Table, name)                                \
  inline const Table& name() {                                               \
    return isa() == Isa::avx512 ? avx512::name##_table : avx2::name##_table; \
  }

// The same for a source that multiplies bf16 with the processor's own instructions: AMX's, or AVX512_BF16's if those
// are faster than FMA.
#define STRATA_BF16_KERNEL_TABLE(Table, name)                                \
  STRATA_KERNEL_TABLE_OF(avx2, Table, name)                                  \
  STRATA_KERNEL_TABLE_OF(avx512, Table, name)                                \
  STRATA_KERNEL_TABLE_OF(avx512_bf16, Table, name)                           \
  STRATA_KERNEL_TABLE_OF(amx, Table, name)                                   \
  inline const Table& name() {                                               \
    if (has_amx()) return amx::name##_table;                                 \
    if (avx512_bf16_products()) return avx512_bf16::name##_table;            \
    return isa() == Isa::avx512 ? avx512::name##_table : avx2::name##_table; \
  }

#define STRATA_KERNEL_TABLE_OF(instructions, Table, name) \
  namespace instructions {                                \
  extern const Table name##_table;                        \
  }
