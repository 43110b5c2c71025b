#include <algorithm>

#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/ops/embedding.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 256;

// An index outside the table ends the run: __trap() is how a kernel fails.
__device__ inline std::uint32_t checked(std::uint32_t index, std::size_t total) {
  if (index >= total) __trap();
  return index;
}

// Copies rows. T: 16 bytes, or an element's bits.
template <typename T>
struct CopyRows {
  const std::uint32_t* indices;
  TableRows tile;
  const T* table;
  T* out;
  unsigned width;  // in units of T

  struct Operands {
    T x;
    bool inside;
  };
  template <int kN>
  __device__ Operands load(std::size_t unit) const {
    static_assert(kN == 1);
    const RowUnit u = row_unit(unit, width);
    const std::size_t t = checked(indices[u.row], tile.total) - tile.first;  // before the tile, it wraps around
    if (t >= tile.count) return {T{}, false};
    return {table[t * width + u.at], true};
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands& o) const {
    if (o.inside) out[unit] = o.x;
  }
};

template <typename T>
void copy_rows(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
               ConstView table, View out) {
  const CopyRows<T> f{indices, tile, reinterpret_cast<const T*>(table.data), reinterpret_cast<T*>(out.data),
                      static_cast<unsigned>(width)};
  map_units<1, 4>(lane, f, 0, rows * width);
}

template <typename T>
struct AddRows {
  const std::uint32_t* indices;
  const T* table;
  T* out;
  std::size_t width;

  template <int kN>
  struct Operands {
    Pack<T, kN> row, out;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    const RowUnit u = row_unit(unit, static_cast<unsigned>(width / kN));
    return {load_pack<true, kN>(table + indices[u.row] * width + std::size_t{u.at} * kN, kN),
            load_pack<true, kN>(out + unit * kN, kN)};
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands<kN>& o) const {
    Floats<kN> sum = widened(o.out);
    const Floats<kN> row = widened(o.row);
    for (int i = 0; i < kN; ++i) sum.at[i] += row.at[i];
    store_pack<true>(out + unit * kN, kN, rounded<T>(sum));
  }
};

// The backward sorts positions by index, like the CPU's: order[ends[t - 1] .. ends[t]) are those of the tile's row t,
// ascending. The first step counts each row's positions (ends[t]) with integer additions, whose order does not matter.
__global__ void __launch_bounds__(kThreads)
    count_positions(std::size_t rows, const std::uint32_t* indices, TableRows tile, std::uint32_t* ends) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows) return;
  const std::size_t t = checked(indices[i], tile.total) - tile.first;
  if (t < tile.count) atomicAdd(ends + t, 1u);
}

// The second step finds where each row's positions begin (stored in ends[t] for now). Each block takes a chunk of the
// tile with `per_block` rows, a multiple of kThreads.
__device__ inline std::uint32_t sum_block(std::uint32_t x, std::uint32_t* shared) {
  x = __reduce_add_sync(kAllLanes, x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) x += shared[w];
  return x;
}

__global__ void __launch_bounds__(kThreads)
    sum_chunks(const std::uint32_t* ends, std::size_t count, std::size_t per_block, std::uint32_t* sums) {
  __shared__ std::uint32_t shared[kThreads / kWarp];
  const std::size_t begin = blockIdx.x * per_block, end = min(begin + per_block, count);
  std::uint32_t sum = 0;
#pragma unroll 8
  for (std::size_t t = begin + threadIdx.x; t < end; t += kThreads) sum += ends[t];
  sum = sum_block(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The sum of x over the threads before this one; `all` becomes the sum over the block. The block has synchronized when
// it returns.
__device__ inline std::uint32_t sum_before(std::uint32_t x, std::uint32_t* shared, std::uint32_t& all) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t sum = x;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const std::uint32_t y = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += y;
  }
  __syncthreads();  // the previous round's sums have been read
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  all = 0;
  for (unsigned w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) sum += shared[w];
    all += shared[w];
  }
  return sum - x;
}

