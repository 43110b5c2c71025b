#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cuda/kernels/attention_call.cuh"
#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/numeric/philox.h"

// Shared by the attention kernels: a block of four warps holds a tile of 64 rows, 16 per warp, and multiplies it with
// tiles of columns. Products are in registers as fragments C of mma.cuh, whatever the element type.
namespace strata::device::cuda {

__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x % kWarp);
}

// The geometry of tiles with heads of up to D elements. A row in shared memory is 16 bytes longer than a head, so that
// eight rows at one column are in different banks.
template <typename T, int D>
struct Tile {
  // The number of rows in the other operand's tile: backward's four tiles must fit into kMaxShared.
  static constexpr int kColumns = sizeof(T) * D > 512 ? 16 : 64;
  static constexpr int kStride = D + 16 / static_cast<int>(sizeof(T));
  static constexpr std::size_t kRowBytes = kStride * sizeof(T);
  static constexpr int kMaxShared = 163 << 10;  // an A100's; an H100 has more
  // The number of buffers for tiles of columns: two if they fit next to `row_tiles` tiles of rows.
  static constexpr int stages(int row_tiles, int column_tiles) {
    return (row_tiles * kTileRows + 2 * column_tiles * kColumns) * kRowBytes <= kMaxShared ? 2 : 1;
  }
  static constexpr std::size_t shared_bytes(int row_tiles, int column_tiles) {
    return (row_tiles * kTileRows + stages(row_tiles, column_tiles) * column_tiles * kColumns) * kRowBytes;
  }
};

// Starts copying a tile of kRows rows of one head, which are `stride` elements apart in global memory. Rows from `rows`
// on and elements beyond the head become zeros. Follow it with end_copy_group and await_copies, then __syncthreads.
template <int D, int kRows, typename T>
__device__ void load_tile(const AttentionCall<T>& c, T* to, const T* from, std::size_t stride, int rows) {
  constexpr int kSize = Pack<T>::kSize, kPacks = D / kSize;
  const int head_dim = static_cast<int>(c.head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kTileThreads) {
    const int row = i / kPacks, at = i % kPacks * kSize;
    T* const target = to + row * Tile<T, D>::kStride + at;
    const T* const source = from + static_cast<std::size_t>(row) * stride + at;
    if (c.aligned) {
      const bool some = row < rows && at < head_dim;
      copy_async(target, some ? source : from, !some);
    } else {
      for (int e = 0; e < kSize; ++e) target[e] = row < rows && at + e < head_dim ? source[e] : T{};
    }
  }
}

// Two rounded numbers in memory order.
template <typename T>
__device__ std::uint32_t two(float low, float high) {
  return std::bit_cast<std::uint32_t>(narrow<T>(Floats<2>{low, high}));
}

// c = x y^T: 16 rows of x and 8 N rows of y, both in shared memory, over D elements.
template <int D, typename T, int N>
__device__ void multiply_transposed(float (&c)[N][4], const T* x, const T* y) {
  constexpr int kStride = Tile<T, D>::kStride;
#pragma unroll
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      std::uint32_t a[4];
      load_a(a, x + k, kStride);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        std::uint32_t b[4];
        load_b_columns(b, y + n * 8 * kStride + k, kStride);
        mma_16x8x16<T>(c[n], a, b[0], b[1]);
        mma_16x8x16<T>(c[n + 1], a, b[2], b[3]);
      }
    }
  } else {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll 2
    for (int k = 0; k < D; k += Pack<T>::kSize) {
      const Pack<T> x0 = load_pack(x + g * kStride + k), x1 = load_pack(x + (g + 8) * kStride + k);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const T* const rows = y + (n * 8 + t * 2) * kStride + k;
        const Pack<T> y0 = load_pack(rows), y1 = load_pack(rows + kStride);
#pragma unroll
        for (int e = 0; e < Pack<T>::kSize; ++e) {
          c[n][0] = fmaf(x0.at[e], y0.at[e], c[n][0]);
          c[n][1] = fmaf(x0.at[e], y1.at[e], c[n][1]);
          c[n][2] = fmaf(x1.at[e], y0.at[e], c[n][2]);
          c[n][3] = fmaf(x1.at[e], y1.at[e], c[n][3]);
        }
      }
    }
  }
}

// c += p y: p has 16 rows and 8 N columns in registers (rounded to T), y has 8 N rows of D elements in shared memory.
template <int D, typename T, int N>
__device__ void multiply_add(float (&c)[D / 8][4], const float (&p)[N][4], const T* y) {
  constexpr int kStride = Tile<T, D>::kStride;
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const std::uint32_t a[4] = {two<T>(p[k][0], p[k][1]), two<T>(p[k][2], p[k][3]), two<T>(p[k + 1][0], p[k + 1][1]),
                                  two<T>(p[k + 1][2], p[k + 1][3])};
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        std::uint32_t b[4];
        load_b_rows(b, y + k * 8 * kStride + n * 8, kStride);
        mma_16x8x16<T>(c[n], a, b[0], b[1]);
        mma_16x8x16<T>(c[n + 1], a, b[2], b[3]);
      }
    }
  } else {
    const int t = lane_index() % 4, quad = lane_index() - t;
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float p0 = __shfl_sync(kAllLanes, p[k][i % 2], quad + i / 2);
        const float p1 = __shfl_sync(kAllLanes, p[k][2 + i % 2], quad + i / 2);
        const T* const row = y + (k * 8 + i) * kStride + t * 2;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          const float2 y01 = *reinterpret_cast<const float2*>(row + n * 8);
          c[n][0] = fmaf(p0, y01.x, c[n][0]);
          c[n][1] = fmaf(p0, y01.y, c[n][1]);
          c[n][2] = fmaf(p1, y01.x, c[n][2]);
          c[n][3] = fmaf(p1, y01.y, c[n][3]);
        }
      }
    }
  }
}

