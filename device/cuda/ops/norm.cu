#include <algorithm>

#include "device/cuda/kernels/norm_packs.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/row_blocks.h"
#include "device/ops/norm.h"

namespace strata::device::cuda {
namespace {

constexpr int kForwardThreads = 128, kForwardPacks = 4;
// Registers hold a vector, the next one, and sums for each element. So packs are small and few.
constexpr int kBackwardThreads = kMaxTeam, kBackwardSize = 4;
constexpr std::size_t kMaxSharedSums = 192 << 10;  // a block may have 227 KiB
template <typename T>
constexpr int kForwardSize = 16 / sizeof(T);
template <typename T>
constexpr int kBackwardPacks = sizeof(T) == 2 ? 4 : 3;

template <typename T>
struct Forward {
  Layout layout;
  std::size_t vectors;
  int team_bits;
  float inverse_width, eps;
  const T *x, *gain, *bias;
  T* y;
  float *mean, *rstd;
};

template <typename T, bool kCentred, bool kWhole, int kPacks>
__global__ void __launch_bounds__(kMaxTeam, kWhole ? 2 : 1) forward(const __grid_constant__ Forward<T> a) {
  constexpr int kN = kForwardSize<T>;
  using Own = Packs<T, kN, kWhole, kPacks>;
  __shared__ float shared[2][kMaxTeam / kWarp];
  const Own packs(a.team_bits, a.layout.width);
  // A team without a vector repeats the last one's work.
  const std::size_t team = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) >> a.team_bits;
  const std::size_t vector = min(team, a.vectors - 1);
  const Place at = a.layout.place(vector);
  const T* x = a.x + at.x;
  typename Own::Bits held[Own::kHeld] = {};
  if constexpr (kPacks > 0) packs.each([&](int pack) { held[pack] = packs.load(x, pack); });
  const auto read = [&](int pack) { return packs.numbers(kPacks > 0 ? held[pack] : packs.load(x, pack)); };

