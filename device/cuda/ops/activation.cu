#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/normal_tail.h"
#include "device/ops/activation.h"

namespace strata::device::cuda {
namespace {

// The functions of device/cpu/kernels/activation.cc. For 16-bit numbers, they use the GPU's approximate exponential and
// division. Their error of a few 2^-22 vanishes in the rounding, and the kernels stay bound by memory.
template <typename T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == 2) return __expf(x);
  return expf(x);
}
// 1 / (1 + e)
template <typename T>
__device__ inline float share(float e) {
  if constexpr (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + e);
  return 1.0f / (1.0f + e);
}
template <typename T>
__device__ inline float sigmoid(float x) {
  return share<T>(exponential<T>(-x));
}

constexpr float kGeluScale = 2 * 0.79788456080286536f, kGeluCube = 0.044715f;  // 2 sqrt(2 / pi)

// fminf and fmaxf would drop a NaN.
__device__ inline float gelu_clamp(float x) {
  x = x < -32.0f ? -32.0f : x;
  return x > 32.0f ? 32.0f : x;
}
__device__ inline float gelu_inner(float x) {
  return x * fmaf(x * x, kGeluScale * kGeluCube, kGeluScale);
}
template <typename T>
__device__ inline float gelu(float x) {
  return x * sigmoid<T>(gelu_inner(gelu_clamp(x)));
}
template <typename T>
__device__ inline float gelu_derivative(float x) {
  const float c = gelu_clamp(x), e = exponential<T>(-gelu_inner(c)), s = share<T>(e);
  // 1 - s = e s. An infinite e is limited, because s is then 0 and the product would be NaN.
  const float rest = fminf(3e38f, e) * s;
  const float slope = fmaf(c * c, 3 * kGeluScale * kGeluCube, kGeluScale);
  return fmaf(c * s, rest * slope, s);
}

__device__ inline float tail_place(float x) {
  const float a = x > 0 ? x : 0.0f - x;  // +0 for -0
  return a > kNormalTailEnd ? kNormalTailEnd : a;
}
__device__ inline float normal_tail(float a) {
  constexpr float p[] = {kNormalTail[0], kNormalTail[1], kNormalTail[2], kNormalTail[3], kNormalTail[4], kNormalTail[5],
                         kNormalTail[6], kNormalTail[7], kNormalTail[8], kNormalTail[9], kNormalTail[10]};
  const float t = (a - 2.0f) / (a + 2.0f);
  float sum = p[kNormalTailDegree];
  for (int i = kNormalTailDegree; i-- > 0;) sum = fmaf(sum, t, p[i]);
  return sum;
}
template <typename T>
__device__ inline float gelu_erf(float x) {
  const float a = tail_place(x), e = exponential<T>(-0.5f * a * a);
  return fmaf(-a * e, normal_tail(a), x < 0 ? 0.0f : x);
}
template <typename T>
__device__ inline float gelu_erf_derivative(float x) {
  const float a = tail_place(x), e = exponential<T>(-0.5f * a * a);
  const float left = e * fmaf(-a, 0.39894228040143268f, normal_tail(a));
  return x > 0 ? 1.0f - left : left;
}

// The two GELUs, for Gelu and GeluBackward.
template <typename T>
struct Tanh {
  static __device__ float value(float x) { return gelu<T>(x); }
  static __device__ float slope(float x) { return gelu_derivative<T>(x); }
};
template <typename T>
struct Erf {
  static __device__ float value(float x) { return gelu_erf<T>(x); }
  static __device__ float slope(float x) { return gelu_erf_derivative<T>(x); }
};

// The gates, silu (SwiGLU) and the GELU of erf (GeGLU), with their slopes.
struct ValueAndSlope {
  float value, slope;
};
template <typename T>
struct SiluGate {
  static __device__ float value(float x) { return x * sigmoid<T>(x); }
  // s + x s (1 - s) with s = sigmoid(x).
  static __device__ ValueAndSlope both(float x) {
    const float s = sigmoid<T>(x), out = x * s;
    return {out, fmaf(out, 1.0f - s, s)};
  }
};
template <typename T>
struct GeluGate {
  static __device__ float value(float x) { return gelu_erf<T>(x); }
  static __device__ ValueAndSlope both(float x) { return {gelu_erf<T>(x), gelu_erf_derivative<T>(x)}; }
};

