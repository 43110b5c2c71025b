#include <algorithm>

#include "device/cuda/convert.cuh"
#include "device/cuda/launch.h"
#include "device/cuda/map.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/vectors.cuh"
#include "device/ops/embedding.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 256;

// An index outside the table ends the run: __trap() is how a kernel fails.
__device__ inline std::uint32_t checked(std::uint32_t index, std::size_t total) {
  if (index >= total) __trap();
  return index;
}

// Copies rows; T: 16 bytes, or an element's bits.
template <typename T>
struct CopyRows {
  const std::uint32_t* indices;
  TableRows tile;
  const T* table;
  T* out;
  unsigned width;  // of T

  struct Operands {
    T x;
    bool inside;
  };
  template <int kN>
  __device__ Operands load(std::size_t unit) const {
    static_assert(kN == 1);
    const RowUnit u = row_unit(unit, width);
    const std::size_t t = checked(indices[u.row], tile.total) - tile.first;  // before the tile: it wraps around
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
    Vector<T, kN> row, out;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    const RowUnit u = row_unit(unit, static_cast<unsigned>(width / kN));
    return {load_vector<true, kN>(table + indices[u.row] * width + std::size_t{u.at} * kN, kN),
            load_vector<true, kN>(out + unit * kN, kN)};
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Operands<kN>& o) const {
    Floats<kN> sum = widened(o.out);
    const Floats<kN> row = widened(o.row);
    for (int i = 0; i < kN; ++i) sum.at[i] += row.at[i];
    store_vector<true>(out + unit * kN, kN, rounded<T>(sum));
  }
};

// The backward sorts positions by index, as the CPU's: order[ends[t - 1] .. ends[t]) are those of row t of the tile, in
// rising order. First how many each row has (ends[t]), by integer additions, whose order does not count.
__global__ void __launch_bounds__(kThreads)
    count_positions(std::size_t rows, const std::uint32_t* indices, TableRows tile, std::uint32_t* ends) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows) return;
  const std::size_t t = checked(indices[i], tile.total) - tile.first;
  if (t < tile.count) atomicAdd(ends + t, 1u);
}

// Then their running sums, each block over its own stretch of the tile: of `per_block` rows, a multiple of kThreads.
__device__ inline std::uint32_t sum_block(std::uint32_t x, std::uint32_t* shared) {
  x = __reduce_add_sync(kAllLanes, x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) x += shared[w];
  return x;
}

