#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/philox.h"
#include "device/ops/elementwise.h"

namespace strata::device::cuda {
namespace {

// out = x * keep / (1 - p), or residual + that. kDrops = false keeps everything and reads no scalars.
template <typename T, bool kDrops, bool kResidual>
struct DropElements {
  Dropout use;
  std::uint32_t threshold;
  float scale;
  const T *x, *residual;
  T* out;

  template <int kN>
  struct Operands {
    Pack<T, kN> x, residual;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    Operands<kN> o;
    o.x = load_pack<true, kN>(x + unit * kN, kN);
    if constexpr (kResidual) o.residual = load_pack<true, kN>(residual + unit * kN, kN);
    return o;
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands<kN>& o) const {
    Floats<kN> y = widen(o.x);
    if constexpr (kDrops) {
      const RandomStream stream{use.scalars->seed, use.scalars->first_micro_batch + use.micro_batch, use.site};
      std::uint32_t words[kN];
      // A pack stays within one row, because columns are a multiple of kN. A 64-bit division would use local memory.
      std::size_t index = use.first + unit * kN;
      if (use.columns > 0) {
        const auto at = static_cast<std::uint32_t>(unit * kN);
        index = use.first + std::size_t{at / use.columns} * use.stride + at % use.columns;
      }
      if constexpr (kN % 4 == 0)
        random_words(stream, index / 4, kN / 4, words);
      else
        words[0] = random_word(stream, index);
      for (int i = 0; i < kN; ++i) y.at[i] = words[i] >= threshold ? y.at[i] * scale : 0.0f;
    }
    if constexpr (kResidual) {
      const Floats<kN> base = widen(o.residual);
      for (int i = 0; i < kN; ++i) y.at[i] = base.at[i] + y.at[i];
    }
    store_pack<true>(out + unit * kN, kN, narrow<T>(y));
  }
};

template <bool kDrops, bool kResidual>
void run(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  const bool whole_packs = use.columns % (16 / size_of(x.dtype)) == 0;
  const bool packed = whole_packs && aligned(x.data, 16) && aligned(residual.data, 16) && aligned(out.data, 16);
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const DropElements<T, kDrops, kResidual> f{
        use,       drop_threshold(use.probability),           1.0f / (1.0f - use.probability),
        x.as<T>(), reinterpret_cast<const T*>(residual.data), out.as<T>()};
    map_elements<16 / sizeof(T), 2>(lane, f, x.size, packed);
  });
}

}  // namespace

void dropout(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  if (use.probability > 0.0f)
    residual ? run<true, true>(lane, use, x, residual, out) : run<true, false>(lane, use, x, residual, out);
  else if (residual)
    run<false, true>(lane, use, x, residual, out);
  else if (x.data != out.data && x.size > 0)
    copy(lane, out.data, x.data, x.bytes());
}

}  // namespace strata::device::cuda
