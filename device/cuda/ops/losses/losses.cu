#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/class_loss_row.h"
#include "device/ops/losses/losses.h"

namespace strata::device::cuda {
namespace {

// A block of threads works through a row piece by piece. Each thread reads four groups of four neighbours in a piece, a
// block's width apart.
constexpr int kThreads = 256, kWarps = kThreads / kWarp, kPacks = 4;
constexpr std::size_t kPiece = std::size_t{kThreads} * kPacks * 4;
constexpr float kInfinity = __builtin_huge_valf();

struct Logits {
  Pack<float, 4> at[kPacks];
};
__device__ std::size_t column_of(std::size_t begin, int pack) {
  return begin + (static_cast<std::size_t>(pack) * kThreads + threadIdx.x) * 4;
}
// The thread's part of the piece that starts at column `begin`; beyond the row there are words of probability zero.
template <bool kAligned>
__device__ Logits load_piece(const float* row, std::size_t begin, std::size_t columns) {
  Logits x;
  for (int v = 0; v < kPacks; ++v) {
    const std::size_t at = column_of(begin, v);
    if (kAligned && at + 4 <= columns)
      x.at[v] = load_pack<true, 4>(row + at, 4);
    else
      for (int i = 0; i < 4; ++i) x.at[v].at[i] = at + i < columns ? row[at + i] : -kInfinity;
  }
  return x;
}

// The maximum of some logits and the sum of e^(x - largest).
struct Softmax {
  float largest = -kInfinity;
  double sum = 0;
};
__device__ Softmax joined(const Softmax& a, const Softmax& b) {
  const float largest = fmaxf(a.largest, b.largest);
  // If all are -inf, the difference would be NaN.
  const auto rescaled = [&](const Softmax& s) {
    return s.largest == largest ? s.sum : s.sum * static_cast<double>(expf(s.largest - largest));
  };
  return {largest, rescaled(a) + rescaled(b)};
}

// Warps pass through memory independently. Each writes its part of each piece to shared memory. Then parts are combined
// into pieces and pieces into the row, both in order, so a row cut between pieces gives the same bits.
constexpr int kBatch = kWarp;  // pieces between two barriers

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    add_to_statistics(const float* logits, std::size_t first, std::size_t columns, std::size_t stride, bool starts,
                      const std::int32_t* labels, RowStatistics* statistics) {
  __shared__ float largest_of[kBatch][kWarps], sum_of[kBatch][kWarps];
  const std::size_t r = blockIdx.x;
  const float* row = logits + r * stride;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  RowStatistics s{0.0, -kInfinity, 0.0f};
  if (!starts) s = statistics[r];
  const std::int32_t label = labels[r];
  if (label == kIgnoredLabel) {
    if (threadIdx.x == 0) statistics[r] = s;
    return;
  }
  Softmax all{s.largest, s.sum};
  for (std::size_t begin = 0; begin < columns; begin += kBatch * kPiece) {
    int count = 0;
    for (std::size_t piece = begin; piece < columns && count < kBatch; piece += kPiece, ++count) {
      const Logits x = load_piece<kAligned>(row, piece, columns);
      float largest = -kInfinity, sum = 0;
      for (const auto& four : x.at)
        for (const float v : four.at) largest = fmaxf(largest, v);
      largest = max_lanes(largest);
      const float centre = largest == -kInfinity ? 0.0f : largest;
      for (const auto& four : x.at)
        for (const float v : four.at) sum += expf(v - centre);
      sum = sum_lanes(sum);
      if (lane == 0) {
        largest_of[count][warp] = largest;
        sum_of[count][warp] = sum;
      }
    }
    __syncthreads();
    if (warp == 0) {
      Softmax piece;  // one per lane
      if (lane < count)
        for (int w = 0; w < kWarps; ++w)
          piece = joined(piece, {largest_of[lane][w], static_cast<double>(sum_of[lane][w])});
      for (int p = 0; p < count; ++p)
        all = joined(all, {__shfl_sync(kAllLanes, piece.largest, p), __shfl_sync(kAllLanes, piece.sum, p)});
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  // A label below zero is in no tile; cross_entropy_losses() turns its loss into NaN.
  if (const std::size_t at = static_cast<std::size_t>(label) - first; at < columns) s.label = row[at];
  statistics[r] = {all.sum, all.largest, s.label};
}

// Level i waits while bit i of the number of shards is set. The loop over levels is unrolled and selects, so that
// `waiting` stays in registers, as in tree_sum.cu.
constexpr int kLevels = 11;

__global__ void join_shards(VocabularyShards shards, std::size_t rows, const RowStatistics* shard_statistics,
                            const std::int32_t* labels, RowStatistics* statistics) {
  const std::size_t r = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= rows || labels[r] == kIgnoredLabel) return;
  const std::size_t some = (shards.vocabulary + shards.words - 1) / shards.words;
  float largest = -kInfinity;
  for (std::size_t v = 0; v < some; ++v) largest = fmaxf(largest, shard_statistics[v * rows + r].largest);
  double waiting[kLevels] = {}, sum = 0;
  for (std::size_t v = 0; v < shards.count; ++v) {
    sum = 0;
    if (v < some) {
      const RowStatistics s = shard_statistics[v * rows + r];
      // If all logits are -inf, the difference would be NaN.
      sum = s.largest == largest ? s.sum : s.sum * exp(static_cast<double>(s.largest) - static_cast<double>(largest));
    }
    bool carries = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const bool adds = carries && (v >> level & 1) != 0, stays = carries && !adds;
      const double left = waiting[level];
      waiting[level] = stays ? sum : left;
      sum = adds ? left + sum : sum;
      carries = adds;
    }
  }
  const std::size_t label = static_cast<std::size_t>(labels[r]) / shards.words;
  const std::size_t owner = label < some ? label : some - 1;
  statistics[r] = {sum, largest, shard_statistics[owner * rows + r].label};
}

__global__ void losses_of(std::size_t rows, std::size_t vocab, const RowStatistics* statistics,
                          const std::int32_t* labels, float* losses) {
  const std::size_t r = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= rows) return;
  const RowStatistics s = statistics[r];
  float loss = 0;
  if (labels[r] != kIgnoredLabel) {
    // A kernel cannot refuse an invalid label. So the loss becomes NaN, which the step then refuses.
    const bool valid = static_cast<std::size_t>(labels[r]) < vocab;
    const double exact = log(s.sum) + (static_cast<double>(s.largest) - static_cast<double>(s.label));
    loss = valid ? static_cast<float>(exact) : __builtin_nanf("");
  }
  losses[r] = loss;
}

// A 16-bit gradient is stored at or before the logits from which it is computed, and so overwrites logits of other
// threads. A block therefore writes a piece's gradient only after it has read that piece and all earlier ones.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    gradient_in_place(float* logits, std::size_t first, std::size_t columns, std::size_t stride,
                      const std::int32_t* labels, const RowStatistics* statistics, const StepScalars* scalars) {
  const std::size_t r = blockIdx.x;
  float* row = logits + r * stride;
  T* to = reinterpret_cast<T*>(row);
  const bool ignored = labels[r] == kIgnoredLabel;
  const std::size_t label = static_cast<std::size_t>(labels[r]) - first;
  const RowStatistics s = statistics[r];
  const float scale = static_cast<float>(1.0 / s.sum), factor = scalars->loss_gradient;
  for (std::size_t begin = 0; begin < columns; begin += kPiece) {
    Logits x{};
    if (!ignored) x = load_piece<kAligned>(row, begin, columns);
    if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
    for (int v = 0; v < kPacks; ++v) {
      const std::size_t at = column_of(begin, v);
      Pack<T, 4> gradient;
      for (int i = 0; i < 4; ++i) {
        float p = expf(x.at[v].at[i] - s.largest) * scale;
        if (at + i == label) p = p - 1.0f;
        gradient.at[i] = from_float<T>(ignored ? 0.0f : p * factor);
      }
      if (kAligned && at + 4 <= columns)
        store_pack<true>(to + at, 4, gradient);
      else
        store_pack<false>(to + at, at < columns ? columns - at : 0, gradient);
    }
  }
}

