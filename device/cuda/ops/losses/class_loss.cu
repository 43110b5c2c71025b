#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/class_loss_row.h"
#include "device/ops/losses/class_loss.h"

namespace strata::device::cuda {
namespace {

constexpr unsigned kThreads = 128;

unsigned blocks_of(std::size_t elements) {
  return static_cast<unsigned>((elements + kThreads - 1) / kThreads);
}

// One thread per row: there are few documents and few classes.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    losses_of_rows(ClassScoreShape shape, std::size_t words, const float* scores, const std::int32_t* labels,
                   const std::uint32_t* sets, const float* weights, const StepScalars* scalars, float* losses,
                   T* d_scores) {
  const std::size_t row = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= shape.rows) return;
  T* const to = d_scores == nullptr ? nullptr : d_scores + row * shape.stride;
  const float scale = to == nullptr ? 0.0f : scalars->loss_gradient;
  losses[row] = class_loss_of_row(shape, scores + row * shape.stride, labels[row], sets + row * words, weights, scale,
                                  [to](std::size_t c, float g) {
                                    if (to != nullptr) to[c] = from_float<T>(g);
                                  });
}

struct Tanh {
  __device__ float operator()(float a, float) const { return tanhf(a); }
};
struct TanhBackward {
  __device__ float operator()(float d, float t) const { return d * fmaf(-t, t, 1.0f); }
};
struct Relu {
  __device__ float operator()(float a, float) const { return a < 0 ? 0.0f : a; }
};
struct ReluBackward {
  __device__ float operator()(float d, float r) const { return r > 0 ? d : 0.0f; }
};

template <typename T, typename F>
__global__ void __launch_bounds__(kThreads) map_pairs(F f, std::size_t n, const T* a, const T* b, T* y) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
}

template <typename F>
void map(Lane& lane, ConstView a, ConstView b, View y) {
  if (y.size == 0) return;
  visit(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, blocks_of(y.size), kThreads, 0, map_pairs<T, F>, F{}, y.size, a.as<T>(), b.as<T>(), y.as<T>());
  });
}

}  // namespace

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  if (shape.rows == 0) return;
  visit(d_scores ? d_scores.dtype : DType::fp32, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, blocks_of(shape.rows), kThreads, 0, losses_of_rows<T>, shape,
           class_set_words(shape.target, shape.classes), scores.as<float>(), labels, sets, weights, scalars,
           losses.as<float>(), d_scores ? d_scores.as<T>() : nullptr);
  });
}

void tanh_forward(Lane& lane, ConstView x, View y) {
  map<Tanh>(lane, x, x, y);
}

void tanh_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  map<TanhBackward>(lane, dy, y, dx);
}

void relu_forward(Lane& lane, ConstView x, View y) {
  map<Relu>(lane, x, x, y);
}

void relu_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  map<ReluBackward>(lane, dy, y, dx);
}

}  // namespace strata::device::cuda
