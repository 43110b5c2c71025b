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

}  // namespace strata::device::cuda
