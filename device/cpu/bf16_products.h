#pragma once

namespace strata::device::cpu {

// True if own kernels multiply bf16 by AVX512_BF16: if the processor has it and is the faster for it. Sapphire Rapids
// does four FMA in the time of one VDPBF16PS, which does the work of two. Timed once; bits do not depend on it.
bool avx512_bf16_products();

}  // namespace strata::device::cpu
