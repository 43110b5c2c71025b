#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/ops/attention/attention.h"

namespace strata::device::cuda {
namespace {

// A unit is kN neighbouring pairs of one head; a row has heads * half / kN of them.
template <typename T>
struct Rotate {
  T* x;
  const std::uint32_t* positions;
  const float *cos, *sin;
  std::size_t heads, half, stride, angles;  // angles: distance in the tables
  float sign;

  template <int kN>
  struct Operands {
    Pack<T, kN> first, second;
    Floats<kN> cos, sin;
    T* at;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    const auto per_head = static_cast<unsigned>(half / kN);
    const RowUnit u = row_unit(unit, static_cast<unsigned>(heads) * per_head);
    const std::size_t within = std::size_t{u.at % per_head} * kN;
    const std::size_t angle = positions[u.row] * half + within;
    if (angle + kN > angles) __trap();
    Operands<kN> o;
    o.at = x + u.row * stride + std::size_t{u.at / per_head} * 2 * half + within;
    o.first = load_pack<true, kN>(o.at, kN);
    o.second = load_pack<true, kN>(o.at + half, kN);
    constexpr int kFloats = kN < 4 ? kN : 4;
    for (int part = 0; part < kN; part += kFloats) {
      const auto c = load_pack<true, kFloats>(cos + angle + part, kFloats);
      const auto s = load_pack<true, kFloats>(sin + angle + part, kFloats);
      for (int i = 0; i < kFloats; ++i) {
        o.cos.at[part + i] = c.at[i];
        o.sin.at[part + i] = s.at[i];
      }
    }
    return o;
  }
  template <int kN>
  __device__ void store(std::size_t, const Operands<kN>& o) const {
    Floats<kN> a = widen(o.first), b = widen(o.second);
    for (int i = 0; i < kN; ++i) {
      const float first = a.at[i], second = b.at[i], c = o.cos.at[i], s = o.sin.at[i] * sign;
      a.at[i] = fmaf(-second, s, first * c);
      b.at[i] = fmaf(first, s, second * c);
    }
    store_pack<true>(o.at, kN, narrow<T>(a));
    store_pack<true>(o.at + half, kN, narrow<T>(b));
  }
};

}  // namespace

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t half = shape.head_dim / 2;
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kN = 16 / sizeof(T);
    const Rotate<T> f{x.as<T>(), positions,    cos.as<float>(), sin.as<float>(),       shape.heads,
                      half,      shape.stride, cos.size,        inverse ? -1.0f : 1.0f};
    const bool packed =
        half % kN == 0 && aligned(x.data, shape.stride * sizeof(T)) && aligned(cos.data, 16) && aligned(sin.data, 16);
    if (packed)
      map_units<kN, 1>(lane, f, 0, shape.rows * shape.heads * (half / kN));
    else
      map_units<1, 1>(lane, f, 0, shape.rows * shape.heads * half);
  });
}

}  // namespace strata::device::cuda
