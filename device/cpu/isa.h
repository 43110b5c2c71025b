#pragma once
#include <cstdint>
#include <string>

namespace strata::device::cpu {

// The instruction sets for which kernels are compiled (x86-64-v3 and x86-64-v4).
enum class Isa : std::uint8_t { avx2, avx512 };

// The best one that this processor has, chosen once. The environment variable STRATA_CPU_ISA=avx2 forces the lower one,
// for our own kernels and for oneDNN alike. Throws Error{failed} on a processor without AVX2, FMA and F16C.
Isa isa();
// For `doctor`: the model name, the instruction set, and how products of each dtype are computed.
std::string describe();
// True if oneDNN multiplies bf16 natively (AVX512_BF16 or AMX). Otherwise operands are widened to fp32.
bool native_bf16();
// True if own kernels multiply bf16 by AVX512_BF16: if the processor has it and is the faster for it. Sapphire Rapids
// does four FMA in the time of one VDPBF16PS, which does the work of two. Timed once; bits do not depend on it.
bool avx512_bf16_products();

}  // namespace strata::device::cpu
