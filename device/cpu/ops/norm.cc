#include "device/ops/norm.h"

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/row_blocks.h"

namespace strata::device::cpu {
namespace {

// The number of rows per task of the forward: about 128 KiB of input.
std::size_t rows_per_task(const NormShape& shape) {
  return std::max<std::size_t>(1, kGrain / (shape.groups * shape.width));
}

std::byte* at(View v, std::size_t element) {
  return v.data ? v.data + element * size_of(v.dtype) : nullptr;
}
const std::byte* at(ConstView v, std::size_t element) {
  return v.data ? v.data + element * size_of(v.dtype) : nullptr;
}

// A norm with means is a layer norm.
void forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y, float* mean,
             float* rstd) {
  const auto kernel = norm_kernels().forward[mean != nullptr][index(x.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(shape.rows, rows_per_task(shape), [&](std::size_t begin, std::size_t end) {
      kernel({.rows = end - begin,
              .groups = shape.groups,
              .width = shape.width,
              .x_stride = shape.x_stride,
              .y_stride = shape.y_stride,
              .eps = shape.eps,
              .x = at(x, begin * shape.x_stride),
              .gain = gain.data,
              .bias = bias.data,
              .y = at(y, begin * shape.y_stride),
              .mean = mean ? mean + begin * shape.groups : nullptr,
              .rstd = rstd + begin * shape.groups});
    });
  });
}

void backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, const float* mean,
              const float* rstd, ConstView residual, View dx, View dgain, View dbias, View workspace) {
  const auto kernel = norm_kernels().backward[mean != nullptr][index(x.dtype)];
  auto* dgains = reinterpret_cast<float*>(workspace.data);
  const auto add_blocks = elementwise_kernels().add_partials;
  submit(lane, [=](Team& team) {
    const RowBlocks blocks(shape.rows);
    float* dbiases = dgains + blocks.count * shape.width;
    team.run(blocks.count, [&](std::size_t block, int) {
      const std::size_t row = blocks.begin(block);
      kernel({.rows = blocks.size(block),
              .groups = shape.groups,
              .width = shape.width,
              .x_stride = shape.x_stride,
              .y_stride = shape.y_stride,
              .dy = at(dy, row * shape.y_stride),
              .x = at(x, row * shape.x_stride),
              .gain = gain.data,
              .residual = at(residual, row * shape.x_stride),
              .mean = mean ? mean + row * shape.groups : nullptr,
              .rstd = rstd + row * shape.groups,
              .dx = at(dx, row * shape.x_stride),
              .dgain = dgains + block * shape.width,
              .dbias = dbiases + block * shape.width});
    });
    const auto add_up = [&](const float* partials, View out) {
      add_blocks[index(out.dtype)](partials, blocks.count, shape.width, out.data, shape.width);
    };
    add_up(dgains, dgain);
    if (dbias) add_up(dbiases, dbias);
  });
}

}  // namespace

void layernorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y,
                       View mean, View rstd) {
  forward(lane, shape, x, gain, bias, y, mean.as<float>(), rstd.as<float>());
}

void layernorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, View dgain, View dbias, View workspace) {
  backward(lane, shape, dy, x, gain, mean.as<float>(), rstd.as<float>(), dresidual, dx, dgain, dbias, workspace);
}

void rmsnorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, View y, View rstd) {
  forward(lane, shape, x, gain, {}, y, nullptr, rstd.as<float>());
}

void rmsnorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                      ConstView dresidual, View dx, View dgain, View workspace) {
  backward(lane, shape, dy, x, gain, nullptr, rstd.as<float>(), dresidual, dx, dgain, {}, workspace);
}

}  // namespace strata::device::cpu
