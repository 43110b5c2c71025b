#include "device/ops/elementwise.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/nf4.h"
#include "device/numeric/philox.h"
#include "device/numeric/row_blocks.h"

namespace strata::device::cpu {
namespace {

// The number of columns per task.
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

namespace {

// Calls add(at, n, bias, out) for ranges [at, at + n) of the result, each within one row of the bias.
template <typename Add>
void by_rows(Team& team, std::size_t count, ConstView bias, View out, const Add& add) {
  const std::size_t row = bias ? bias.size : out.size;
  team.for_range(out.size, std::max<std::size_t>(kGrain / count, 1), [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const std::size_t column = at % row, n = std::min(end - at, row - column);
      add(at, n, bias ? bias.sub(column, n).data : nullptr, out.sub(at, n).data);
      at += n;
    }
  });
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  const auto kernel = tree_sum_kernels().tree_sum[index(out.dtype)];
  const auto* from = partials.as<float>();
  submit(lane, [=](Team& team) {
    by_rows(team, count, bias, out, [&](std::size_t at, std::size_t n, const std::byte* some_bias, std::byte* to) {
      kernel(from + at, count, out.size, some_bias, to, n);
    });
  });
}

void tree_sum_of_pieces(Lane& lane, std::span<const std::byte* const> partials, ConstView bias, View out) {
  const auto kernel = tree_sum_kernels().tree_sum_of_pieces[index(out.dtype)];
  submit(lane, [=](Team& team) {
    by_rows(team, partials.size(), bias, out,
            [&](std::size_t at, std::size_t n, const std::byte* some_bias, std::byte* to) {
              kernel(partials.data(), partials.size(), at, some_bias, to, n);
            });
  });
}

void dropout(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  const auto drop = dropout_kernels().dropout[index(x.dtype)];
  const auto sum = elementwise_kernels().sum[index(x.dtype)];
  submit(lane, [=](Team& team) {
    RandomStream stream{};
    if (use.probability > 0.0f)
      stream = {use.scalars->seed, use.scalars->first_micro_batch + use.micro_batch, use.site};
    const std::uint32_t threshold = drop_threshold(use.probability);
    const float scale = 1.0f / (1.0f - use.probability);
    if (use.columns > 0 && use.probability > 0.0f) {
      const std::size_t n = use.columns;
      return for_rows(team, x.size / n, n, [&](std::size_t row) {
        drop(stream, use.first + row * use.stride, threshold, scale, x.sub(row * n, n).data,
             residual ? residual.sub(row * n, n).data : nullptr, out.sub(row * n, n).data, n);
      });
    }
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      const std::byte* from = x.sub(begin, n).data;
      const std::byte* base = residual ? residual.sub(begin, n).data : nullptr;
      std::byte* to = out.sub(begin, n).data;
      if (use.probability > 0.0f)
        drop(stream, use.first + begin, threshold, scale, from, base, to, n);
      else if (base)
        sum(base, from, to, n);
      else if (from != to)
        std::memcpy(to, from, n * size_of(x.dtype));
    });
  });
}

void unpack(Lane& lane, StorageFormat format, const std::byte* packed, View out) {
  const auto kernel = unpack_kernels().nf4[index(out.dtype)];
  const std::size_t bytes = stored_bytes(format, kNf4Block);
  const std::size_t codes = format == StorageFormat::nf4 ? kNf4Codes : kNf4PlainCodes;
  submit(lane, [=](Team& team) {
    for_rows(team, out.size / kNf4Block, kNf4Block, [&](std::size_t block) {
      float scales[kNf4Scales];
      read_nf4_scales(format, packed + block * bytes, scales);
      kernel(scales, packed + block * bytes + codes, out.sub(block * kNf4Block, kNf4Block).data);
    });
  });
}

}  // namespace strata::device::cpu
