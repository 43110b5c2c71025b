#include <algorithm>

#include "device/cuda/convert.cuh"
#include "device/cuda/launch.h"
#include "device/cuda/map.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/vectors.cuh"
#include "device/ops/norm.h"
#include "device/row_blocks.h"

namespace strata::device::cuda {
namespace {

// A team of threads takes a vector, some 16 bytes a thread, as often as it needs; they stay in registers, so that
// memory is read once. kPacks: how often, at most; 0 where a vector is longer than that, and is read again and again.
// Which thread takes which element depends on the width alone, never on how operands are aligned.
constexpr int kForwardPacks = 4, kForwardThreads = 128, kMostThreads = 512;
constexpr int kBackwardPacks = 2, kBackwardThreads = 512;

// The smallest team that reads a vector of so many packs at `most` packs a thread.
int team_for(std::size_t packs, int most, int threads) {
  int team = 8;
  while (team < threads && static_cast<std::size_t>(team) * static_cast<std::size_t>(most) < packs) team *= 2;
  return team;
}

template <typename T>
constexpr int kPackSize = 16 / sizeof(T);

// The calling thread's packs of a vector. `count`, where there are more than registers hold.
template <typename T, bool kWhole, int kPacks>
struct Packs {
  static constexpr int kN = kPackSize<T>;
  int thread, team, count;
  std::size_t width;

  __device__ Packs(int team_size, std::size_t vector_width)
      : thread(static_cast<int>(threadIdx.x) & (team_size - 1)),
        team(team_size),
        count(kPacks > 0 ? kPacks : static_cast<int>((vector_width + team_size * kN - 1) / (team_size * kN))),
        width(vector_width) {}
  __device__ std::size_t column(int pack) const { return static_cast<std::size_t>(thread + pack * team) * kN; }
  // Elements from there on.
  __device__ std::size_t left(int pack) const {
    const std::size_t at = column(pack);
    return at < width ? width - at : 0;
  }
  __device__ bool inside(int pack, int i) const {
    return kWhole ? left(pack) != 0 : static_cast<std::size_t>(i) < left(pack);
  }
  // As bits: halves of words would take a register each.
  __device__ uint4 load(const T* vector, int pack) const {
    if constexpr (kWhole)
      return left(pack) != 0 ? *reinterpret_cast<const uint4*>(vector + column(pack)) : uint4{};
    else
      return std::bit_cast<uint4>(load_vector<false, kN>(vector + column(pack), left(pack)));
  }
  __device__ static Floats<kN> numbers(uint4 bits) { return widen(std::bit_cast<Vector<T, kN>>(bits)); }
  __device__ void store(T* vector, int pack, const Floats<kN>& x) const {
    store_vector<kWhole>(vector + column(pack), left(pack), narrow<T>(x));
  }
  template <typename F>
  __device__ void each(F&& f) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) f(pack);
    } else {
      for (int pack = 0; pack < count; ++pack) f(pack);
    }
  }
};

