#include <cstdint>

#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/ops/attention/attention.h"

namespace strata::device::cuda {
namespace {

// Many threads, because a step of generation has only one block per head.
constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kChunk = kThreads;  // positions between two updates of the running maximum

template <typename T>
constexpr int kPackSize = 16 / sizeof(T);  // elements that a thread reads at once

// The cache is [2, kv_heads, capacity, head_dim]: keys, then values.
template <typename T>
struct Call {
  const T *q, *k, *v;
  T *cache, *o;
  std::size_t heads, kv_heads, head_dim, capacity, q_stride, k_stride, v_stride, window, first;
  float scale;

  __device__ T* key(std::size_t head, std::size_t position) const {
    return cache + (head * capacity + position) * head_dim;
  }
  __device__ T* value(std::size_t head, std::size_t position) const { return key(kv_heads + head, position); }
};

// One block per row, which writes the row's keys and values to the cache.
template <typename T>
__global__ void __launch_bounds__(kThreads) append(Call<T> c) {
  const std::size_t row = blockIdx.x;
  for (std::size_t i = threadIdx.x; i < c.kv_heads * c.head_dim; i += kThreads) {
    const std::size_t head = i / c.head_dim, e = i % c.head_dim;
    c.key(head, c.first + row)[e] = c.k[row * c.k_stride + i];
    c.value(head, c.first + row)[e] = c.v[row * c.v_stride + i];
  }
}

// Combines the x of all threads in a fixed order. Every thread gets the result.
template <typename Combine>
__device__ float across_block(float x, float* shared, Combine combine) {
  x = reduce_lanes(x, kWarp, combine);
  __syncthreads();  // the previous reduction has finished reading `shared`
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = shared[0];
  for (int w = 1; w < kWarps; ++w) x = combine(x, shared[w]);
  return x;
}

// One block per row and head: softmax(scale q k^T) v with a running maximum, chunk by chunk of positions. As many lanes
// share a position's dot product as let a warp read whole rows. The weighted values are summed by columns; several
// threads share each column, and their sums are added in thread order. kAligned: rows of the cache start at multiples
// of 16 bytes.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) attend(Call<T> c, int lanes) {
  constexpr int kSize = kPackSize<T>, kAhead = kAligned ? 8 : 1;  // kAhead: packs in flight at once
  float* const q = dynamic_shared<float>();                       // [packs * kSize]
  __shared__ float weights[kChunk], sums[kThreads * kSize], shared[kWarps];
  const std::size_t head = blockIdx.x, row = blockIdx.y, kv_head = head / (c.heads / c.kv_heads);
  const std::size_t packs = (c.head_dim + kSize - 1) / kSize;
  const std::size_t end = c.first + row + 1, begin = c.window > 0 && end > c.window ? end - c.window : 0;
  for (std::size_t e = threadIdx.x; e < packs * kSize; e += kThreads)
    q[e] = e < c.head_dim ? to_float(c.q[row * c.q_stride + head * c.head_dim + e]) * c.scale : 0.0f;
  __syncthreads();

