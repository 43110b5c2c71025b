#include <cstdint>

#include "device/cuda/launch.h"
#include "device/cuda/numbers.cuh"
#include "device/cuda/reduce.cuh"
#include "device/ops/cached_attention.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kChunk = kThreads;  // positions between two updates of the running maximum

// The cache is [2, kv_heads, capacity, head_dim]: keys, then values.
template <typename T>
struct Call {
  const T *q, *k, *v;
  T *cache, *o;
  std::size_t heads, kv_heads, head_dim, capacity, q_stride, k_stride, v_stride, window, first;
  float scale;
  bool aligned;  // rows of the cache lie at multiples of 16 bytes

  __device__ T* key(std::size_t head, std::size_t position) const {
    return cache + (head * capacity + position) * head_dim;
  }
  __device__ T* value(std::size_t head, std::size_t position) const { return key(kv_heads + head, position); }
};

// A block for each row: its keys and values go into the cache.
template <typename T>
__global__ void __launch_bounds__(kThreads) append(Call<T> c) {
  const std::size_t row = blockIdx.x;
  for (std::size_t i = threadIdx.x; i < c.kv_heads * c.head_dim; i += kThreads) {
    const std::size_t head = i / c.head_dim, e = i % c.head_dim;
    c.key(head, c.first + row)[e] = c.k[row * c.k_stride + i];
    c.value(head, c.first + row)[e] = c.v[row * c.v_stride + i];
  }
}

// Every thread gets combine(x of all threads), in one order.
template <typename Combine>
__device__ float across_block(float x, float* shared, Combine combine) {
  x = reduce_lanes(x, kWarp, combine);
  __syncthreads();  // shared is no longer read for the reduction before
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = shared[0];
  for (int w = 1; w < kWarps; ++w) x = combine(x, shared[w]);
  return x;
}

// A block for each row and head: softmax(scale q k^T) v with a running maximum, chunk after chunk of positions. So
// many lanes share the dot product of a position that a warp reads whole rows; the weighted values are summed by
// columns, each by several threads whose sums are added in their order.
template <typename T>
__global__ void __launch_bounds__(kThreads) attend(Call<T> c, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  float* const q = dynamic_shared<float>();  // [packs * kSize]
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
  float o[kSize] = {}, maximum = -INFINITY, sum = 0;
  for (std::size_t chunk = begin; chunk < end; chunk += kChunk) {
    for (int i = 0; i < kWarp; i += together) {
      const std::size_t at = warp * kWarp + i + lane / lanes;
      float score = 0;
      if (chunk + at < end) {
        const T* const key = c.key(kv_head, chunk + at);
        for (std::size_t p = lane % lanes; p < packs; p += lanes) {
          const Pack<T> k = load_some(key, p * kSize, c.head_dim, c.aligned);
          for (int e = 0; e < kSize; ++e) score = fmaf(to_float(k.at[e]), q[p * kSize + e], score);
        }
      }
      score = sum_lanes(score, lanes);
      if (lane % lanes == 0) weights[at] = chunk + at < end ? score : -INFINITY;
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
    if (share < shares)
      for (std::size_t at = share; at < n; at += shares) {
        const Pack<T> v = load_some(c.value(kv_head, chunk + at), column * kSize, c.head_dim, c.aligned);
        for (int e = 0; e < kSize; ++e) o[e] = fmaf(to_float(v.at[e]), weights[at], o[e]);
      }
    __syncthreads();  // the weights are read
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
    constexpr std::size_t kSize = Pack<T>::kSize;
    const std::size_t packs = (s.head_dim + kSize - 1) / kSize;
    if (packs > kThreads)
      fail(Exit::usage,
           "generation on a GPU needs heads of at most {} elements; this model's have {}: run it on the "
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
                       .scale = s.scale,
                       .aligned = reinterpret_cast<std::uintptr_t>(cache.data) % 16 == 0 && s.head_dim % kSize == 0};
    int lanes = 1;
    while (static_cast<std::size_t>(lanes) < packs && lanes < kWarp) lanes *= 2;
    launch(lane, static_cast<unsigned>(rows), kThreads, 0, append<T>, call);
    constexpr std::size_t kMostRows = 65535;  // of a grid's second dimension
    for (std::size_t begin = 0; begin < rows; begin += kMostRows) {
      Call<T> part = call;
      part.q += begin * s.q_stride;
      part.o += begin * s.heads * s.head_dim;
      part.first += begin;
      const std::size_t n = rows - begin < kMostRows ? rows - begin : kMostRows;
      launch(lane, dim3(static_cast<unsigned>(s.heads), static_cast<unsigned>(n)), kThreads,
             packs * kSize * sizeof(float), attend<T>, part, lanes);
    }
  });
}

}  // namespace strata::device::cuda
