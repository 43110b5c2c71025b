#include "device/ops/dora.h"

#include <cmath>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/row_blocks.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kColumns = 64;  // per task

const DoraKernels& kernels_of(DType dtype) {
  return dora_kernels().of[index(dtype)];
}

}  // namespace

void dora_squares(Lane& lane, const DoraShape& shape, ConstView w, ConstView a, ConstView b, View squares,
                  View workspace) {
  const auto [out, in, rank, input_major, scale] = shape;
  const auto widen = elementwise_kernels().cast[index(w.dtype)][index(DType::fp32)];
  auto* const all_a = reinterpret_cast<float*>(workspace.data);
  float *const all_b = all_a + rank * in, *const transposed = all_b + rank * out;
  submit(lane, [=, &kernels = kernels_of(w.dtype)](Team& team) {
    const auto widen_all = [&](ConstView from, float* to) {
      team.for_range(from.size, kGrain, [&](std::size_t begin, std::size_t end) {
        widen(from.sub(begin, end - begin).data, reinterpret_cast<std::byte*>(to + begin), end - begin);
      });
    };
    widen_all(a, all_a);
    widen_all(b, all_b);
    auto* const square = squares.as<float>();
    if (input_major) {
      team.for_range(out, kColumns, [&](std::size_t begin, std::size_t end) {
        for (std::size_t o = begin; o < end; ++o)
          for (std::size_t r = 0; r < rank; ++r) transposed[r * out + o] = all_b[o * rank + r];
      });
      team.for_range(out, kColumns, [&](std::size_t begin, std::size_t end) {
        kernels.column_squares(w.sub(begin, 0).data, in, end - begin, out, all_a, transposed + begin, rank, scale,
                               square + begin);
      });
    } else {
      team.for_range(out, 4, [&](std::size_t begin, std::size_t end) {
        for (std::size_t o = begin; o < end; ++o)
          square[o] = kernels.row_square(w.sub(o * in, in).data, in, all_a, all_b + o * rank, rank, scale);
      });
    }
  });
}

void dora_scales(Lane& lane, ConstView squares, ConstView magnitude, View norms, View scales) {
  const auto widen = elementwise_kernels().cast[index(magnitude.dtype)][index(DType::fp32)];
  const auto narrow = elementwise_kernels().cast[index(DType::fp32)][index(magnitude.dtype)];
  submit(lane, [=](Team& team) {
    const auto* const square = squares.as<float>();
    auto *const norm = norms.as<float>(), *const factor = scales.as<float>();
    team.for_range(magnitude.size, kColumns, [&](std::size_t begin, std::size_t end) {
      widen(magnitude.sub(begin, end - begin).data, reinterpret_cast<std::byte*>(factor + begin), end - begin);
      for (std::size_t o = begin; o < end; ++o) norm[o] = std::sqrt(square[o]);
      std::byte rounded[kColumns * sizeof(float)];
      for (std::size_t o = begin; o < end; o += kColumns) {
        const std::size_t n = std::min(kColumns, end - o);
        narrow(reinterpret_cast<const std::byte*>(norm + o), rounded, n);
        widen(rounded, reinterpret_cast<std::byte*>(norm + o), n);
      }
      for (std::size_t o = begin; o < end; ++o) factor[o] = norm[o] > 0 ? factor[o] / norm[o] : 0;
    });
  });
}

void scale_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, ConstView scales,
                   ConstView bias, View out, ConstView added, float sign) {
  submit(lane, [=, &kernels = kernels_of(x.dtype)](Team& team) {
    const auto* const factors = reinterpret_cast<const float*>(scales.data);
    for_rows(team, rows, columns, [&](std::size_t r) {
      kernels.scale_row(x.sub(r * stride, columns).data, factors, bias.data,
                        added ? added.sub(r * stride, columns).data : nullptr, sign, out.sub(r * stride, columns).data,
                        columns);
    });
  });
}

void column_dot(Lane& lane, std::size_t rows, std::size_t columns, std::size_t x_stride, ConstView x,
                std::size_t y_stride, ConstView y, ConstView divisors, View out, View workspace) {
  const auto add_blocks = elementwise_kernels().add_partials[index(DType::fp32)];
  const auto narrow = elementwise_kernels().cast[index(DType::fp32)][index(out.dtype)];
  auto* partials = reinterpret_cast<float*>(workspace.data);
  const DoraKernels& kernels = kernels_of(x.dtype);
  const auto column_dots = y.dtype == x.dtype ? kernels.column_dots : kernels.column_dots_fp32;
  submit(lane, [=](Team& team) {
    const RowBlocks blocks(rows);
    const std::size_t slices = (columns + kColumns - 1) / kColumns;
    team.run(blocks.count * slices, [&](std::size_t task, int) {
      const std::size_t block = task / slices, column = task % slices * kColumns;
      const std::size_t row = blocks.begin(block);
      column_dots(x.sub(row * x_stride + column, 0).data, y.sub(row * y_stride + column, 0).data, blocks.size(block),
                  std::min(kColumns, columns - column), x_stride, y_stride, partials + block * columns + column);
    });
    team.for_range(columns, kColumns, [&](std::size_t begin, std::size_t end) {
      float sums[kColumns];
      for (std::size_t at = begin; at < end; at += kColumns) {
        const std::size_t n = std::min(kColumns, end - at);
        add_blocks(partials + at, blocks.count, columns, reinterpret_cast<std::byte*>(sums), n);
        const auto* divisor = divisors.as<float>() + at;
        for (std::size_t i = 0; i < n; ++i) sums[i] = divisor[i] > 0 ? sums[i] / divisor[i] : 0;
        narrow(reinterpret_cast<const std::byte*>(sums), out.sub(at, n).data, n);
      }
    });
  });
}

}  // namespace strata::device::cpu
