#include "device/cpu/kernels/attention/attention.h"

#include "device/cpu/kernels/attention/amx_backward.h"
#include "device/cpu/kernels/attention/amx_forward.h"
#include "device/cpu/kernels/attention/backward.h"
#include "device/cpu/kernels/attention/forward.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
static void delta(const AttentionCall& c, std::size_t begin, std::size_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    const std::size_t batch = row / c.seq, query = row % c.seq;
    for (std::size_t head = 0; head < c.heads; ++head) {
      const std::size_t at = (row * c.heads + head) * c.head_dim;
      F32x16 total = zeros();
      for16(c.head_dim, [&](std::size_t i, auto n) {
        total = fma(load(static_cast<const T*>(c.o_read) + at + i, n), load(static_cast<const T*>(c.d_o) + at + i, n),
                    total);
      });
      const std::size_t statistics = (batch * c.heads + head) * c.seq + query;
      c.delta[statistics] = sum(total);
      c.turns[statistics] = 0;
    }
  }
}

// Sets the floating-point mode around a whole task, so that the compiler cannot move arithmetic across the change.
template <typename T>
static void forward_task(const AttentionCall& c, const AttentionRows& document, const QueryTiles& tiles,
                         float* memory) {
  [[maybe_unused]] const typename Operands<T>::Mode mode;
  forward<T>(c, document, tiles, memory);
}
template <typename T>
static void backward_task(const AttentionCall& c, const AttentionRows& document, std::size_t kv_head, std::size_t first,
                          std::size_t tiles, float* memory) {
  [[maybe_unused]] const typename Operands<T>::Mode mode;
  backward<T>(c, document, kv_head, first, tiles, memory);
}

#if defined(__AMX_BF16__)
template <>
void forward_task<bf16>(const AttentionCall& c, const AttentionRows& document, const QueryTiles& tiles, float* memory) {
  AmxMode mode;
  AmxForward(mode.tiles, c, document, tiles, memory).run();
}
template <>
void backward_task<bf16>(const AttentionCall& c, const AttentionRows& document, std::size_t kv_head, std::size_t first,
                         std::size_t tiles, float* memory) {
  AmxMode mode;
  AmxBackward(mode.tiles, c, document, kv_head, first, tiles, memory).run();
}
#endif

extern const AttentionKernels attention_kernels_table = {STRATA_BY_DTYPE(forward_task), STRATA_BY_DTYPE(delta),
                                                         STRATA_BY_DTYPE(backward_task)};

}  // namespace strata::device::cpu::STRATA_ISA