// Makes the compiler take its bits for new ones: what was made of them is then made again, rather than kept in
// registers that there are not enough of.
__device__ void recompute(uint4& bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

template <typename T>
struct Forward {
  std::size_t vectors, width, x_stride, y_stride;
  unsigned groups;
  int team;
  float eps;
  const T *x, *gain, *bias;
  T* y;
  float *mean, *rstd;
};

template <typename T, bool kCentred, bool kWhole, int kPacks>
__global__ void __launch_bounds__(kMostThreads, kWhole ? 2 : 1) forward(const __grid_constant__ Forward<T> a) {
  constexpr int kN = kPackSize<T>;
  __shared__ float shared[2][kMostThreads / kWarp];
  const Packs<T, kWhole, kPacks> packs(a.team, a.width);
  // A team without a vector goes along with the last one's.
  const std::size_t team = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) / static_cast<unsigned>(a.team);
  const std::size_t vector = min(team, a.vectors - 1);
  const RowUnit unit = row_unit(vector, a.groups);
  const T* x = a.x + unit.row * a.x_stride + unit.at * a.width;
  uint4 held[kPacks > 0 ? kPacks : 1] = {};
  if constexpr (kPacks > 0) packs.each([&](int pack) { held[pack] = packs.load(x, pack); });
  const auto read = [&](int pack) { return packs.numbers(kPacks > 0 ? held[pack] : packs.load(x, pack)); };

  // Mean and variance in two passes: E[x^2] - mean^2 would cancel.
  const auto width = static_cast<float>(a.width);
  float mean = 0;
  if constexpr (kCentred) {
    float sum[1] = {0};
    packs.each([&](int pack) {
      for (const float v : read(pack).at) sum[0] += v;
    });
    sum_team(sum, a.team, shared[0]);
    mean = sum[0] / width;
    if constexpr (kPacks > 0) packs.each([&](int pack) { recompute(held[pack]); });
  }
  float squares[1] = {0};
  packs.each([&](int pack) {
    const Floats<kN> v = read(pack);
    for (int i = 0; i < kN; ++i) {
      const float d = packs.inside(pack, i) ? v.at[i] - mean : 0.0f;
      squares[0] = fmaf(d, d, squares[0]);
    }
  });
  sum_team(squares, a.team, shared[1]);
  if constexpr (kPacks > 0) packs.each([&](int pack) { recompute(held[pack]); });
  const float rstd = 1.0f / sqrtf(squares[0] / width + a.eps);
  if (team != vector) return;
  if (packs.thread == 0) {
    if constexpr (kCentred) a.mean[vector] = mean;
    a.rstd[vector] = rstd;
  }
  T* y = a.y + unit.row * a.y_stride + unit.at * a.width;
  packs.each([&](int pack) {
    const Floats<kN> v = read(pack), gain = packs.numbers(packs.load(a.gain, pack));
    Floats<kN> out;
    if constexpr (kCentred) {
      const Floats<kN> bias = packs.numbers(packs.load(a.bias, pack));
      for (int i = 0; i < kN; ++i) out.at[i] = fmaf((v.at[i] - mean) * rstd, gain.at[i], bias.at[i]);
    } else {
      for (int i = 0; i < kN; ++i) out.at[i] = v.at[i] * rstd * gain.at[i];
    }
    packs.store(y, pack, out);
  });
}

// dgains and dbiases: [shares][width] sums of the shares of the rows.
template <typename T>
struct Backward {
  std::size_t width, x_stride, y_stride;
  unsigned groups;
  int team;
  const T *dy, *x, *gain, *residual;
  const float *mean, *rstd;
  T* dx;
  float *dgains, *dbiases;
};

// A vector on its way through a thread's registers.
template <int kPacks>
struct Held {
  uint4 x[kPacks], dy[kPacks], residual[kPacks];
  float mean, rstd;
};

