#pragma once
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "device/cuda/kernels/attention_call.cuh"
#include "device/cuda/kernels/attention_tile.cuh"
#include "device/cuda/launch.h"

// The attention kernels and their launches, for the files that instantiate them.
namespace strata::device::cuda {
namespace attention {

inline constexpr int kQuad = 4;  // lanes that hold a row of a fragment
// The initial running maximum. It is finite, so that a tile leaves no NaN if a query sees nothing in it.
inline constexpr float kLowest = -1e30f;

// Calls tile(document, first) for each tile that starts in the window of 64 rows of sequence `batch`, and none(row) for
// the window's rows outside of documents, with `row` counted over all sequences. Between calls, nothing is kept except
// the tile's own registers: the window is computed again from the tile.
template <typename T, typename TileOf, typename None>
__device__ void for_tiles(const AttentionCall<T>& c, unsigned batch, unsigned window, TileOf tile, None none) {
  unsigned next = window;
  for (;;) {
    TileIterator at(c.documents + batch * c.seq, c.seq, window, kTileRows, next);
    if (!at.next()) return;
    const auto row = static_cast<unsigned>(at.row);
    if (at.document.end == 0) {
      none(batch * c.seq + row);
      next = row + 1;
      window = row / kTileRows * kTileRows;
      continue;
    }
    const AttentionRows<T> document{c, batch, at.document.first, at.document.end - at.document.first};
    const unsigned first = row - document.first;
    tile(document, first);
    next = document.first + document.rows;
    window = (document.first + first) / kTileRows * kTileRows;
  }
}

// One head of one row.
template <typename T, typename To>
__device__ void clear_row(const AttentionCall<T>& c, To* to) {
  for (std::size_t i = threadIdx.x; i < c.head_dim; i += kTileThreads) to[i] = To{};
}

// Calls f with dk or dv as a pointer to its element type.
template <typename T, typename F>
__device__ void of_key_gradients(const AttentionCall<T>& c, void* gradients, F f) {
  if (c.fp32_key_gradients)
    f(static_cast<float*>(gradients));
  else
    f(static_cast<T*>(gradients));
}

// 64 queries of one head, starting at the document's row `query`: FlashAttention-2's forward.
template <typename T, int D>
__device__ void forward_tile(const AttentionCall<T>& c, const AttentionRows<T>& document, unsigned head,
                             unsigned query) {
  using Tile = Tile<T, D>;
  constexpr int kColumns = Tile::kColumns, kStages = Tile::stages(1, 2), kFragments = kColumns / 8;
  T* const q = dynamic_shared<T>();
  T* const loaded = q + kTileRows * Tile::kStride;  // [stages][keys, values]
  constexpr int kTile = kColumns * Tile::kStride;

  const std::size_t first_row = document.first_row(), kv_head = head / (c.heads / c.kv_heads);
  const T* const k = c.k + first_row * c.k_stride + kv_head * c.head_dim;
  const T* const v = c.v + first_row * c.v_stride + kv_head * c.head_dim;
  const unsigned last = (document.reach_end(query, c.ahead) - 1) / kColumns * kColumns;
  const auto load = [&](unsigned key, int stage) {
    T* const to = loaded + stage * 2 * kTile;
    load_tile<D, kColumns>(c, to, k + key * c.k_stride, c.k_stride, document.rows_from(key, kColumns));
    load_tile<D, kColumns>(c, to + kTile, v + key * c.v_stride, c.v_stride, document.rows_from(key, kColumns));
  };

  unsigned key = document.reach_begin(query, c.behind) / kColumns * kColumns;
  load_tile<D, kTileRows>(c, q, c.q + (first_row + query) * c.q_stride + head * c.head_dim, c.q_stride,
                          document.rows_from(query, kTileRows));
  load(key, 0);
  end_copy_group();

  const DropoutMask keep(c, document, head);
  const int g = lane_index() / 4, t = lane_index() % 4, mine = static_cast<int>(threadIdx.x) / kWarp * 16;
  const T* const q_mine = q + mine * Tile::kStride;
  float o[D / 8][4] = {}, maximum[2] = {kLowest, kLowest}, sum[2] = {};
  for (int stage = 0; key <= last; key += kColumns) {
    if (kStages == 2 && key < last) load(key + kColumns, 1 - stage);
    end_copy_group();
    await_copies<kStages - 1>();
    __syncthreads();
    const T* const keys = loaded + stage * 2 * kTile;

    float s[kFragments][4];
    multiply_transposed<D>(s, q_mine, keys);
    if (!document.all_visible(query, kTileRows, key, kColumns)) {
#pragma unroll
      for (int n = 0; n < kFragments; ++n)
        for (int i = 0; i < 4; ++i)
          if (!document.visible(query + mine + g + i / 2 * 8, key + n * 8 + t * 2 + i % 2)) s[n][i] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY, total = 0;
#pragma unroll
      for (int n = 0; n < kFragments; ++n) top = fmaxf(top, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
      const float before = maximum[half];
      maximum[half] = fmaxf(before, max_lanes(top, kQuad) * c.scale);
#pragma unroll
      for (int n = 0; n < kFragments; ++n)
        for (int i = half * 2; i < half * 2 + 2; ++i) total += s[n][i] = scaled_exp<T>(s[n][i], c.scale, maximum[half]);
      const float factor = expf(before - maximum[half]);
      sum[half] = sum[half] * factor + total;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        for (int i = half * 2; i < half * 2 + 2; ++i) o[n][i] *= factor;
    }
    if (!keep.all()) {
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        const unsigned kept = keep.fragment<false>(query + mine, key + n * 8);
        for (int i = 0; i < 4; ++i)
          if (!(kept >> i & 1)) s[n][i] = 0;
      }
    }
    multiply_add<D>(o, s, keys + kTile);
    __syncthreads();
    if (kStages == 2)
      stage = 1 - stage;
    else if (key < last)
      load(key + kColumns, 0);
  }

  const int rows = document.rows_from(query + mine, 16);
  float factors[2];
  for (int half = 0; half < 2; ++half) {
    sum[half] = sum_lanes(sum[half], kQuad);
    factors[half] = c.keep_scale / sum[half];
    const int row = g + half * 8;
    if (t == 0 && row < rows) c.lse[document.statistics(head) + query + mine + row] = maximum[half] + logf(sum[half]);
  }
  store_rows<D>(c, o, factors, c.o + (first_row + query + mine) * c.width() + head * c.head_dim, c.width(), rows);
}

// A block for those tiles of queries of one head that start in a window of 64 rows, the longest first.
template <typename T, int D>
__global__ void __launch_bounds__(kTileThreads, 1) forward(AttentionCall<T> c) {
  const auto heads = static_cast<unsigned>(c.heads), across = static_cast<unsigned>(c.batch) * heads;
  const auto windows = static_cast<unsigned>((c.seq + kTileRows - 1) / kTileRows);
  const unsigned batch = blockIdx.x % across / heads, head = blockIdx.x % heads;
  for_tiles(
      c, batch, (windows - 1 - blockIdx.x / across) * kTileRows,
      [&](const AttentionRows<T>& document, unsigned query) { forward_tile<T, D>(c, document, head, query); },
      [&](std::size_t row) {
        clear_row(c, c.o + row * c.width() + head * c.head_dim);
        if (threadIdx.x == 0) c.lse[(batch * c.heads + head) * c.seq + row % c.seq] = 0;
      });
}

// delta = sum over the head of o * d_o: eight lanes for each row and head.
inline constexpr int kDeltaLanes = 8;
template <typename T>
__global__ void __launch_bounds__(kTileThreads) delta(AttentionCall<T> c) {
  constexpr int kSize = Pack<T>::kSize;
  const std::size_t at = (std::size_t{blockIdx.x} * kTileThreads + threadIdx.x) / kDeltaLanes;
  const bool inside = at < c.batch * c.seq * c.heads;
  const T* const o = c.o_read + at * c.head_dim;
  const T* const d_o = c.d_o + at * c.head_dim;
  float sum = 0;
  for (std::size_t i = threadIdx.x % kDeltaLanes * kSize; inside && i < c.head_dim; i += kDeltaLanes * kSize) {
    if (c.aligned) {
      const Pack<T> a = load_pack(o + i), b = load_pack(d_o + i);
#pragma unroll
      for (int e = 0; e < kSize; ++e) sum = fmaf(to_float(a.at[e]), to_float(b.at[e]), sum);
    } else {
      for (std::size_t e = i; e < i + kSize && e < c.head_dim; ++e) sum = fmaf(to_float(o[e]), to_float(d_o[e]), sum);
    }
  }
  sum = sum_lanes(sum, kDeltaLanes);
  const std::size_t row = at / c.heads, head = at % c.heads;
  if (inside && threadIdx.x % kDeltaLanes == 0) c.delta[(row / c.seq * c.heads + head) * c.seq + row % c.seq] = sum;
}

// The gradients that a backward pass computes.
enum class Pass { queries, keys, keys_first, keys_second };
constexpr bool of_keys(Pass pass) {
  return pass != Pass::queries;
}
constexpr bool first(Pass pass) {
  return pass != Pass::keys_second;
}
constexpr bool second(Pass pass) {
  return pass == Pass::keys || pass == Pass::keys_second;
}

// 64 queries (dq) or 64 keys (first: dk, second: dv) of one head, starting at `row`. Rows x, y are k and v (or q and
// d_o). The other two are read as tiles of columns: scores s = x columns_x^T and products d = y columns_y^T; then first
// += ds columns_x and second += p columns_y. Keys take their query heads one after another.
template <typename T, int D, Pass kPass>
__device__ void backward_tile(const AttentionCall<T>& c, const AttentionRows<T>& document, unsigned block_head,
                              unsigned row) {
  using Tile = Tile<T, D>;
  constexpr bool kOfKeys = of_keys(kPass), kFirst = first(kPass), kSecond = second(kPass);
  constexpr int kColumns = Tile::kColumns, kStages = Tile::stages(2, 2);
  constexpr int kPart = sizeof(T) * D >= 512 ? 16 : 32;  // columns whose products are in registers at the same time
  constexpr int kTile = kColumns * Tile::kStride, kFragments = kPart / 8;
  T* const x = dynamic_shared<T>();
  T* const y = x + kTileRows * Tile::kStride;
  T* const loaded = y + kTileRows * Tile::kStride;  // [stages][columns_x, columns_y]

  const std::size_t first_row = document.first_row();
  const std::size_t group = c.heads / c.kv_heads, kv_head = kOfKeys ? block_head : block_head / group;
  const T* const k = c.k + first_row * c.k_stride + kv_head * c.head_dim;
  const T* const v = c.v + first_row * c.v_stride + kv_head * c.head_dim;
  const T* const q = c.q + first_row * c.q_stride;
  const T* const d_o = c.d_o + first_row * c.width();
  // The columns, in whole tiles.
  const unsigned begin = document.reach_begin(row, kOfKeys ? c.ahead : c.behind) / kColumns * kColumns;
  const unsigned last = (document.reach_end(row, kOfKeys ? c.behind : c.ahead) - 1) / kColumns * kColumns;
  const unsigned some = (last - begin) / kColumns + 1;
  const unsigned steps = kOfKeys ? some * static_cast<unsigned>(group) : some;
  const auto load_columns = [&](unsigned step, unsigned stage) {
    const unsigned at = begin + step % some * kColumns;
    const std::size_t head = kv_head * group + step / some;
    const T* const from_x = kOfKeys ? q + head * c.head_dim + at * c.q_stride : k + at * c.k_stride;
    const T* const from_y = kOfKeys ? d_o + head * c.head_dim + at * c.width() : v + at * c.v_stride;
    T* const to = loaded + stage * 2 * kTile;
    load_tile<D, kColumns>(c, to, from_x, kOfKeys ? c.q_stride : c.k_stride, document.rows_from(at, kColumns));
    load_tile<D, kColumns>(c, to + kTile, from_y, kOfKeys ? c.width() : c.v_stride, document.rows_from(at, kColumns));
  };

  load_tile<D, kTileRows>(c, x, kOfKeys ? k + row * c.k_stride : q + block_head * c.head_dim + row * c.q_stride,
                          kOfKeys ? c.k_stride : c.q_stride, document.rows_from(row, kTileRows));
  if (kFirst)
    load_tile<D, kTileRows>(c, y, kOfKeys ? v + row * c.v_stride : d_o + block_head * c.head_dim + row * c.width(),
                            kOfKeys ? c.v_stride : c.width(), document.rows_from(row, kTileRows));
  load_columns(0, 0);
  end_copy_group();

  const int g = lane_index() / 4, t = lane_index() % 4, mine = static_cast<int>(threadIdx.x) / kWarp * 16;
  const unsigned my_row = row + mine;
  float sums_first[kFirst ? D / 8 : 1][4] = {}, sums_second[kSecond ? D / 8 : 1][4] = {};
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned stage = kStages == 2 ? step % 2 : 0;
    if (kStages == 2 && step + 1 < steps) load_columns(step + 1, 1 - stage);
    end_copy_group();
    await_copies<kStages - 1>();
    __syncthreads();
    const unsigned head = kOfKeys ? static_cast<unsigned>(kv_head * group) + step / some : block_head;
    const float* const lse = c.lse + document.statistics(head);
    const float* const means = c.delta + document.statistics(head);
    const DropoutMask keep(c, document, head);
#pragma unroll 1
    for (int part = 0; part < kColumns; part += kPart) {
      const unsigned column = begin + step % some * kColumns + part;
      const T* const columns_x = loaded + stage * 2 * kTile + part * Tile::kStride;
      const T* const columns_y = columns_x + kTile;
      float p[kFragments][4], ds[kFragments][4];
      multiply_transposed<D>(p, x + mine * Tile::kStride, columns_x);
      if (kFirst) multiply_transposed<D>(ds, y + mine * Tile::kStride, columns_y);
      const bool all = kOfKeys ? document.all_visible(column, kPart, row, kTileRows)
                               : document.all_visible(row, kTileRows, column, kPart);
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        const unsigned kept = keep.all() ? 15 : keep.fragment<kOfKeys>(my_row, column + n * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned r = my_row + g + i / 2 * 8, other = column + n * 8 + t * 2 + i % 2;
          const unsigned query = kOfKeys ? other : r;
          const bool see = all || document.visible(query, kOfKeys ? r : other);
          const float e = see ? scaled_exp<T>(p[n][i], c.scale, lse[query]) : 0.0f;
          const float factor = kept >> i & 1 ? c.keep_scale : 0.0f;
          p[n][i] = factor == 0 ? 0 : e * factor;
          if (kFirst) ds[n][i] = see ? e * ((factor == 0 ? 0 : ds[n][i] * factor) - means[query]) : 0.0f;
        }
      }
      if constexpr (kSecond) multiply_add<D>(sums_second, p, columns_y);
      if constexpr (kFirst) multiply_add<D>(sums_first, ds, columns_x);
    }
    __syncthreads();
    if (kStages == 1 && step + 1 < steps) load_columns(step + 1, 0);
  }