template <typename T, typename Function>
struct Gelu {
  const T* x;
  T* y;

  template <int kN>
  __device__ Pack<T, kN> load(std::size_t unit) const {
    return load_pack<true, kN>(x + unit * kN, kN);
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Pack<T, kN>& v) const {
    Floats<kN> f = widen(v);
    for (int i = 0; i < kN; ++i) f.at[i] = Function::value(f.at[i]);
    store_pack<true>(y + unit * kN, kN, narrow<T>(f));
  }
};

template <typename T, typename Function>
struct GeluBackward {
  const T *dy, *x;
  T* dx;

  template <int kN>
  struct Operands {
    Pack<T, kN> dy, x;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    return {load_pack<true, kN>(dy + unit * kN, kN), load_pack<true, kN>(x + unit * kN, kN)};
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands<kN>& o) const {
    Floats<kN> d = widen(o.dy);
    const Floats<kN> f = widen(o.x);
    for (int i = 0; i < kN; ++i) d.at[i] *= Function::slope(f.at[i]);
    store_pack<true>(dx + unit * kN, kN, narrow<T>(d));
  }
};

// Units of a row of `width` outputs.
template <typename T, typename Gate>
struct Gated {
  const T* gate_up;
  T* y;
  std::size_t width;

  template <int kN>
  struct Operands {
    Pack<T, kN> gate, up;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    const RowUnit u = row_unit(unit, static_cast<unsigned>(width / kN));
    const T* gate = gate_up + u.row * 2 * width + std::size_t{u.at} * kN;
    return {load_pack<true, kN>(gate, kN), load_pack<true, kN>(gate + width, kN)};
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands<kN>& o) const {
    Floats<kN> out = widen(o.gate);
    const Floats<kN> up = widen(o.up);
    for (int i = 0; i < kN; ++i) out.at[i] = Gate::value(out.at[i]) * up.at[i];
    store_pack<true>(y + unit * kN, kN, narrow<T>(out));
  }
};

template <typename T, typename Gate>
struct GatedBackward {
  const T *dy, *gate_up;
  T* d_gate_up;
  std::size_t width;

  template <int kN>
  struct Operands {
    Pack<T, kN> dy, gate, up;
    std::size_t at;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    const RowUnit u = row_unit(unit, static_cast<unsigned>(width / kN));
    const std::size_t at = u.row * 2 * width + std::size_t{u.at} * kN;
    return {load_pack<true, kN>(dy + unit * kN, kN), load_pack<true, kN>(gate_up + at, kN),
            load_pack<true, kN>(gate_up + at + width, kN), at};
  }
  template <int kN>
  __device__ void store(std::size_t, const Operands<kN>& o) const {
    const Floats<kN> d = widen(o.dy), gate = widen(o.gate), up = widen(o.up);
    Floats<kN> d_gate, d_up;
    for (int i = 0; i < kN; ++i) {
      const ValueAndSlope g = Gate::both(gate.at[i]);
      d_gate.at[i] = d.at[i] * up.at[i] * g.slope;
      d_up.at[i] = d.at[i] * g.value;
    }
    store_pack<true>(d_gate_up + o.at, kN, narrow<T>(d_gate));
    store_pack<true>(d_gate_up + o.at + width, kN, narrow<T>(d_up));
  }
};

template <typename T>
constexpr int kPack = 16 / sizeof(T);

// Rows of `width` elements, in 128-bit units if `packed` and the width permit.
template <typename T, typename F>
void map_rows(Lane& lane, const F& f, std::size_t rows, std::size_t width, bool packed) {
  constexpr int kN = kPack<T>;
  if (packed && width % kN == 0)
    map_units<kN, 2>(lane, f, 0, rows * (width / kN));
  else
    map_units<1, 2>(lane, f, 0, rows * width);
}