// With h = (x - mean) * rstd and e = dy * gain: dx = rstd * (e - mean(e) - h * mean(e * h)) (without mean(e) for RMS).
// A block of threads takes a share of the rows, its teams take turns at the vectors; each thread sums dgain and dbias
// of its columns, in registers or, of long vectors, in its share's sums. While a vector is worked on, the next one is
// read.
template <typename T, bool kCentred, bool kWhole, int kPacks>
__global__ void __launch_bounds__(kBackwardThreads)
    backward(const __grid_constant__ Backward<T> a, const __grid_constant__ RowBlocks blocks) {
  constexpr int kN = kPackSize<T>, kHeld = kPacks > 0 ? kPacks : 1;
  constexpr bool kAhead = kWhole && kPacks > 0;
  __shared__ float shared[2][2 * kBackwardThreads / kWarp];
  const Packs<T, kWhole, kPacks> packs(a.team, a.width);
  const std::size_t share = blockIdx.x, block = share / kNormShares;
  const std::size_t rows = (blocks.size(block) + kNormShares - 1) / kNormShares;
  const std::size_t first_row = min(share % kNormShares * rows, blocks.size(block));
  const std::size_t rows_here = min(rows, blocks.size(block) - first_row);
  const std::size_t begin = (blocks.begin(block) + first_row) * a.groups, end = begin + rows_here * a.groups;
  const auto teams = static_cast<std::size_t>(kBackwardThreads / a.team);
  float* const dgains = a.dgains + share * a.width;
  float* const dbiases = a.dbiases + share * a.width;

  uint4 gain[kHeld] = {};
  float dgain[kHeld][kN] = {}, dbias[kHeld][kN] = {};
  if constexpr (kPacks > 0)
    packs.each([&](int pack) { gain[pack] = packs.load(a.gain, pack); });
  else
    packs.each([&](int pack) {
      for (int i = 0; i < kN; ++i)
        if (packs.inside(pack, i)) dgains[packs.column(pack) + i] = dbiases[packs.column(pack) + i] = 0;
    });

  const auto x_at = [&](const RowUnit& unit) { return unit.row * a.x_stride + unit.at * a.width; };
  const auto y_at = [&](const RowUnit& unit) { return unit.row * a.y_stride + unit.at * a.width; };
  const auto load_pack = [&](Held<kHeld>& v, const RowUnit& unit, int pack, int to) {
    v.x[to] = packs.load(a.x + x_at(unit), pack);
    v.dy[to] = packs.load(a.dy + y_at(unit), pack);
    if (a.residual) v.residual[to] = packs.load(a.residual + x_at(unit), pack);
  };
  // Beyond the end a team computes with zeros.
  const auto load = [&](std::size_t vector) {
    Held<kHeld> v{};
    if (vector >= end) return v;
    if constexpr (kPacks > 0) {
      const RowUnit unit = row_unit(vector, a.groups);
      packs.each([&](int pack) { load_pack(v, unit, pack, pack); });
    }
    v.mean = kCentred ? a.mean[vector] : 0.0f;
    v.rstd = a.rstd[vector];
    return v;
  };

  std::size_t vector = begin + threadIdx.x / static_cast<unsigned>(a.team);
  Held<kHeld> next{};
  if constexpr (kAhead) next = load(vector);
  int turn = 0;
  for (std::size_t first = begin; first < end; first += teams, vector += teams, turn ^= 1) {
    Held<kHeld> v = kAhead ? next : load(vector);
    const bool valid = vector < end;
    const RowUnit unit = row_unit(valid ? vector : begin, a.groups);
    if constexpr (kAhead) next = load(vector + teams);
    // e and h of a pack.
    const auto terms = [&](int pack, Floats<kN>& d, Floats<kN>& e, Floats<kN>& h) {
      if constexpr (kPacks == 0)
        if (valid) load_pack(v, unit, pack, 0);
      const int at = kPacks > 0 ? pack : 0;
      const Floats<kN> g = packs.numbers(kPacks > 0 ? gain[at] : packs.load(a.gain, pack));
      d = packs.numbers(v.dy[at]);
      h = packs.numbers(v.x[at]);
      for (int i = 0; i < kN; ++i) {
        e.at[i] = d.at[i] * g.at[i];
        h.at[i] = (kCentred ? h.at[i] - v.mean : h.at[i]) * v.rstd;
      }
    };
    float sums[2] = {0, 0};
    packs.each([&](int pack) {
      Floats<kN> d, e, h;
      terms(pack, d, e, h);
      for (int i = 0; i < kN; ++i) {
        if constexpr (kCentred) sums[0] += e.at[i];
        sums[1] = fmaf(e.at[i], h.at[i], sums[1]);
        if constexpr (kPacks > 0) {
          dgain[pack][i] = fmaf(d.at[i], h.at[i], dgain[pack][i]);
          if constexpr (kCentred) dbias[pack][i] += d.at[i];
        } else if (packs.inside(pack, i)) {
          const std::size_t column = packs.column(pack) + static_cast<std::size_t>(i);
          dgains[column] = fmaf(d.at[i], h.at[i], dgains[column]);
          if constexpr (kCentred) dbiases[column] += d.at[i];
        }
      }
    });
    sum_team(sums, a.team, shared[turn]);
    if constexpr (kPacks > 0)
      packs.each([&](int pack) {
        recompute(v.x[pack]);
        recompute(v.dy[pack]);
        recompute(gain[pack]);
      });
    const float inverse_width = 1.0f / static_cast<float>(a.width);
    const float e_mean = sums[0] * inverse_width, eh_mean = sums[1] * inverse_width;
    if (valid)
      packs.each([&](int pack) {
        Floats<kN> d, e, h;
        terms(pack, d, e, h);
        const Floats<kN> residual = packs.numbers(v.residual[kPacks > 0 ? pack : 0]);
        for (int i = 0; i < kN; ++i) {
          const float dh = fmaf(-h.at[i], eh_mean, kCentred ? e.at[i] - e_mean : e.at[i]);
          d.at[i] = fmaf(dh, v.rstd, residual.at[i]);  // zeros where there is none
        }
        packs.store(a.dx + x_at(unit), pack, d);
      });
  }

  // The teams' sums, pack by pack, in order.
  if constexpr (kPacks > 0) {
    __shared__ float of_threads[kN][kBackwardThreads];
    const auto add_teams = [&](const float(&mine)[kN], int pack, float* to) {
      for (int i = 0; i < kN; ++i) of_threads[i][threadIdx.x] = mine[i];
      __syncthreads();
      for (int out = static_cast<int>(threadIdx.x); out < a.team * kN; out += kBackwardThreads) {
        const int thread = out & (a.team - 1), i = out / a.team;
        const std::size_t column = static_cast<std::size_t>(thread + pack * a.team) * kN + static_cast<std::size_t>(i);
        float sum = 0;
        for (int t = thread; t < kBackwardThreads; t += a.team) sum += of_threads[i][t];
        if (column < a.width) to[column] = sum;
      }
      __syncthreads();
    };
    packs.each([&](int pack) { add_teams(dgain[pack], pack, dgains); });
    if constexpr (kCentred) packs.each([&](int pack) { add_teams(dbias[pack], pack, dbiases); });
  }
}