// sums: the sums of the chunks.
__global__ void __launch_bounds__(kThreads)
    scan_chunks(std::uint32_t* ends, std::size_t count, std::size_t per_block, const std::uint32_t* sums) {
  __shared__ std::uint32_t shared[kThreads / kWarp];
  std::uint32_t before = 0, all;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kThreads) before += sums[b];
  before = sum_block(before, shared);
  const std::size_t begin = blockIdx.x * per_block, end = min(begin + per_block, count);
  for (std::size_t first = begin; first < end; first += kThreads) {
    const std::size_t t = first + threadIdx.x;
    const std::uint32_t mine = sum_before(t < end ? ends[t] : 0, shared, all);
    if (t < end) ends[t] = before + mine;
    before += all;
  }
}

// In the third step, each position takes the next place of its row, in the arbitrary order of the atomics; afterwards
// ends[t] is the end of row t. There is one launch per window of positions, so that a row's positions are grouped by
// window.
constexpr std::size_t kWindow = 65536;

__global__ void __launch_bounds__(kThreads)
    place_positions(std::size_t begin, std::size_t end, const std::uint32_t* indices, TableRows tile,
                    std::uint32_t* ends, std::uint32_t* order) {
  const std::size_t i = begin + std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= end) return;
  const std::size_t t = indices[i] - tile.first;
  if (t < tile.count) order[atomicAdd(ends + t, 1u)] = static_cast<std::uint32_t>(i);
}

// The last step sorts each row's positions, so that their order no longer depends on the atomics. A block takes every
// gridDim-th row, because frequent words are neighbours. A warp sorts the rows with few positions: the place of each
// position is the number of smaller positions. The block sorts the others, window by window, with a bit for each
// position.
constexpr unsigned kRowsPerBlock = kWarp;

__global__ void __launch_bounds__(kThreads)
    sort_rows(std::size_t count, const std::uint32_t* ends, std::uint32_t* order) {
  constexpr int kWords = kWindow / 32 / kThreads;  // per thread
  __shared__ std::uint32_t bits[kWords * kThreads], shared[kThreads / kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::size_t row = blockIdx.x + std::size_t{lane} * gridDim.x;  // every warp looks at all of the block's rows
  const std::uint32_t my_begin = row < count && row > 0 ? ends[row - 1] : 0, my_end = row < count ? ends[row] : 0;
  const std::uint32_t some = my_end > my_begin ? my_end - my_begin : 0;

  for (unsigned few = __ballot_sync(kAllLanes, some > 1 && some <= kWarp && lane % (kThreads / kWarp) == warp);
       few != 0; few &= few - 1) {
    const int r = __ffs(static_cast<int>(few)) - 1;
    const std::uint32_t begin = __shfl_sync(kAllLanes, my_begin, r), n = __shfl_sync(kAllLanes, some, r);
    const std::uint32_t position = lane < n ? order[begin + lane] : ~0u;
    std::uint32_t smaller = 0;
    for (std::uint32_t k = 0; k < n; ++k) smaller += __shfl_sync(kAllLanes, position, static_cast<int>(k)) < position;
    if (lane < n) order[begin + smaller] = position;
  }

  for (unsigned many = __ballot_sync(kAllLanes, some > kWarp); many != 0; many &= many - 1) {
    const int r = __ffs(static_cast<int>(many)) - 1;
    std::uint32_t begin = __shfl_sync(kAllLanes, my_begin, r);
    const std::uint32_t end = __shfl_sync(kAllLanes, my_end, r);
    while (begin < end) {
      const std::uint32_t window = order[begin] / kWindow;
      for (int w = 0; w < kWords; ++w) bits[w * kThreads + threadIdx.x] = 0;
      __syncthreads();
#pragma unroll 4
      for (std::uint32_t k = begin + threadIdx.x; k < end; k += kThreads) {
        const std::uint32_t position = order[k];
        if (position / kWindow != window) break;
        atomicOr(bits + position % kWindow / 32, 1u << position % 32);
      }
      __syncthreads();
      std::uint32_t mine = 0, all;
      for (int w = 0; w < kWords; ++w) mine += static_cast<unsigned>(__popc(bits[threadIdx.x * kWords + w]));
      std::uint32_t to = begin + sum_before(mine, shared, all);
      for (int w = 0; w < kWords; ++w) {
        const unsigned word = threadIdx.x * kWords + w;
        for (std::uint32_t left = bits[word]; left != 0; left &= left - 1)
          order[to++] = static_cast<std::uint32_t>(window * kWindow) + word * 32 +
                        static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1);
      }
      begin += all;
      __syncthreads();  // the bits have been read
    }
  }
}

