#pragma once

namespace strata::device::cpu {

// True if our own kernels multiply bf16 with AVX512_BF16: the processor has it and is faster with it. Sapphire Rapids
// is not: a VDPBF16PS does the work of two FMA in the time of four. Timed once; bits do not depend on it.
bool avx512_bf16_products();

}  // namespace strata::device::cpu
