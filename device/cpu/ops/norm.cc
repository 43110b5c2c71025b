#include "device/ops/norm.h"

#include "device/cpu/kernels/elementwise.h"
#include "device/cpu/kernels/norm.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {
namespace {

// Rows of a task of the forward: about 128 KiB of reading.
std::size_t rows_per_task(const NormShape& shape) {
  return std::max<std::size_t>(1, cpu::kGrain / (shape.groups * shape.width));
}

void check_vectors(const NormShape& shape, ConstView view, std::size_t stride) {
  if (shape.rows > 0) STRATA_CHECK_LE((shape.rows - 1) * stride + shape.groups * shape.width, view.size);
}

void check_saved(const NormShape& shape, ConstView saved) {
  STRATA_CHECK_EQ(saved.size, shape.rows * shape.groups);
}

std::byte* at(View v, std::size_t element) {
  return v.data ? v.data + element * size_of(v.dtype) : nullptr;
}
const std::byte* at(ConstView v, std::size_t element) {
  return v.data ? v.data + element * size_of(v.dtype) : nullptr;
}

void forward(Lane& lane, void (*kernel)(const cpu::NormForward&), const NormShape& shape, ConstView x, ConstView gain,
             ConstView bias, View y, float* mean, float* rstd) {
  check_vectors(shape, x, shape.x_stride);
  check_vectors(shape, y, shape.y_stride);
  STRATA_CHECK_EQ(gain.size, shape.width);
  STRATA_CHECK(x.dtype == y.dtype && x.dtype == gain.dtype);
  cpu::submit(lane, [=](cpu::Team& team) {
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

void backward(Lane& lane, void (*kernel)(const cpu::NormBackward&), const NormShape& shape, ConstView dy, ConstView x,
              ConstView gain, const float* mean, const float* rstd, ConstView residual, View dx, View dgain, View dbias,
              View workspace) {
  check_vectors(shape, x, shape.x_stride);
  check_vectors(shape, dx, shape.x_stride);
  check_vectors(shape, dy, shape.y_stride);
  if (residual) check_vectors(shape, residual, shape.x_stride);
  STRATA_CHECK_EQ(gain.size, shape.width);
  STRATA_CHECK_EQ(dgain.size, shape.width);
  STRATA_CHECK(x.dtype == dy.dtype && x.dtype == gain.dtype && x.dtype == dx.dtype);
  STRATA_CHECK(!residual || residual.dtype == x.dtype);
  STRATA_CHECK_LE(norm_backward_workspace(shape), workspace.bytes());
  auto* dgains = reinterpret_cast<float*>(workspace.data);
  const auto add_blocks = cpu::elementwise_kernels().add_partials;
  cpu::submit(lane, [=](cpu::Team& team) {
    const cpu::RowBlocks blocks(shape.rows);
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
      add_blocks[cpu::index(out.dtype)](partials, blocks.count, shape.width, out.data, shape.width);
    };
    add_up(dgains, dgain);
    if (dbias) add_up(dbiases, dbias);
  });
}

}  // namespace

void layernorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y,
                       View mean, View rstd) {
  STRATA_CHECK_EQ(bias.size, shape.width);
  STRATA_CHECK(bias.dtype == x.dtype);
  check_saved(shape, mean);
  check_saved(shape, rstd);
  forward(lane, cpu::norm_kernels().layernorm_forward[cpu::index(x.dtype)], shape, x, gain, bias, y, mean.as<float>(),
          rstd.as<float>());
}

void layernorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, View dgain, View dbias, View workspace) {
  STRATA_CHECK_EQ(dbias.size, shape.width);
  check_saved(shape, mean);
  check_saved(shape, rstd);
  backward(lane, cpu::norm_kernels().layernorm_backward[cpu::index(x.dtype)], shape, dy, x, gain, mean.as<float>(),
           rstd.as<float>(), dresidual, dx, dgain, dbias, workspace);
}

void rmsnorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, View y, View rstd) {
  check_saved(shape, rstd);
  forward(lane, cpu::norm_kernels().rmsnorm_forward[cpu::index(x.dtype)], shape, x, gain, {}, y, nullptr,
          rstd.as<float>());
}

void rmsnorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                      ConstView dresidual, View dx, View dgain, View workspace) {
  check_saved(shape, rstd);
  backward(lane, cpu::norm_kernels().rmsnorm_backward[cpu::index(x.dtype)], shape, dy, x, gain, nullptr,
           rstd.as<float>(), dresidual, dx, dgain, {}, workspace);
}

std::size_t norm_backward_workspace(const NormShape& shape) {
  return 2 * cpu::RowBlocks(shape.rows).count * shape.width * sizeof(float);
}

}  // namespace strata::device