  // Mean and variance take two passes: E[x^2] - mean^2 would cancel.
  float mean = 0;
  if constexpr (kCentred) {
    float sum[1] = {0};
    packs.each([&](int pack) {
      for (const float v : read(pack).at) sum[0] += v;
    });
    sum_team(sum, a.team_bits, shared[0]);
    mean = sum[0] * a.inverse_width;
  }
  float squares[1] = {0};
  packs.each([&](int pack) {
    const Floats<kN> v = read(pack);
    for (int i = 0; i < kN; ++i) {
      const float d = v.at[i] - (packs.inside(pack, i) ? mean : 0.0f);  // zero outside
      squares[0] = fmaf(d, d, squares[0]);
    }
  });
  sum_team(squares, a.team_bits, shared[1]);
  const float rstd = rsqrtf(fmaf(squares[0], a.inverse_width, a.eps));
  if (team != vector) return;
  if (packs.thread == 0) {
    if constexpr (kCentred) a.mean[vector] = mean;
    a.rstd[vector] = rstd;
  }
  T* y = a.y + at.y;
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

// dgains and dbiases: the [shares][width] sums of the rows' shares.
template <typename T>
struct Backward {
  Layout layout;
  int team_bits;
  bool sums_in_shared;
  float inverse_width;
  const T *dy, *x, *gain, *residual;
  const float *mean, *rstd;
  T* dx;
  float *dgains, *dbiases;
};

// With h = (x - mean) * rstd and e = dy * gain: dx = rstd * (e - mean(e) - h * mean(e * h)) (without mean(e) for RMS).
// A block of threads takes a share of the rows, and its teams take turns at the vectors. Each thread sums dgain and
// dbias of its columns: in registers; for long vectors, in dynamic shared memory or, if that is too small, in its
// share's sums. While a vector is processed, the next one is read.
template <typename T, bool kCentred, bool kWhole, int kPacks>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    backward(const __grid_constant__ Backward<T> a, const __grid_constant__ RowBlocks blocks) {
  constexpr int kN = kPacks > 0 ? kBackwardSize : kForwardSize<T>;
  constexpr int kSums = kCentred ? 2 : 1, kHeld = kPacks > 0 ? kPacks : 1;
  // Vectors read element by element are read twice.
  constexpr bool kHolds = kWhole && kPacks > 0;
  using Own = Packs<T, kN, kWhole, kPacks>;
  using Bits = typename Own::Bits;
  __shared__ float shared[2][kSums * kBackwardThreads / kWarp];
  const Own packs(a.team_bits, a.layout.width);
  const std::size_t share = blockIdx.x, block = share / kNormShares;
  const std::size_t rows = (blocks.size(block) + kNormShares - 1) / kNormShares;
  const std::size_t first_row = min(share % kNormShares * rows, blocks.size(block));
  const std::size_t rows_here = min(rows, blocks.size(block) - first_row);
  const std::size_t begin = (blocks.begin(block) + first_row) * a.layout.groups;
  const auto vectors = static_cast<unsigned>(rows_here) * a.layout.groups;
  const unsigned teams = kBackwardThreads >> a.team_bits;
  float* const dgains = a.dgains + share * a.layout.width;
  float* const dbiases = a.dbiases + share * a.layout.width;
  float dgain[kHeld][kN] = {}, dbias[kHeld][kN] = {};
  float* const shared_sums = a.sums_in_shared ? dynamic_shared<float>() : nullptr;
  const LongSums<Own> long_dgain(packs, dgains, shared_sums, 0), long_dbias(packs, dbiases, shared_sums, 1);
  if constexpr (kPacks == 0) {
    long_dgain.clear();
    if constexpr (kCentred) long_dbias.clear();
  }

  struct Held {
    Bits x[kHeld], dy[kHeld];
    float mean, rstd;
  };
  Bits gain[kHeld] = {};
  if constexpr (kHolds) packs.each([&](int pack) { gain[pack] = packs.load(a.gain, pack); });
  // Beyond the end, a team computes with zeros.
  const auto load = [&](unsigned vector, const Place& at) {
    Held v{};
    if (vector >= vectors) return v;
    if constexpr (kHolds)
      packs.each([&](int pack) {
        v.x[pack] = packs.load(a.x + at.x, pack);
        v.dy[pack] = packs.load(a.dy + at.y, pack);
      });
    v.mean = kCentred ? a.mean[begin + vector] : 0.0f;
    v.rstd = a.rstd[begin + vector];
    return v;
  };
  unsigned vector = threadIdx.x >> a.team_bits;
  Place next_at = a.layout.place(begin + vector);
  Held next = load(vector, next_at);
  int turn = 0;
  for (unsigned first = 0; first < vectors; first += teams, turn ^= 1) {
    const Held v = next;
    const Place at = next_at;
    const bool valid = vector < vectors;
    Bits residual[kHeld] = {};
    if constexpr (kHolds)
      if (valid && a.residual) packs.each([&](int pack) { residual[pack] = packs.load(a.residual + at.x, pack); });
    vector += teams;
    a.layout.advance(next_at);
    next = load(vector, next_at);
    // e and h of a pack.
    const auto terms = [&](int pack, Floats<kN>& d, Floats<kN>& e, Floats<kN>& h) {
      Floats<kN> g;
      if constexpr (kHolds) {
        d = packs.numbers(v.dy[pack]);
        h = packs.numbers(v.x[pack]);
        g = packs.numbers(gain[pack]);
      } else {
        d = h = g = {};
        if (valid) {
          d = packs.numbers(packs.load(a.dy + at.y, pack));
          h = packs.numbers(packs.load(a.x + at.x, pack));
          g = packs.numbers(packs.load(a.gain, pack));
        }
      }
      for (int i = 0; i < kN; ++i) {
        e.at[i] = d.at[i] * g.at[i];
        h.at[i] = (kCentred ? h.at[i] - v.mean : h.at[i]) * v.rstd;
      }
    };
    float sums[kSums] = {};
    packs.each([&](int pack) {
      Floats<kN> d, e, h;
      terms(pack, d, e, h);
      for (int i = 0; i < kN; ++i) {
        sums[0] = fmaf(e.at[i], h.at[i], sums[0]);
        if constexpr (kCentred) sums[1] += e.at[i];
        if constexpr (kPacks > 0) {
          dgain[pack][i] = fmaf(d.at[i], h.at[i], dgain[pack][i]);
          if constexpr (kCentred) dbias[pack][i] += d.at[i];
        }
      }
      if constexpr (kPacks == 0) {
        for (int i = 0; i < kN; ++i) h.at[i] *= d.at[i];
        long_dgain.add(pack, h);
        if constexpr (kCentred) long_dbias.add(pack, d);
      }
    });
    sum_team(sums, a.team_bits, shared[turn]);
    const float eh_mean = sums[0] * a.inverse_width, e_mean = sums[kSums - 1] * a.inverse_width;
    if (valid)
      packs.each([&](int pack) {
        Floats<kN> d, e, h;
        terms(pack, d, e, h);
        if constexpr (!kHolds)
          if (a.residual) residual[0] = packs.load(a.residual + at.x, pack);
        const Floats<kN> base = packs.numbers(residual[kHolds ? pack : 0]);
        for (int i = 0; i < kN; ++i) {
          const float dh = fmaf(-h.at[i], eh_mean, kCentred ? e.at[i] - e_mean : e.at[i]);
          d.at[i] = fmaf(dh, v.rstd, base.at[i]);  // zeros if there is none
        }
        packs.store(a.dx + at.x, pack, d);
      });
  }

  if constexpr (kPacks == 0) {
    long_dgain.finish();
    if constexpr (kCentred) long_dbias.finish();
  } else {  // the teams' sums, pack by pack, in order
    __shared__ float of_threads[kN][kBackwardThreads];
    const auto add_teams = [&](const float(&mine)[kN], int pack, float* to) {
      for (int i = 0; i < kN; ++i) of_threads[i][threadIdx.x] = mine[i];
      __syncthreads();
      const unsigned team = 1u << a.team_bits;
      for (unsigned out = threadIdx.x; out < team * kN; out += kBackwardThreads) {
        const unsigned thread = out & (team - 1), i = out >> a.team_bits;
        const unsigned column = (thread + static_cast<unsigned>(pack) * team) * kN + i;
        float sum = 0;
        for (unsigned t = thread; t < kBackwardThreads; t += team) sum += of_threads[i][t];
        if (column < a.layout.width) to[column] = sum;
      }
      __syncthreads();
    };
    packs.each([&](int pack) { add_teams(dgain[pack], pack, dgains); });
    if constexpr (kCentred) packs.each([&](int pack) { add_teams(dbias[pack], pack, dbiases); });
  }
}

// A column's sums over the shares: each of kSides threads adds every kSides-th share, and their sums are added in
// order.
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
#pragma unroll 16
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

// True if vectors start and end at multiples of 16 bytes.
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
    const Split of = split((shape.width + kForwardSize<T> - 1) / kForwardSize<T>, kForwardPacks);
    const int threads = std::max(1 << of.bits, kForwardThreads);
    const auto teams = static_cast<std::size_t>(threads >> of.bits);
    const Forward<T> a{.layout{shape, teams},
                       .vectors = vectors,
                       .team_bits = of.bits,
                       .inverse_width = 1.0f / static_cast<float>(shape.width),
                       .eps = shape.eps,
                       .x = x.as<T>(),
                       .gain = gain.as<T>(),
                       .bias = pointer<T>(bias),
                       .y = y.as<T>(),
                       .mean = mean,
                       .rstd = rstd};
    const auto kernel = [&](auto whole_vectors) {
      constexpr bool kWhole = decltype(whole_vectors)::value;
      return of.packs == kForwardPacks       ? forward<T, kCentred, kWhole, kForwardPacks>
             : of.packs == kForwardPacks - 1 ? forward<T, kCentred, kWhole, kForwardPacks - 1>
                                             : forward<T, kCentred, kWhole, 0>;
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
    const Split of = split((shape.width + kBackwardSize - 1) / kBackwardSize, kBackwardPacks<T>);
    constexpr std::size_t kAtOnce = kBackwardThreads * kForwardSize<T>;  // columns of a long vector
    const std::size_t sum_bytes = (shape.width + kAtOnce - 1) / kAtOnce * kAtOnce * sizeof(float) * (kCentred ? 2 : 1);
    const bool in_shared = of.packs == 0 && sum_bytes <= kMaxSharedSums;
    const Backward<T> a{.layout{shape, static_cast<std::size_t>(kBackwardThreads >> of.bits)},
                        .team_bits = of.bits,
                        .sums_in_shared = in_shared,
                        .inverse_width = 1.0f / static_cast<float>(shape.width),
                        .dy = dy.as<T>(),
                        .x = x.as<T>(),
                        .gain = gain.as<T>(),
                        .residual = pointer<T>(residual),
                        .mean = mean,
                        .rstd = rstd,
                        .dx = dx.as<T>(),
                        .dgains = dgains,
                        .dbiases = dbiases};
    const auto kernel = [&](auto whole_vectors) {
      constexpr bool kWhole = decltype(whole_vectors)::value;
      constexpr int kMost = kBackwardPacks<T>;
      return of.packs == kMost       ? backward<T, kCentred, kWhole, kMost>
             : of.packs == kMost - 1 ? backward<T, kCentred, kWhole, kMost - 1>
                                     : backward<T, kCentred, kWhole, 0>;
    };
    const bool all_whole = whole(shape, sizeof(T), {x, dx, residual}, {dy}) && aligned(gain.data, 0);
    launch(lane, static_cast<unsigned>(shares), kBackwardThreads, in_shared ? sum_bytes : 0,
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
