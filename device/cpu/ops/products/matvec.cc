#include <algorithm>
#include <array>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/ops/products/product.h"

namespace strata::device::cpu {
namespace {

// The bytes of W that a task reads: enough to stream, few enough to balance.
constexpr std::size_t kTaskBytes = 128u << 10;
// The maximum number of outputs per task: their sums are on the stack.
constexpr std::size_t kMaxOutputs = 512;
constexpr std::size_t kMatvecGrain = 128;  // for an input-major matrix

}  // namespace

void matvec(Lane& lane, const MatvecShape& shape, ConstView w, ConstView x, ConstView bias, View y) {
  const auto& kernels = matvec_kernels();
  const auto kernel = (shape.input_major ? kernels.columns : kernels.rows)[index(w.dtype)];
  const std::size_t element = size_of(w.dtype);
  const std::size_t grain =
      shape.input_major ? kMatvecGrain : std::clamp<std::size_t>(kTaskBytes / (shape.in * element), 1, kMaxOutputs);
  const std::size_t step = shape.input_major ? 1 : shape.in;  // distance in W between two outputs
  const std::size_t stride = shape.input_major ? shape.out : shape.in;
  submit(lane, [=](Team& team) {
    team.for_range(shape.out, grain, [&](std::size_t begin, std::size_t end) {
      std::array<float, kMaxOutputs> sums;
      kernel({.outputs = end - begin,
              .inputs = shape.in,
              .stride = stride,
              .w = w.data + begin * step * element,
              .x = x.data,
              .y = sums.data()});
      visit(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* b = bias ? bias.as<T>() : nullptr;
        for (std::size_t i = begin; i < end; ++i) {
          const float sum = sums[i - begin] + (b ? to_float(b[i]) : 0.0f);
          if (y.dtype == DType::fp32)
            y.as<float>()[i] = sum;
          else
            y.as<T>()[i] = from_float<T>(sum);
        }
      });
    });
  });
}

}  // namespace strata::device::cpu