  const int rows = document.rows_from(my_row, 16);
  const float scale[2] = {c.scale, c.scale}, one[2] = {1, 1};
  const std::size_t k_at = (first_row + my_row) * c.k_stride + kv_head * c.head_dim;
  const std::size_t v_at = (first_row + my_row) * c.v_stride + kv_head * c.head_dim;
  if constexpr (kFirst && kOfKeys)
    of_key_gradients(c, c.dk, [&](auto* dk) { store_rows<D>(c, sums_first, scale, dk + k_at, c.k_stride, rows); });
  else if constexpr (kFirst)
    store_rows<D>(c, sums_first, scale, c.dq + (first_row + my_row) * c.q_stride + block_head * c.head_dim, c.q_stride,
                  rows);
  if constexpr (kSecond)
    of_key_gradients(c, c.dv, [&](auto* dv) { store_rows<D>(c, sums_second, one, dv + v_at, c.v_stride, rows); });
}

// A block for those tiles of one head that start in a window of 64 rows, the longest first: late queries, early keys.
template <typename T, int D, Pass kPass>
__global__ void __launch_bounds__(kTileThreads, 1) backward(AttentionCall<T> c) {
  constexpr bool kOfKeys = of_keys(kPass);
  const auto heads = static_cast<unsigned>(kOfKeys ? c.kv_heads : c.heads);
  const unsigned across = static_cast<unsigned>(c.batch) * heads, index = blockIdx.x / across;
  const auto windows = static_cast<unsigned>((c.seq + kTileRows - 1) / kTileRows);
  const unsigned batch = blockIdx.x % across / heads, head = blockIdx.x % heads;
  for_tiles(
      c, batch, (kOfKeys ? index : windows - 1 - index) * kTileRows,
      [&](const AttentionRows<T>& document, unsigned row) { backward_tile<T, D, kPass>(c, document, head, row); },
      [&](std::size_t row) {
        const std::size_t offset = head * c.head_dim;
        if constexpr (!kOfKeys) clear_row(c, c.dq + row * c.q_stride + offset);
        if constexpr (kOfKeys && first(kPass))
          of_key_gradients(c, c.dk, [&](auto* dk) { clear_row(c, dk + row * c.k_stride + offset); });
        if constexpr (kOfKeys && second(kPass))
          of_key_gradients(c, c.dv, [&](auto* dv) { clear_row(c, dv + row * c.v_stride + offset); });
      });
}