// A warp sums kRows rows of the table over a slice of the columns. Slices are so narrow that many warps share a word
// with very many positions. The rows' positions follow each other in `order`. Rows of dout are read ahead of the row
// that is summed: kAhead of them, or kMany if they all belong to it.
constexpr unsigned kRows = 16, kAhead = 8;

template <typename T, typename Out, int kN>
__global__ void __launch_bounds__(kThreads) sum_positions(unsigned width, std::size_t count, const std::uint32_t* ends,
                                                          const std::uint32_t* order, const T* dout, Out* dtable) {
  constexpr unsigned kMany = 64 / sizeof(T);
  static_assert(kMany <= kWarp && kMany % kAhead == 0);
  const unsigned lane = threadIdx.x % kWarp, slices = (width + kWarp * kN - 1) / (kWarp * kN);
  const RowUnit u = row_unit(std::size_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp, slices);
  const std::size_t first = u.row * kRows;
  if (first >= count) return;
  const unsigned column = (u.at * kWarp + lane) * kN,
                 rows = static_cast<unsigned>(min(count - first, std::size_t{kRows}));
  const std::size_t at = first + min(lane, rows);  // lane r: the start of row first + r
  const std::uint32_t edge = at > 0 ? ends[at - 1] : 0;
  std::uint32_t end = __shfl_sync(kAllLanes, edge, 1);
  const std::uint32_t begin = __shfl_sync(kAllLanes, edge, 0), last = __shfl_sync(kAllLanes, edge, kWarp - 1);

  const bool inside = column < width;
  const T* const from = dout + (inside ? column : 0);  // lanes beyond the row read what they do not need
  Out* to = dtable + first * width + column;
  unsigned row = 0;
  Floats<kN> sum{};
  const auto store_row = [&] {
    if (inside) store_pack<true>(to, kN, narrow<Out>(sum));
    sum = {};
    to += width;
    ++row;
    end = __shfl_sync(kAllLanes, edge, static_cast<int>(row) + 1);
  };
  const auto load = [&](std::uint32_t position) {
    return load_pack<true, kN>(from + std::uint64_t{position} * width, kN);
  };
  const auto add = [&](const Pack<T, kN>& x) {
    const Floats<kN> f = widen(x);
    for (int i = 0; i < kN; ++i) sum.at[i] += f.at[i];
  };
  const auto position = [&](std::uint32_t k) { return k + lane < last ? order[k + lane] : 0; };
  std::uint32_t next = position(begin);
  for (std::uint32_t k = begin; k < last; k += kMany) {
    const std::uint32_t mine = next;
    next = position(k + kMany);
    if (end - k >= kMany) {
      Pack<T, kN> x[kMany];
#pragma unroll
      for (unsigned a = 0; a < kMany; ++a) x[a] = load(__shfl_sync(kAllLanes, mine, static_cast<int>(a)));
#pragma unroll
      for (unsigned a = 0; a < kMany; ++a) add(x[a]);
      continue;
    }
    for (unsigned some = 0; some < kMany && k + some < last; some += kAhead) {
      Pack<T, kN> x[kAhead];
#pragma unroll
      for (unsigned a = 0; a < kAhead; ++a) x[a] = load(__shfl_sync(kAllLanes, mine, static_cast<int>(some + a)));
#pragma unroll
      for (unsigned a = 0; a < kAhead; ++a) {
        if (k + some + a == last) break;
        while (k + some + a == end) store_row();
        add(x[a]);
      }
    }
  }
  while (row < rows) store_row();
}