template <template <typename> typename Function>
void run_forward(Lane& lane, ConstView x, View y) {
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_elements<kPack<T>, 4>(lane, Gelu<T, Function<T>>{x.as<T>(), y.as<T>()}, x.size,
                              aligned(x.data, 16) && aligned(y.data, 16));
  });
}

template <template <typename> typename Function>
void run_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  const bool packed = aligned(dy.data, 16) && aligned(x.data, 16) && aligned(dx.data, 16);
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_elements<kPack<T>, 2>(lane, GeluBackward<T, Function<T>>{dy.as<T>(), x.as<T>(), dx.as<T>()}, x.size, packed);
  });
}

template <template <typename> typename Gate>
void run_gated_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  const bool packed = aligned(gate_up.data, 16) && aligned(y.data, 16);
  visit(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_rows<T>(lane, Gated<T, Gate<T>>{gate_up.as<T>(), y.as<T>(), width}, rows, width, packed);
  });
}

template <template <typename> typename Gate>
void run_gated_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up,
                        View d_gate_up) {
  const bool packed = aligned(dy.data, 16) && aligned(gate_up.data, 16) && aligned(d_gate_up.data, 16);
  visit(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_rows<T>(lane, GatedBackward<T, Gate<T>>{dy.as<T>(), gate_up.as<T>(), d_gate_up.as<T>(), width}, rows, width,
                packed);
  });
}

// tanh and relu: y[i] = f(a[i], b[i]), in fp32, of the few elements of a classifier's head.
constexpr unsigned kPairThreads = 128;

struct TanhForward {
  __device__ float operator()(float a, float) const { return tanhf(a); }
};
struct TanhBackward {
  __device__ float operator()(float d, float t) const { return d * fmaf(-t, t, 1.0f); }
};
struct ReluForward {
  __device__ float operator()(float a, float) const { return a < 0 ? 0.0f : a; }
};
struct ReluBackward {
  __device__ float operator()(float d, float r) const { return r > 0 ? d : 0.0f; }
};

template <typename T, typename F>
__global__ void __launch_bounds__(kPairThreads) map_pairs(F f, std::size_t n, const T* a, const T* b, T* y) {
  const std::size_t i = std::size_t{blockIdx.x} * kPairThreads + threadIdx.x;
  if (i < n) y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
}

template <typename F>
void map_all_pairs(Lane& lane, ConstView a, ConstView b, View y) {
  if (y.size == 0) return;
  visit(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, static_cast<unsigned>((y.size + kPairThreads - 1) / kPairThreads), kPairThreads, 0, map_pairs<T, F>,
           F{}, y.size, a.as<T>(), b.as<T>(), y.as<T>());
  });
}

}  // namespace

void activation_forward(Lane& lane, Activation function, ConstView x, View y) {
  switch (function) {
    case Activation::gelu_tanh:
      return run_forward<Tanh>(lane, x, y);
    case Activation::gelu_erf:
      return run_forward<Erf>(lane, x, y);
    case Activation::tanh:
      return map_all_pairs<TanhForward>(lane, x, x, y);
    case Activation::relu:
      return map_all_pairs<ReluForward>(lane, x, x, y);
  }
}

void activation_backward(Lane& lane, Activation function, ConstView dy, ConstView given, View dx) {
  switch (function) {
    case Activation::gelu_tanh:
      return run_backward<Tanh>(lane, dy, given, dx);
    case Activation::gelu_erf:
      return run_backward<Erf>(lane, dy, given, dx);
    case Activation::tanh:
      return map_all_pairs<TanhBackward>(lane, dy, given, dx);
    case Activation::relu:
      return map_all_pairs<ReluBackward>(lane, dy, given, dx);
  }
}

void gated_forward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  const auto run = gate == Gate::silu ? run_gated_forward<SiluGate> : run_gated_forward<GeluGate>;
  run(lane, rows, width, gate_up, y);
}

void gated_backward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up,
                    View d_gate_up) {
  const auto run = gate == Gate::silu ? run_gated_backward<SiluGate> : run_gated_backward<GeluGate>;
  run(lane, rows, width, dy, gate_up, d_gate_up);
}

}  // namespace strata::device::cuda
