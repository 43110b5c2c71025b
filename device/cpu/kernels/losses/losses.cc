#include <math.h>

#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

// One pass over memory: the maximum of a piece, then the sum of its exponentials while it is in the L1 cache. A larger
// maximum rescales the earlier sum. Pieces are added in fp64, so 50,304 columns cost no accuracy.
[[gnu::flatten]] static SoftmaxSum softmax_sum(const float* x, std::size_t n, SoftmaxSum before) {
  constexpr std::size_t kPiece = 4096;
  const float lowest = -INFINITY;
  SoftmaxSum all = before;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const float* piece = x + begin;
    const std::size_t size = n - begin < kPiece ? n - begin : kPiece;
    F32x16 m[4] = {broadcast(lowest), broadcast(lowest), broadcast(lowest), broadcast(lowest)};
    for16_by4(size,
              [&](std::size_t i, auto some, int k) { m[k] = max(m[k], only(load(piece + i, some), lowest, some)); });
    const float largest = fmaxf(all.largest, maximum(max(max(m[0], m[1]), max(m[2], m[3]))));
    // If all elements so far are -inf, x - largest would be NaN.
    const F32x16 centre = broadcast(largest == lowest ? 0.0f : largest);
    F32x16 s[4] = {zeros(), zeros(), zeros(), zeros()};
    for16_by4(size, [&](std::size_t i, auto some, int k) {
      s[k] = s[k] + only(exp(load(piece + i, some) - centre), 0.0f, some);
    });
    const double earlier =
        all.largest == largest ? all.sum : all.sum * static_cast<double>(expf(all.largest - largest));
    all = {largest, earlier + static_cast<double>(sum((s[0] + s[1]) + (s[2] + s[3])))};
  }
  return all;
}

// 16-bit results are at or before the floats still to be read: every load precedes the store that may overwrite it.
template <typename T>
[[gnu::flatten]] static void gradient(float* x, std::size_t n, float largest, float scale, float factor,
                                      std::size_t label) {
  auto* to = reinterpret_cast<T*>(x);
  const F32x16 centre = broadcast(largest), s = broadcast(scale), f = broadcast(factor);
  const bool here = label < n;
  const F32x16 at_label = (exp(broadcast(here ? x[label] : largest) - centre) * s - broadcast(1.0f)) * f;
  for16(n, [&](std::size_t i, auto some) { store(to + i, exp(load(x + i, some) - centre) * s * f, some); });
  if (here) store(to + label, at_label, Part{1});
}

extern const CrossEntropyKernels cross_entropy_kernels_table = {
    .softmax_sum = softmax_sum,
    .gradient = STRATA_BY_DTYPE(gradient),
};

}  // namespace strata::device::cpu::STRATA_ISA
