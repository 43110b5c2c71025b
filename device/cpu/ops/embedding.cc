#include "device/ops/embedding.h"

#include <cstring>
#include <utility>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"

namespace strata::device::cpu {
namespace {

// Table rows per task of the backward.
constexpr std::size_t kTableGrain = 64;

// Sorts the positions whose indices fall into the tile by index (counting sort: stable, so in ascending i). Those of
// the tile's row t become order[ends[t - 1] .. ends[t]).
void sort_by_index(std::size_t rows, const std::uint32_t* indices, const TableRows& tile, std::uint32_t* ends,
                   std::uint32_t* order) {
  std::memset(ends, 0, tile.count * sizeof(*ends));
  for (std::size_t i = 0; i < rows; ++i) {
    STRATA_CHECK_LT(indices[i], tile.total);
    if (const std::size_t t = indices[i] - tile.first; t < tile.count) ++ends[t];
  }
  std::uint32_t begin = 0;
  for (std::size_t t = 0; t < tile.count; ++t) begin += std::exchange(ends[t], begin);
  for (std::size_t i = 0; i < rows; ++i)
    if (const std::size_t t = indices[i] - tile.first; t < tile.count) order[ends[t]++] = static_cast<std::uint32_t>(i);
}

}  // namespace

void embedding_forward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                       ConstView table, View out) {
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t i) {
      STRATA_CHECK_LT(indices[i], tile.total);
      const std::size_t t = indices[i] - tile.first;
      if (t >= tile.count) return;  // also before the tile, because it wraps around
      const ConstView row = table.sub(t * width, width);
      std::memcpy(out.sub(i * width, width).data, row.data, row.bytes());
    });
  });
}

void embedding_add(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, ConstView table,
                   View out) {
  const auto sum = elementwise_kernels().sum[index(out.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t i) {
      const View to = out.sub(i * width, width);
      sum(to.data, table.sub(indices[i] * width, width).data, to.data, width);
    });
  });
}

void embedding_backward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                        ConstView dout, View dtable, View workspace) {
  const auto sum_rows = embedding_kernels().sum_rows[index(dout.dtype)][index(dtable.dtype)];
  auto* ends = reinterpret_cast<std::uint32_t*>(workspace.data);
  submit(lane, [=](Team& team) {
    std::uint32_t* order = ends + tile.count;
    sort_by_index(rows, indices, tile, ends, order);
    team.for_range(tile.count, kTableGrain, [&](std::size_t first, std::size_t last) {
      for (std::size_t t = first; t < last; ++t) {
        const std::uint32_t begin = t == 0 ? 0 : ends[t - 1];
        const View to = dtable.sub(t * width, width);
        if (begin == ends[t])
          std::memset(to.data, 0, to.bytes());
        else
          sum_rows(dout.data, order + begin, ends[t] - begin, to.data, width);
      }
    });
  });
}

}  // namespace strata::device::cpu