unsigned blocks_of(std::size_t work, std::size_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

void sort_positions(Lane& lane, std::size_t rows, const std::uint32_t* indices, TableRows tile, std::uint32_t* ends,
                    std::uint32_t* order) {
  // `order` holds the sums of chunks until it is filled.
  const std::size_t chunks = std::min(rows, (tile.count + 4 * kThreads - 1) / (4 * kThreads));
  const std::size_t per_block = ((tile.count + chunks - 1) / chunks + kThreads - 1) / kThreads * kThreads;
  const unsigned blocks = blocks_of(tile.count, per_block);
  fill_zero(lane, reinterpret_cast<std::byte*>(ends), tile.count * sizeof(*ends));
  launch(lane, blocks_of(rows, kThreads), kThreads, 0, count_positions, rows, indices, tile, ends);
  launch(lane, blocks, kThreads, 0, sum_chunks, ends, tile.count, per_block, order);
  launch(lane, blocks, kThreads, 0, scan_chunks, ends, tile.count, per_block, order);
  for (std::size_t begin = 0; begin < rows; begin += kWindow) {
    const std::size_t end = std::min(rows, begin + kWindow);
    launch(lane, blocks_of(end - begin, kThreads), kThreads, 0, place_positions, begin, end, indices, tile, ends,
           order);
  }
  launch(lane, blocks_of(tile.count, kRowsPerBlock), kThreads, 0, sort_rows, tile.count, ends, order);
}

template <typename T, typename Out, int kN>
void sum_sorted(Lane& lane, std::size_t width, std::size_t count, const std::uint32_t* ends, const std::uint32_t* order,
                ConstView dout, View dtable) {
  const std::size_t slices = (width + kWarp * kN - 1) / (kWarp * kN), groups = (count + kRows - 1) / kRows;
  launch(lane, blocks_of(groups * slices, kThreads / kWarp), kThreads, 0, sum_positions<T, Out, kN>,
         static_cast<unsigned>(width), count, ends, order, dout.as<T>(), dtable.as<Out>());
}

}  // namespace

void embedding_forward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                       ConstView table, View out) {
  const std::size_t bytes = width * size_of(table.dtype);
  if (aligned(table.data, bytes) && aligned(out.data, bytes))
    copy_rows<uint4>(lane, rows, bytes / sizeof(uint4), indices, tile, table, out);
  else if (table.dtype == DType::fp32)
    copy_rows<std::uint32_t>(lane, rows, width, indices, tile, table, out);
  else
    copy_rows<std::uint16_t>(lane, rows, width, indices, tile, table, out);
}

void embedding_add(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, ConstView table,
                   View out) {
  visit(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kN = 16 / sizeof(T);
    const AddRows<T> f{indices, table.as<T>(), out.as<T>(), width};
    if (aligned(table.data, width * sizeof(T)) && aligned(out.data, width * sizeof(T)))
      map_units<kN, 2>(lane, f, 0, rows * (width / kN));
    else
      map_units<1, 2>(lane, f, 0, rows * width);
  });
}

void embedding_backward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                        ConstView dout, View dtable, View workspace) {
  if (tile.count == 0 || width == 0) return;
  if (rows == 0) return fill_zero(lane, dtable.data, tile.count * width * size_of(dtable.dtype));
  auto* ends = reinterpret_cast<std::uint32_t*>(workspace.data);
  std::uint32_t* order = ends + tile.count;
  sort_positions(lane, rows, indices, tile, ends, order);
  visit(dout.dtype, [&](auto from) {
    visit(dtable.dtype, [&](auto to) {
      using T = decltype(from);
      using Out = decltype(to);
      const bool pairs =
          width % 2 == 0 && aligned(dout.data, 0, 2 * sizeof(T)) && aligned(dtable.data, 0, 2 * sizeof(Out));
      if (pairs)
        sum_sorted<T, Out, 2>(lane, width, tile.count, ends, order, dout, dtable);
      else
        sum_sorted<T, Out, 1>(lane, width, tile.count, ends, order, dout, dtable);
    });
  });
}

}  // namespace strata::device::cuda