// Threads take every kSumThreads-th loss. Their sums are then added in a tree, an order that depends only on the number
// of losses.
constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads) add_losses(const float* losses, std::size_t count, ExactSum* total) {
  __shared__ double sums[kSumThreads / kWarp];
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < count; i += kSumThreads) sum += static_cast<double>(losses[i]);
  sum = sum_lanes(sum);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  sum = sum_lanes(sums[threadIdx.x]);
  if (threadIdx.x == 0) total->add(sum);
}
static_assert(kSumThreads == kWarp * kWarp);

bool rows_aligned(const LogitTile& tile) {
  return aligned(tile.logits.data, tile.stride * sizeof(float));
}

}  // namespace

void softmax_statistics(Lane& lane, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics) {
  if (tile.rows == 0) return;
  const auto kernel = rows_aligned(tile) ? add_to_statistics<true> : add_to_statistics<false>;
  launch(lane, static_cast<unsigned>(tile.rows), kThreads, 0, kernel, tile.logits.as<float>(), tile.first, tile.columns,
         tile.stride, tile.starts, labels, statistics);
}

void combine_statistics(Lane& lane, const VocabularyShards& shards, std::size_t rows,
                        const RowStatistics* shard_statistics, const std::int32_t* labels, RowStatistics* statistics) {
  if (rows == 0) return;
  const auto blocks = static_cast<unsigned>((rows + kThreads - 1) / kThreads);
  launch(lane, blocks, kThreads, 0, join_shards, shards, rows, shard_statistics, labels, statistics);
}