// The shares' sums of a column, added up by kSides threads, every kSides-th share each, and these in order.
constexpr int kSides = 8;
struct Total {
  const float* partials;
  std::byte* out;
  DType dtype;
};

__global__ void __launch_bounds__(kWarp* kSides)
    add_shares(Total dgain, Total dbias, std::size_t shares, std::size_t width) {
  __shared__ float sums[kSides][kWarp];
  const Total total = blockIdx.y == 0 ? dgain : dbias;
  const std::size_t column = std::size_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < width)
#pragma unroll 4
    for (std::size_t s = threadIdx.y; s < shares; s += kSides) sum += total.partials[s * width + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int side = 1; side < kSides; ++side) sum += sums[side][threadIdx.x];
  if (total.dtype == DType::bf16)
    reinterpret_cast<bf16*>(total.out)[column] = from_float<bf16>(sum);
  else if (total.dtype == DType::fp16)
    reinterpret_cast<fp16*>(total.out)[column] = from_float<fp16>(sum);
  else
    reinterpret_cast<float*>(total.out)[column] = sum;
}

template <typename T>
const T* pointer(ConstView v) {
  return reinterpret_cast<const T*>(v.data);
}

// Whether vectors start and end on 16 bytes.
bool whole(const NormShape& shape, std::size_t element_bytes, std::initializer_list<ConstView> x,
           std::initializer_list<ConstView> y) {
  const auto fit = [](std::initializer_list<ConstView> views, std::size_t bytes) {
    return std::all_of(views.begin(), views.end(), [&](ConstView v) { return aligned(v.data, bytes); });
  };
  const std::size_t width = shape.width * element_bytes;
  return width % 16 == 0 && fit(x, shape.x_stride * element_bytes) && fit(y, shape.y_stride * element_bytes);
}