__global__ void __launch_bounds__(kThreads)
    sum_stretches(const std::uint32_t* ends, std::size_t count, std::size_t per_block, std::uint32_t* sums) {
  __shared__ std::uint32_t shared[kThreads / kWarp];
  const std::size_t begin = blockIdx.x * per_block, end = min(begin + per_block, count);
  std::uint32_t sum = 0;
#pragma unroll 8
  for (std::size_t t = begin + threadIdx.x; t < end; t += kThreads) sum += ends[t];
  sum = sum_block(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// sums: of the stretches.
__global__ void __launch_bounds__(kThreads)
    scan_stretches(std::uint32_t* ends, std::size_t count, std::size_t per_block, const std::uint32_t* sums) {
  __shared__ std::uint32_t shared[kThreads / kWarp], warps[kThreads / kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t before = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kThreads) before += sums[b];
  before = sum_block(before, shared);
  const std::size_t begin = blockIdx.x * per_block, end = min(begin + per_block, count);
  for (std::size_t first = begin; first < end; first += kThreads) {
    const std::size_t t = first + threadIdx.x;
    std::uint32_t x = t < end ? ends[t] : 0;
    for (unsigned step = 1; step < kWarp; step *= 2) {
      const std::uint32_t y = __shfl_up_sync(kAllLanes, x, step);
      if (lane >= step) x += y;
    }
    __syncthreads();  // the last round's sums have been read
    if (lane == kWarp - 1) warps[warp] = x;
    __syncthreads();
    std::uint32_t all = 0;
    for (unsigned w = 0; w < kThreads / kWarp; ++w) {
      if (w < warp) x += warps[w];
      all += warps[w];
    }
    if (t < end) ends[t] = before + x;
    before += all;
  }
}

// Last the place of each position: as many of its index come before it. Comparing all pairs is quadratic and yet a
// small part of the whole: 32,768 positions take 2^29 comparisons, some 40 us. A warp places kTogether positions: what
// a lane reads it compares with all of them.
constexpr int kTogether = 4, kPerBlock = kThreads / kWarp * kTogether;

__global__ void __launch_bounds__(kThreads)
    place_positions(std::size_t rows, const std::uint32_t* indices, TableRows tile, const std::uint32_t* ends,
                    std::uint32_t* order) {
  // The last positions have the most to compare with: their blocks start first.
  const std::size_t block = gridDim.x - 1 - blockIdx.x;
  const std::size_t first = block * kPerBlock + threadIdx.x / kWarp * kTogether;
  const unsigned lane = threadIdx.x % kWarp;
  std::uint32_t index[kTogether], earlier[kTogether] = {};
  std::size_t row[kTogether];
  bool any = false;
  for (int p = 0; p < kTogether; ++p) {
    index[p] = first + p < rows ? indices[first + p] : 0;
    row[p] = first + p < rows ? index[p] - tile.first : tile.count;
    any = any || row[p] < tile.count;
  }
  if (any) {
#pragma unroll 8
    for (std::size_t j = lane; j < first; j += kWarp) {
      const std::uint32_t x = indices[j];
      for (int p = 0; p < kTogether; ++p) earlier[p] += x == index[p];
    }
  }
  for (int p = 0; p < kTogether; ++p) {
    std::uint32_t rank = __reduce_add_sync(kAllLanes, earlier[p]);
    for (int q = 0; q < p; ++q) rank += index[q] == index[p];
    if (row[p] < tile.count && lane == 0)
      order[(row[p] == 0 ? 0 : ends[row[p] - 1]) + rank] = static_cast<std::uint32_t>(first + p);
  }
}

// A warp sums kRows rows of the table one after another, over a slice of the columns: most have no positions or few,
// so that reading `ends` for several at once is what keeps the stores coming.
constexpr int kRows = 8;
// Blocks on a multiprocessor: what the registers of the rows on their way leave room for.
template <typename T>
constexpr int kResident = dtype_of<T> == DType::bf16   ? 4
                          : dtype_of<T> == DType::fp32 ? 3
                                                       : 2;

template <typename T, typename Out, int kN>
__global__ void __launch_bounds__(kThreads, kResident<T>)
    sum_positions(std::size_t width, std::size_t count, const std::uint32_t* ends, const std::uint32_t* order,
                  const T* dout, Out* dtable) {
  constexpr int kAhead = 32 / sizeof(T);  // rows of dout on their way at a time
  const unsigned lane = threadIdx.x % kWarp, slices = static_cast<unsigned>((width + kWarp * kN - 1) / (kWarp * kN));
  const RowUnit u = row_unit(std::size_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp, slices);
  const std::size_t first = u.row * kRows, column = (std::size_t{u.at} * kWarp + lane) * kN;
  if (first >= count) return;
  const std::size_t at = min(first + lane, count);  // lane r: where row first + r begins
  const std::uint32_t edge = lane <= kRows && at > 0 ? ends[at - 1] : 0;
  for (int r = 0; r < kRows && first + r < count; ++r) {
    const std::uint32_t begin = __shfl_sync(kAllLanes, edge, r), end = __shfl_sync(kAllLanes, edge, r + 1);
    Floats<kN> sum{};
    for (std::uint32_t k = begin; k < end; k += kWarp) {
      const std::uint32_t some = min(end - k, std::uint32_t{kWarp});
      const std::uint32_t mine = lane < some ? order[k + lane] : 0;
      for (std::uint32_t from = 0; from < some; from += kAhead) {
        Vector<T, kN> x[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const std::size_t row = __shfl_sync(kAllLanes, mine, static_cast<int>(from) + a);
          if (from + a < some && column < width) x[a] = load_vector<true, kN>(dout + row * width + column, kN);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const Floats<kN> f = widen(x[a]);
          if (from + a < some)
            for (int i = 0; i < kN; ++i) sum.at[i] += f.at[i];
        }
      }
    }
    if (column < width) store_vector<true>(dtable + (first + r) * width + column, kN, rounded<Out>(sum));
  }
}

unsigned blocks_of(std::size_t work, std::size_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

void sort_positions(Lane& lane, std::size_t rows, const std::uint32_t* indices, TableRows tile, std::uint32_t* ends,
                    std::uint32_t* order) {
  // `order` holds the sums of stretches until it is filled.
  const std::size_t stretches = std::min(rows, (tile.count + 4 * kThreads - 1) / (4 * kThreads));
  const std::size_t per_block = ((tile.count + stretches - 1) / stretches + kThreads - 1) / kThreads * kThreads;
  const unsigned blocks = blocks_of(tile.count, per_block);
  fill_zero(lane, reinterpret_cast<std::byte*>(ends), tile.count * sizeof(*ends));
  launch(lane, blocks_of(rows, kThreads), kThreads, 0, count_positions, rows, indices, tile, ends);
  launch(lane, blocks, kThreads, 0, sum_stretches, ends, tile.count, per_block, order);
  launch(lane, blocks, kThreads, 0, scan_stretches, ends, tile.count, per_block, order);
  launch(lane, blocks_of(rows, kPerBlock), kThreads, 0, place_positions, rows, indices, tile, ends, order);
}

template <typename T, typename Out, int kN>
void sum_sorted(Lane& lane, std::size_t width, std::size_t count, const std::uint32_t* ends, const std::uint32_t* order,
                ConstView dout, View dtable) {
  const std::size_t slices = (width + kWarp * kN - 1) / (kWarp * kN), groups = (count + kRows - 1) / kRows;
  launch(lane, blocks_of(groups * slices, kThreads / kWarp), kThreads, 0, sum_positions<T, Out, kN>, width, count, ends,
         order, dout.as<T>(), dtable.as<Out>());
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
      const bool vectors = width % 4 == 0 && aligned(dout.data, 4 * sizeof(T), 4 * sizeof(T)) &&
                           aligned(dtable.data, 4 * sizeof(Out), 4 * sizeof(Out));
      if (vectors)
        sum_sorted<T, Out, 4>(lane, width, tile.count, ends, order, dout, dtable);
      else
        sum_sorted<T, Out, 1>(lane, width, tile.count, ends, order, dout, dtable);
    });
  });
}

}  // namespace strata::device::cuda