void cross_entropy_losses(Lane& lane, std::size_t vocab, const RowStatistics* statistics, const std::int32_t* labels,
                          View losses) {
  if (losses.size == 0) return;
  const auto blocks = static_cast<unsigned>((losses.size + kThreads - 1) / kThreads);
  launch(lane, blocks, kThreads, 0, losses_of, losses.size, vocab, statistics, labels, losses.as<float>());
}

void cross_entropy_gradient(Lane& lane, const LogitTile& tile, const std::int32_t* labels,
                            const RowStatistics* statistics, const StepScalars* scalars, DType gradient) {
  if (tile.rows == 0) return;
  visit(gradient, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = rows_aligned(tile) ? gradient_in_place<T, true> : gradient_in_place<T, false>;
    launch(lane, static_cast<unsigned>(tile.rows), kThreads, 0, kernel, tile.logits.as<float>(), tile.first,
           tile.columns, tile.stride, labels, statistics, scalars);
  });
}

void sum_losses(Lane& lane, ConstView losses, ExactSum* total) {
  launch(lane, 1, kSumThreads, 0, add_losses, losses.as<float>(), losses.size, total);
}

namespace {

constexpr unsigned kRowThreads = 128;

unsigned blocks_of(std::size_t elements) {
  return static_cast<unsigned>((elements + kRowThreads - 1) / kRowThreads);
}

// One thread per row: there are few documents and few classes.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    losses_of_rows(ClassScoreShape shape, std::size_t words, const float* scores, const std::int32_t* labels,
                   const std::uint32_t* sets, const float* weights, const StepScalars* scalars, float* losses,
                   T* d_scores) {
  const std::size_t row = std::size_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (row >= shape.rows) return;
  T* const to = d_scores == nullptr ? nullptr : d_scores + row * shape.stride;
  const float scale = to == nullptr ? 0.0f : scalars->loss_gradient;
  losses[row] = class_loss_of_row(shape, scores + row * shape.stride, labels[row], sets + row * words, weights, scale,
                                  [to](std::size_t c, float g) {
                                    if (to != nullptr) to[c] = from_float<T>(g);
                                  });
}

}  // namespace

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  if (shape.rows == 0) return;
  visit(d_scores ? d_scores.dtype : DType::fp32, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, blocks_of(shape.rows), kRowThreads, 0, losses_of_rows<T>, shape,
           class_set_words(shape.target, shape.classes), scores.as<float>(), labels, sets, weights, scalars,
           losses.as<float>(), d_scores ? d_scores.as<T>() : nullptr);
  });
}

}  // namespace strata::device::cuda
