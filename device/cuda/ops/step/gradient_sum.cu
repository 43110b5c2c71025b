#include <algorithm>

#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/ops/step/gradient_sum.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// More pieces take several launches. Between them the sum is stored in fp32, the precision it has in a register.
constexpr std::size_t kMaxPieces = GradientRuns::kMaxInRegisters;
struct Pieces {
  const std::byte* at[kMaxPieces];
  int count;
};

// A warp takes 256 elements, four of either half per lane, so each of its accesses is one range of memory.
constexpr std::size_t kWarpElements = 256;

template <typename T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    add_pieces(const __grid_constant__ Pieces pieces, float* sum, std::size_t n, bool first) {
  const std::size_t begin = (std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp) * kWarpElements;
  Pack<float, 4> s[2];
  std::size_t at[2], left[2];
  for (int half = 0; half < 2; ++half) {
    at[half] = begin + static_cast<std::size_t>(half) * kWarpElements / 2 + threadIdx.x % kWarp * 4;
    left[half] = at[half] < n ? n - at[half] : 0;
    s[half] = first ? Pack<float, 4>{} : load_pack<kWhole, 4>(sum + at[half], left[half]);
  }
#pragma unroll 4
  for (int k = 0; k < pieces.count; ++k)
    for (int half = 0; half < 2; ++half) {
      // This is not conditional: a lane beyond the end adds up numbers that it does not write.
      const std::size_t from = kWhole && left[half] == 0 ? 0 : at[half], some = kWhole ? 4 : left[half];
      const auto piece = widen(load_pack<kWhole, 4>(reinterpret_cast<const T*>(pieces.at[k]) + from, some));
      for (int i = 0; i < 4; ++i) s[half].at[i] += piece.at[i];
    }
  for (int half = 0; half < 2; ++half) store_pack<kWhole>(sum + at[half], left[half], s[half]);
}

// The runs of one launch: the pieces in a run, those of the first run that are in `partial`, and that memory (or null).
struct Runs {
  std::size_t length, before;
  float* partial;
};

template <typename T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    add_runs(const __grid_constant__ Pieces pieces, const Runs runs, float* sum, std::size_t n, bool first) {
  const std::size_t at = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (at >= n) return;
  const std::size_t left = n - at;
  Pack<float, 4> total = first ? Pack<float, 4>{} : load_pack<kWhole, 4>(sum + at, left);
  Floats<4> run{};
  if (runs.before > 0) run = widened(load_pack<kWhole, 4>(runs.partial + at, left));
  std::size_t held = runs.before;
  for (int k = 0; k < pieces.count; ++k) {
    const auto piece = widened(load_pack<kWhole, 4>(reinterpret_cast<const T*>(pieces.at[k]) + at, left));
    for (int i = 0; i < 4; ++i) run.at[i] += piece.at[i];
    if (++held < runs.length) continue;
    const auto once = widened(rounded<T>(run));
    for (int i = 0; i < 4; ++i) total.at[i] += once.at[i];
    run = {};
    held = 0;
  }
  store_pack<kWhole>(sum + at, left, total);
  if (held > 0) store_pack<kWhole>(runs.partial + at, left, rounded<float>(run));
}

// Each of a block's 64 partial sums takes every 64th element. Threads that each take 16 bytes read all 64 together, row
// by row. The tree over them, j and j + 32, j and j + 16, ..., first joins threads, then the sums of one thread. A
// float's square is exact in fp64, so the fused addition rounds as a plain one does.
constexpr std::size_t kPartials = 64;

template <typename T, bool kTied, bool kWhole>
__device__ double square_sum(const T* first, const T* second) {
  constexpr int kN = 16 / sizeof(T), kTeam = kPartials / kN;
  double partial[kN] = {};
#pragma unroll 8
  for (std::size_t i = 0; i < kSquareBlock; i += kPartials) {
    Floats<kN> x = widen(load_pack<kWhole, kN>(first + i, kN));
    for (int k = 0; k < kN; ++k) x.at[k] = 0.0f + x.at[k];
    if constexpr (kTied) {
      const auto y = widen(load_pack<kWhole, kN>(second + i, kN));
      for (int k = 0; k < kN; ++k) x.at[k] += y.at[k];
    }
    for (int k = 0; k < kN; ++k) {
      const auto d = static_cast<double>(x.at[k]);
      partial[k] = fma(d, d, partial[k]);
    }
  }
  for (int k = 0; k < kN; ++k) partial[k] = sum_lanes(partial[k], kTeam);
  for (int width = kN / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) partial[k] += partial[k + width];
  return partial[0];
}

