#include "device/ops/elementwise.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/numeric/row_blocks.h"

namespace strata::device::cpu {
namespace {

// The columns of a partial sum that one task of the last addition takes.
constexpr std::size_t kElementGrain = 1024;

}  // namespace

void zero(Lane& lane, View x) {
  submit(lane, [=](Team& team) {
    team.for_range(x.bytes(), 4 * kGrain,
                   [&](std::size_t begin, std::size_t end) { std::memset(x.data + begin, 0, end - begin); });
  });
}

void cast(Lane& lane, ConstView from, View to) {
  const auto kernel = elementwise_kernels().cast[index(from.dtype)][index(to.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(to.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const ConstView source = from.sub(begin, end - begin);
      const View target = to.sub(begin, end - begin);
      if (from.dtype == to.dtype)
        std::memcpy(target.data, source.data, source.bytes());
      else
        kernel(source.data, target.data, end - begin);
    });
  });
}

void cast_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t from_stride, ConstView from,
                  std::size_t to_stride, View to) {
  const auto kernel = elementwise_kernels().cast[index(from.dtype)][index(to.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, rows, std::max<std::size_t>(1, columns), [&](std::size_t row) {
      const ConstView source = from.sub(row * from_stride, columns);
      const View target = to.sub(row * to_stride, columns);
      if (from.dtype == to.dtype)
        std::memcpy(target.data, source.data, source.bytes());
      else
        kernel(source.data, target.data, columns);
    });
  });
}

void add(Lane& lane, ConstView from, View to) {
  auto* sums = to.as<float>();
  const auto kernel = elementwise_kernels().add[index(from.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(to.size, kGrain, [&](std::size_t begin, std::size_t end) {
      kernel(from.sub(begin, end - begin).data, sums + begin, end - begin);
    });
  });
}

void scale(Lane& lane, ConstView x, float factor, View out) {
  const auto kernel = elementwise_kernels().scale[index(x.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      kernel(x.sub(begin, end - begin).data, factor, out.sub(begin, end - begin).data, end - begin);
    });
  });
}

void count_nonfinite(Lane& lane, ConstView x, std::uint64_t* count) {
  const auto kernel = elementwise_kernels().count_nonfinite[index(x.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::uint64_t found = kernel(x.sub(begin, end - begin).data, end - begin);
      if (found != 0) std::atomic_ref(*count).fetch_add(found, std::memory_order_relaxed);
    });
  });
}

void column_sum(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, View out,
                View workspace) {
  const auto& kernels = elementwise_kernels();
  const auto sum_rows = kernels.column_sum[index(x.dtype)];
  const auto add_blocks = kernels.add_partials[index(out.dtype)];
  auto* partials = reinterpret_cast<float*>(workspace.data);
  submit(lane, [=](Team& team) {
    const RowBlocks blocks(rows);
    // A block of rows is also cut by columns, so that its sums stay in the L1 cache.
    const std::size_t slices = (columns + kElementGrain - 1) / kElementGrain;
    team.run(blocks.count * slices, [&](std::size_t task, int) {
      const std::size_t block = task / slices, column = task % slices * kElementGrain;
      const std::size_t offset = (blocks.begin(block) * stride + column) * size_of(x.dtype);
      sum_rows(x.data + offset, blocks.size(block), std::min(kElementGrain, columns - column), stride,
               partials + block * columns + column);
    });
    team.for_range(columns, kElementGrain, [&](std::size_t begin, std::size_t end) {
      add_blocks(partials + begin, blocks.count, columns, out.sub(begin, end - begin).data, end - begin);
    });
  });
}

}  // namespace strata::device::cpu