  const std::size_t column = threadIdx.x % packs, share = threadIdx.x / packs, shares = kThreads / packs;
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int together = kWarp / lanes;  // positions that a warp reads at once
  const auto load = [&](const T* from, std::size_t pack) {
    return load_pack<kAligned, kSize>(from + pack * kSize, kAligned ? kSize : c.head_dim - pack * kSize);
  };
  float o[kSize] = {}, maximum = -INFINITY, sum = 0;
  for (std::size_t chunk = begin; chunk < end; chunk += kChunk) {
    for (int i = 0; i < kWarp; i += together * kAhead) {
      const auto at = [&](int a) { return warp * kWarp + static_cast<unsigned>(i + a * together) + lane / lanes; };
      float scores[kAhead] = {};
      for (std::size_t p = lane % lanes; p < packs; p += lanes) {
        Pack<T, kSize> k[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) k[a] = load(c.key(kv_head, min(chunk + at(a), end - 1)), p);
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const auto x = widen(k[a]);
          for (int e = 0; e < kSize; ++e) scores[a] = fmaf(x.at[e], q[p * kSize + e], scores[a]);
        }
      }
      for (int offset = lanes / 2; offset > 0; offset /= 2)
        for (float& score : scores) score += __shfl_xor_sync(kAllLanes, score, offset);
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (lane % lanes == 0 && i + a * together < kWarp) weights[at(a)] = chunk + at(a) < end ? scores[a] : -INFINITY;
    }
    __syncthreads();
    const float score = weights[threadIdx.x];
    const float top = across_block(score, shared, [&](float a, float b) { return fmaxf(a, b); });
    const float largest = fmaxf(maximum, top), factor = expf(maximum - largest), weight = expf(score - largest);
    sum = sum * factor + across_block(weight, shared, [](float a, float b) { return a + b; });
    maximum = largest;
    weights[threadIdx.x] = weight;
    __syncthreads();
    for (float& x : o) x *= factor;
    const std::size_t n = end - chunk < kChunk ? end - chunk : kChunk;
    for (std::size_t first = share; share < shares && first < n; first += shares * kAhead) {
      Pack<T, kSize> v[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) v[a] = load(c.value(kv_head, chunk + min(first + a * shares, n - 1)), column);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const float weight_of = first + a * shares < n ? weights[first + a * shares] : 0;
        const auto x = widen(v[a]);
        for (int e = 0; e < kSize; ++e) o[e] = fmaf(x.at[e], weight_of, o[e]);
      }
    }
    __syncthreads();  // the weights have been read
  }

  for (int e = 0; e < kSize; ++e) sums[threadIdx.x * kSize + e] = o[e];
  __syncthreads();
  for (std::size_t e = threadIdx.x; e < c.head_dim; e += kThreads) {
    float total = 0;
    for (std::size_t s = 0; s < shares; ++s) total += sums[s * packs * kSize + e];
    c.o[(row * c.heads + head) * c.head_dim + e] = from_float<T>(total / sum);
  }
}

}  // namespace

void cached_attention(Lane& lane, const CachedAttentionShape& s, std::size_t first, std::size_t rows, ConstView q,
                      ConstView k, ConstView v, View cache, View o, View) {
  visit(cache.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::size_t kSize = kPackSize<T>;
    const std::size_t packs = (s.head_dim + kSize - 1) / kSize;
    if (packs > kThreads)
      fail(Exit::usage,
           "generation on a GPU supports heads of at most {} elements, but this model's have {}: run it on the "
           "CPU",
           kThreads * kSize, s.head_dim);
    const Call<T> call{.q = q.as<T>(),
                       .k = k.as<T>(),
                       .v = v.as<T>(),
                       .cache = cache.as<T>(),
                       .o = o.as<T>(),
                       .heads = s.heads,
                       .kv_heads = s.kv_heads,
                       .head_dim = s.head_dim,
                       .capacity = s.rounded_capacity(),
                       .q_stride = s.q_stride,
                       .k_stride = s.k_stride,
                       .v_stride = s.v_stride,
                       .window = s.window,
                       .first = first,
                       .scale = s.scale};
    const bool aligned = reinterpret_cast<std::uintptr_t>(cache.data) % 16 == 0 && s.head_dim % kSize == 0;
    int lanes = 1;
    while (static_cast<std::size_t>(lanes) < packs && lanes < kWarp) lanes *= 2;
    launch(lane, static_cast<unsigned>(rows), kThreads, 0, append<T>, call);
    constexpr std::size_t kMaxRows = 65535;  // in a grid's second dimension
    for (std::size_t begin = 0; begin < rows; begin += kMaxRows) {
      Call<T> part = call;
      part.q += begin * s.q_stride;
      part.o += begin * s.heads * s.head_dim;
      part.first += begin;
      const std::size_t n = rows - begin < kMaxRows ? rows - begin : kMaxRows;
      launch(lane, dim3(static_cast<unsigned>(s.heads), static_cast<unsigned>(n)), kThreads,
             packs * kSize * sizeof(float), aligned ? attend<T, true> : attend<T, false>, part, lanes);
    }
  });
}

}  // namespace strata::device::cuda