// Thread i adds up chunk i of the exact sum, so that the grid's blocks meet in a few integer atomics each.
template <typename T, bool kTied, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    add_square_sums(const T* first, const T* second, std::size_t blocks, ExactSum* total) {
  constexpr int kN = 16 / sizeof(T), kTeam = kPartials / kN, kTeams = kThreads / kTeam;
  static_assert(ExactSum::kChunks < kThreads && kTeam <= kWarp);
  __shared__ double sums[kTeams];
  const unsigned thread = threadIdx.x;
  std::int64_t chunk = 0;
  std::uint64_t nonfinite = 0, added = 0;
  for (std::size_t begin = std::size_t{blockIdx.x} * kTeams; begin < blocks; begin += std::size_t{gridDim.x} * kTeams) {
    // A team beyond the end repeats the last block.
    const std::size_t block = min(begin + thread / kTeam, blocks - 1), at = block * kSquareBlock + thread % kTeam * kN;
    const double sum = square_sum<T, kTied, kWhole>(first + at, kTied ? second + at : nullptr);
    if (thread % kTeam == 0) sums[thread / kTeam] = sum;
    __syncthreads();
    if (thread <= ExactSum::kChunks) {
      const std::size_t count = min(blocks - begin, std::size_t{kTeams});
      for (std::size_t i = 0; i < count; ++i) {
        const ExactTerm term(sums[i]);
        ++(term.finite ? added : nonfinite);
        for (unsigned part = 0; part < 3; ++part)
          if (thread == term.first + part) chunk += term.parts[part];
      }
    }
    __syncthreads();
  }
  // Two's complement: an unsigned addition gives the signed sum. A chunk has room for 2^29 further additions, far more
  // than any gradient has blocks, so nothing needs normalising here.
  const auto add = [](void* to, std::uint64_t x) {
    if (x != 0) atomicAdd(static_cast<unsigned long long*>(to), static_cast<unsigned long long>(x));
  };
  if (thread < ExactSum::kChunks) add(&total->chunks[thread], static_cast<std::uint64_t>(chunk));
  if (thread == ExactSum::kChunks) {
    add(&total->nonfinite, nonfinite);
    add(&total->uncarried, added);
  }
}

}  // namespace

void gradient_sum(Lane& lane, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first,
                  const GradientRuns& runs) {
  if (sum.size == 0) return;
  const auto blocks = static_cast<unsigned>((sum.size + kWarps * kWarpElements - 1) / (kWarps * kWarpElements));
  const auto run_blocks = static_cast<unsigned>((sum.size + kThreads * 4 - 1) / (kThreads * 4));
  Runs some_runs{runs.length, runs.before, runs.partial ? runs.partial.as<float>() : nullptr};
  // Without memory for an incomplete run, every launch ends at the end of a run.
  const std::size_t most = runs.partial ? kMaxPieces : kMaxPieces / runs.length * runs.length;
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    do {
      Pieces some{};
      bool whole = sum.size % 4 == 0 && aligned(sum.data, 0) && (!runs.partial || aligned(runs.partial.data, 0));
      for (const std::byte* piece : pieces.first(std::min(pieces.size(), most))) {
        some.at[some.count++] = piece;
        whole = whole && aligned(piece, 0, 4 * sizeof(T));
      }
      pieces = pieces.subspan(static_cast<std::size_t>(some.count));
      if (runs.length == 1) {
        launch(lane, blocks, kThreads, 0, whole ? add_pieces<T, true> : add_pieces<T, false>, some, sum.as<float>(),
               sum.size, first);
      } else {
        launch(lane, run_blocks, kThreads, 0, whole ? add_runs<T, true> : add_runs<T, false>, some, some_runs,
               sum.as<float>(), sum.size, first);
        some_runs.before = (some_runs.before + static_cast<std::size_t>(some.count)) % runs.length;
      }
      first = false;
    } while (!pieces.empty());
  });
}

void gradient_square_sum(Lane& lane, ConstView first, ConstView second, ExactSum* total) {
  const std::size_t blocks = first.size / kSquareBlock;
  if (blocks == 0) return;
  visit(first.dtype, [&](auto zero) {
    using T = decltype(zero);
    // Enough blocks to leave little of the GPU idle at the end, and no more, because each ends in atomics.
    const std::size_t per_round = kThreads / (kPartials / (16 / sizeof(T)));
    const auto grid = static_cast<unsigned>(std::min<std::size_t>((blocks + per_round - 1) / per_round, 8192));
    const bool whole = aligned(first.data, 0) && aligned(second.data, 0);
    const auto kernel = second ? (whole ? add_square_sums<T, true, true> : add_square_sums<T, true, false>)
                               : (whole ? add_square_sums<T, false, true> : add_square_sums<T, false, false>);
    launch(lane, grid, kThreads, 0, kernel, first.as<T>(), second ? second.as<T>() : nullptr, blocks, total);
  });
}

}  // namespace strata::device::cuda
