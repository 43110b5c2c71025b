#pragma once
#include <cstdint>
#include <string>

namespace strata::device::cpu {

// The instruction sets for which kernels are compiled (x86-64-v3 and x86-64-v4).
enum class Isa : std::uint8_t { avx2, avx512 };

// The best instruction set of this processor, chosen once. The environment variable STRATA_CPU_ISA=avx2 forces the
// lower one, for both our own kernels and oneDNN. Throws Error{failed} on a processor without AVX2, FMA and F16C.
Isa isa();
// For `doctor`: the model name, the instruction set, and how products of each dtype are computed.
std::string describe();
// True if oneDNN multiplies bf16 natively (AVX512_BF16 or AMX). Otherwise operands are widened to fp32.
bool native_bf16();
// True if the processor has AVX512_BF16 and our kernels may use it.
bool has_avx512_bf16();
// True if oneDNN multiplies bf16 with AMX: the processor has it, and the kernel lets this process use it. Our own
// kernels then use it too, so that all products have the bits of one kind of processor.
bool has_amx();
// True if our own kernels multiply bf16 with AVX512_BF16: the processor has it and is faster with it. Sapphire Rapids
// is slower with it: a VDPBF16PS does the work of two FMA in the time of four. Timed once; bits do not depend on the
// result.
bool avx512_bf16_products();
// For `doctor`: the libraries that compute, such as "oneDNN 2.6.3, instruction set avx512_core_amx, threads omp".
std::string describe_libraries();

}  // namespace strata::device::cpu