template <bool kCentred>
void run_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y, float* mean,
                 float* rstd) {
  const std::size_t vectors = shape.rows * shape.groups;
  if (vectors == 0) return;
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::size_t packs = (shape.width + kPackSize<T> - 1) / kPackSize<T>;
    const int team = team_for(packs, kForwardPacks, kMostThreads), threads = std::max(team, kForwardThreads);
    const auto teams = static_cast<std::size_t>(threads / team);
    const Forward<T> a{.vectors = vectors,
                       .width = shape.width,
                       .x_stride = shape.x_stride,
                       .y_stride = shape.y_stride,
                       .groups = static_cast<unsigned>(shape.groups),
                       .team = team,
                       .eps = shape.eps,
                       .x = x.as<T>(),
                       .gain = gain.as<T>(),
                       .bias = pointer<T>(bias),
                       .y = y.as<T>(),
                       .mean = mean,
                       .rstd = rstd};
    const bool fits = packs <= static_cast<std::size_t>(team) * kForwardPacks;
    const auto kernel = [&](auto whole_vectors) {
      constexpr bool kWhole = decltype(whole_vectors)::value;
      return fits ? forward<T, kCentred, kWhole, kForwardPacks> : forward<T, kCentred, kWhole, 0>;
    };
    const bool all_whole = whole(shape, sizeof(T), {x}, {y}) && aligned(gain.data, 0) && aligned(bias.data, 0);
    launch(lane, static_cast<unsigned>((vectors + teams - 1) / teams), static_cast<unsigned>(threads), 0,
           all_whole ? kernel(std::true_type{}) : kernel(std::false_type{}), a);
  });
}

template <bool kCentred>
void run_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, const float* mean,
                  const float* rstd, ConstView residual, View dx, View dgain, View dbias, View workspace) {
  const RowBlocks blocks(shape.rows);
  const std::size_t shares = blocks.count * kNormShares;
  auto* dgains = reinterpret_cast<float*>(workspace.data);
  auto* dbiases = dgains + shares * shape.width;
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (shares == 0) return;
    const std::size_t packs = (shape.width + kPackSize<T> - 1) / kPackSize<T>;
    const int team = team_for(packs, kBackwardPacks, kBackwardThreads);
    const Backward<T> a{.width = shape.width,
                        .x_stride = shape.x_stride,
                        .y_stride = shape.y_stride,
                        .groups = static_cast<unsigned>(shape.groups),
                        .team = team,
                        .dy = dy.as<T>(),
                        .x = x.as<T>(),
                        .gain = gain.as<T>(),
                        .residual = pointer<T>(residual),
                        .mean = mean,
                        .rstd = rstd,
                        .dx = dx.as<T>(),
                        .dgains = dgains,
                        .dbiases = dbiases};
    const bool fits = packs <= static_cast<std::size_t>(team) * kBackwardPacks;
    const auto kernel = [&](auto whole_vectors) {
      constexpr bool kWhole = decltype(whole_vectors)::value;
      return fits ? backward<T, kCentred, kWhole, kBackwardPacks> : backward<T, kCentred, kWhole, 0>;
    };
    const bool all_whole = whole(shape, sizeof(T), {x, dx, residual}, {dy}) && aligned(gain.data, 0);
    launch(lane, static_cast<unsigned>(shares), kBackwardThreads, 0,
           all_whole ? kernel(std::true_type{}) : kernel(std::false_type{}), a, blocks);
  });
  const auto columns = static_cast<unsigned>((shape.width + kWarp - 1) / kWarp);
  launch(lane, dim3(columns, kCentred ? 2 : 1), dim3(kWarp, kSides), 0, add_shares,
         Total{dgains, dgain.data, dgain.dtype}, Total{dbiases, dbias.data, dbias.dtype}, shares, shape.width);
}

}  // namespace

void layernorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y,
                       View mean, View rstd) {
  run_forward<true>(lane, shape, x, gain, bias, y, mean.as<float>(), rstd.as<float>());
}

void layernorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, View dgain, View dbias, View workspace) {
  run_backward<true>(lane, shape, dy, x, gain, mean.as<float>(), rstd.as<float>(), dresidual, dx, dgain, dbias,
                     workspace);
}

void rmsnorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, View y, View rstd) {
  run_forward<false>(lane, shape, x, gain, {}, y, nullptr, rstd.as<float>());
}

void rmsnorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                      ConstView dresidual, View dx, View dgain, View workspace) {
  run_backward<false>(lane, shape, dy, x, gain, nullptr, rstd.as<float>(), dresidual, dx, dgain, {}, workspace);
}

}  // namespace strata::device::cuda