// to[row, :] = sums[row, :] * factors[row / 8] rounded, for the first `rows` of 16 rows that are `stride` elements
// apart.
template <int D, typename T, typename To>
__device__ void store_rows(const AttentionCall<T>& c, const float (&sums)[D / 8][4], const float (&factors)[2], To* to,
                           std::size_t stride, int rows) {
  const int g = lane_index() / 4, t = lane_index() % 4, head_dim = static_cast<int>(c.head_dim);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + half * 8;
    if (row >= rows) continue;
    To* const at = to + static_cast<std::size_t>(row) * stride;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int column = n * 8 + t * 2;
      const float low = sums[n][half * 2] * factors[half], high = sums[n][half * 2 + 1] * factors[half];
      if (c.aligned) {
        if (column >= head_dim) continue;
        if constexpr (sizeof(To) == 2)
          *reinterpret_cast<std::uint32_t*>(at + column) = two<To>(low, high);
        else
          *reinterpret_cast<float2*>(at + column) = {low, high};
      } else {
        if (column < head_dim) at[column] = from_float<To>(low);
        if (column + 1 < head_dim) at[column + 1] = from_float<To>(high);
      }
    }
  }
}

// Which probabilities of one head dropout keeps, as fragments.
class DropoutMask {
 public:
  template <typename T>
  __device__ DropoutMask(const AttentionCall<T>& c, const AttentionRows<T>& document, unsigned head)
      : first_(((std::uint64_t{document.batch} * c.layer_heads + c.first_head + head) * c.seq + document.first) *
                   c.seq +
               document.first),
        seq_(c.seq),
        in_blocks_((c.seq | document.first) % 4 == 0),
        threshold_(c.threshold) {
    if (threshold_ != 0) stream_ = {c.scalars->seed, c.scalars->first_micro_batch + c.micro_batch, c.site};
  }

  __device__ bool all() const { return threshold_ == 0; }

  // Bit i: number i of the lane's fragment is kept. `row` and `column` are the fragment's first: queries and keys or,
  // if kKeysInRows, keys and queries. Each of four lanes draws a block of four numbers, and they exchange them.
  template <bool kKeysInRows>
  __device__ unsigned fragment(std::size_t row, std::size_t column) const {
    const int lane = lane_index(), g = lane / 4, t = lane % 4;
    if (!in_blocks_) {
      unsigned kept = 0;
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        const std::size_t r = row + g + i / 2 * 8, c = column + t * 2 + i % 2;
        kept |= static_cast<unsigned>(word(kKeysInRows ? index(c, r) : index(r, c)) >= threshold_) << i;
      }
      return kept;
    }
    std::uint32_t words[4];
    if constexpr (kKeysInRows) {
      // Lane g % 4 draws for one of the four pairs of a query and half of the keys; then the words are transposed.
      const int mine = g % 4;
      const std::size_t key = row + g / 4 * 4 + mine / 2 * 8, query = column + t * 2 + mine % 2;
      const PhiloxBlock drawn = random_block(stream_, index(query, key) / 4);
      for (int i = 0; i < 4; ++i) words[i] = drawn.word[i];
      exchange(words[0], words[1], mine % 2, 4);
      exchange(words[2], words[3], mine % 2, 4);
      exchange(words[0], words[2], mine / 2, 8);
      exchange(words[1], words[3], mine / 2, 8);
    } else {
      // Neighbouring lanes share two blocks, for the rows g and g + 8; each draws one.
      const bool odd = t % 2 == 1;
      const PhiloxBlock drawn = random_block(stream_, index(row + g + (odd ? 8 : 0), column + t / 2 * 4) / 4);
      for (int i = 0; i < 2; ++i) {
        words[i] = drawn.word[i];
        words[2 + i] = drawn.word[2 + i];
        exchange(words[i], words[2 + i], odd, 1);
      }
    }
    unsigned kept = 0;
    for (int i = 0; i < 4; ++i) kept |= static_cast<unsigned>(words[i] >= threshold_) << i;
    return kept;
  }

 private:
  __device__ std::uint64_t index(std::size_t query, std::size_t key) const {
    return first_ + query * seq_ + key;
  }
  // One number of the stream, like random_word, but without an array in local memory.
  __device__ std::uint32_t word(std::uint64_t index) const {
    const PhiloxBlock drawn = random_block(stream_, index / 4);
    const std::uint32_t low = index % 2 == 0 ? drawn.word[0] : drawn.word[1];
    const std::uint32_t high = index % 2 == 0 ? drawn.word[2] : drawn.word[3];
    return index % 4 < 2 ? low : high;
  }
  // Exchanges the b of the first of two lanes that are `apart` for the a of the second.
  __device__ static void exchange(std::uint32_t& a, std::uint32_t& b, bool second, int apart) {
    const std::uint32_t got = __shfl_xor_sync(kAllLanes, second ? a : b, apart);
    (second ? a : b) = got;
  }

  std::uint64_t first_, seq_;  // first_: for the document's first row and key
  bool in_blocks_;             // four numbers of a row that start at a multiple of four belong to one block
  std::uint32_t threshold_;
  RandomStream stream_{};
};

// e^(s * scale - shift): accurate for fp32, otherwise with the few instructions of fast_exp2.
template <typename T>
__device__ float scaled_exp(float s, float scale, float shift) {
  if constexpr (sizeof(T) == 4) return expf(fmaf(s, scale, -shift));
  constexpr float kLog2E = 1.44269504088896341f;
  return fast_exp2(fmaf(s, scale * kLog2E, -shift * kLog2E));
}

}  // namespace strata::device::cuda