// Calls f with the smallest head size that has kernels and fits, as a constant.
template <typename F>
void with_head_dim(std::size_t head_dim, F f) {
  if (head_dim <= 64)
    f(std::integral_constant<int, 64>{});
  else if (head_dim <= 128)
    f(std::integral_constant<int, 128>{});
  else
    f(std::integral_constant<int, 256>{});
}

template <typename T, int D, Pass kPass>
void launch_backward(Lane& lane, const AttentionCall<T>& c) {
  const std::size_t tiles = (c.seq + kTileRows - 1) / kTileRows;
  const std::size_t blocks = c.batch * (of_keys(kPass) ? c.kv_heads : c.heads) * tiles;
  constexpr std::size_t kShared = Tile<T, D>::shared_bytes(2, 2);
  static_assert(kShared <= Tile<T, D>::kMaxShared);
  launch(lane, static_cast<unsigned>(blocks), kTileThreads, kShared, backward<T, D, kPass>, c);
}

}  // namespace attention

template <typename T>
void launch_attention_forward(Lane& lane, const AttentionCall<T>& c) {
  attention::with_head_dim(c.head_dim, [&](auto size) {
    constexpr int D = decltype(size)::value;
    const std::size_t blocks = c.batch * c.heads * ((c.seq + kTileRows - 1) / kTileRows);
    launch(lane, static_cast<unsigned>(blocks), kTileThreads, Tile<T, D>::shared_bytes(1, 2), attention::forward<T, D>,
           c);
  });
}

template <typename T>
void launch_attention_backward(Lane& lane, const AttentionCall<T>& c) {
  using attention::Pass;
  const std::size_t sums = c.batch * c.seq * c.heads * attention::kDeltaLanes;
  launch(lane, static_cast<unsigned>((sums + kTileThreads - 1) / kTileThreads), kTileThreads, 0, attention::delta<T>,
         c);
  attention::with_head_dim(c.head_dim, [&](auto size) {
    constexpr int D = decltype(size)::value;
    attention::launch_backward<T, D, Pass::queries>(lane, c);
    if constexpr (D <= 128) {
      attention::launch_backward<T, D, Pass::keys>(lane, c);
    } else {  // the sums of both would not fit into registers
      attention::launch_backward<T, D, Pass::keys_first>(lane, c);
      attention::launch_backward<T, D, Pass::keys_second>(lane, c);
    }
  });
}

}  // namespace strata::device::cuda
