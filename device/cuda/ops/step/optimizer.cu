#include <algorithm>
#include <cfloat>

#include "device/cuda/kernels/code_table.cuh"
#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/dtype.h"
#include "device/numeric/optimizer_update.h"
#include "device/numeric/philox.h"
#include "device/ops/step/optimizer.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

struct Update {
  Optimizer optimizer;
  const StepScalars* scalars;
  const std::byte *first, *second;
  float* master;
  std::byte *parameter, *moment1, *moment2;
  DType gradient_dtype, parameter_dtype;
  bool rewrite;  // write the parameter even if the step is skipped
  std::uint32_t unit;
  std::uint64_t begin;
  std::size_t size;
};

// The update rules of device/numeric/optimizer_update.h.
struct Same {
  constexpr float operator()(float x) const { return x; }
};
struct AdamW {
  static constexpr int kMoments = 2;
  __device__ static UpdateFactors factors(const Optimizer& o, const StepScalars& s) { return adamw_factors(o, s); }
  __device__ static void apply(float g, float& p, float& m, float& v, const UpdateFactors& f) {
    rounding::adamw_update(g, p, m, v, f, Same{});
  }
};
struct Lion {
  static constexpr int kMoments = 1;
  __device__ static UpdateFactors factors(const Optimizer& o, const StepScalars& s) { return lion_factors(o, s); }
  __device__ static void apply(float g, float& p, float& m, float&, const UpdateFactors& f) {
    rounding::lion_update(g, p, m, f, Same{});
  }
};
struct Sgd {
  static constexpr int kMoments = 1;
  __device__ static UpdateFactors factors(const Optimizer& o, const StepScalars& s) { return sgd_factors(o, s); }
  __device__ static void apply(float g, float& p, float& m, float&, const UpdateFactors& f) {
    rounding::sgd_update(g, p, m, f, Same{});
  }
};

// Like device::visit(), in a kernel: all threads take the same branch.
template <typename F>
__device__ decltype(auto) visit_here(DType t, F&& f) {
  switch (t) {
    case DType::bf16:
      return f(bf16{});
    case DType::fp16:
      return f(fp16{});
    case DType::fp32:
      break;
  }
  return f(float{});
}

// A warp takes a block of kMomentBlock elements, four of either half per lane, so each of its accesses is one range of
// memory.
constexpr int kHalf = kMomentBlock / 2;
struct Elements {
  float at[8];
};
static_assert(kMomentBlock == 8 * kWarp);
__device__ int offset_of(int half) {
  return half * kHalf + static_cast<int>(threadIdx.x) % kWarp * 4;
}

// The block's `n` elements at `from`, with zeros beyond. They are in stored form, and converted once all loads are in
// flight.
template <typename T>
struct Stored {
  Pack<T, 4> half[2];
};
template <bool kWhole, typename T>
__device__ Stored<T> load_stored(const T* from, int n) {
  Stored<T> x;
  for (int half = 0; half < 2; ++half) {
    const int at = offset_of(half);
    if constexpr (kWhole) {  // zeros for all bits at once, not one element after another
      typename Pack<T, 4>::Bits bits{};
      if (at < n) bits = *reinterpret_cast<const decltype(bits)*>(from + at);
      x.half[half] = std::bit_cast<Pack<T, 4>>(bits);
    } else {
      x.half[half] = load_pack<false, 4>(from + at, at < n ? n - at : 0);
    }
  }
  return x;
}
template <typename T>
__device__ Elements elements_of(const Stored<T>& stored) {
  Elements x;
  for (int half = 0; half < 2; ++half) {
    const Floats<4> four = widen(stored.half[half]);
    for (int i = 0; i < 4; ++i) x.at[4 * half + i] = four.at[i];
  }
  return x;
}
template <bool kWhole, typename T>
__device__ Elements load_elements(const T* from, int n) {
  return elements_of(load_stored<kWhole>(from, n));
}
template <bool kWhole, typename T>
__device__ void store_elements(T* to, int n, const Elements& x) {
  for (int half = 0; half < 2; ++half) {
    const int at = offset_of(half);
    Floats<4> four;
    for (int i = 0; i < 4; ++i) four.at[i] = x.at[4 * half + i];
    store_pack<kWhole>(to + at, at < n ? n - at : 0, narrow<T>(four));
  }
}

// (+0 + first) + second.
template <bool kWhole, typename T>
__device__ Elements load_gradient(const std::byte* first, const std::byte* second, std::size_t begin, int n) {
  Elements g = load_elements<kWhole>(reinterpret_cast<const T*>(first) + begin, n);
  for (float& x : g.at) x = 0.0f + x;
  if (second) {
    const Elements more = load_elements<kWhole>(reinterpret_cast<const T*>(second) + begin, n);
    for (int i = 0; i < 8; ++i) g.at[i] += more.at[i];
  }
  return g;
}

// The tables of 8-bit moments' codes.
struct Tables {
  CodeTable of_signed, of_unsigned;
};
__device__ constexpr Tables kTables{make_code_table<true>(), make_code_table<false>()};

// One moment of a block in each format; kFirst: the first, otherwise the second. `words`: the elements' random numbers.
template <bool kFirst>
struct Fp32Moment {
  template <bool kWhole>
  __device__ static Stored<float> load(const std::byte* data, std::size_t block, int n) {
    return load_stored<kWhole>(reinterpret_cast<const float*>(data) + block * kMomentBlock, n);
  }
  __device__ static Elements values(const Stored<float>& stored, const Tables&) { return elements_of(stored); }
  template <bool kWhole>
  __device__ static void store(std::byte* data, std::size_t block, int n, const Elements& x, const std::uint32_t*,
                               const Tables&) {
    store_elements<kWhole>(reinterpret_cast<float*>(data) + block * kMomentBlock, n, x);
  }
};

template <bool kFirst>
struct Bf16Moment {
  template <bool kWhole>
  __device__ static Stored<bf16> load(const std::byte* data, std::size_t block, int n) {
    return load_stored<kWhole>(reinterpret_cast<const bf16*>(data) + block * kMomentBlock, n);
  }
  __device__ static Elements values(const Stored<bf16>& stored, const Tables&) { return elements_of(stored); }
  template <bool kWhole>
  __device__ static void store(std::byte* data, std::size_t block, int n, const Elements& x, const std::uint32_t* words,
                               const Tables&) {
    for (int half = 0; half < 2; ++half) {
      const int at = offset_of(half);
      Pack<bf16, 4> four;
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t word = words[4 * half + i];
        four.at[i] =
            round_stochastically(x.at[4 * half + i], static_cast<std::uint16_t>(kFirst ? word & 0xffffu : word >> 16));
      }
      store_pack<kWhole>(reinterpret_cast<bf16*>(data) + block * kMomentBlock + at, at < n ? n - at : 0, four);
    }
  }
};

// Always whole blocks. A block of 260 bytes and a group of four codes are multiples of four bytes, the alignment that
// these accesses need.
template <bool kFirst>
struct Block8Moment {
  static constexpr std::size_t kBytes = sizeof(float) + kMomentBlock;
  __device__ static const CodeTable& table(const Tables& tables) {
    return kFirst ? tables.of_signed : tables.of_unsigned;
  }

  struct Codes {
    float scale;
    std::uint32_t half[2];
  };
  template <bool>
  __device__ static Codes load(const std::byte* data, std::size_t block, int) {
    const std::byte* at = data + block * kBytes;
    const auto codes = [&](int half) {
      return *reinterpret_cast<const std::uint32_t*>(at + sizeof(float) + offset_of(half));
    };
    return {*reinterpret_cast<const float*>(at), {codes(0), codes(1)}};
  }
  __device__ static Elements values(const Codes& codes, const Tables& tables) {
    Elements x;
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 4; ++i)
        x.at[4 * half + i] = table(tables).value[codes.half[half] >> 8 * i & 0xffu] * codes.scale;
    return x;
  }
  // The lanes synchronize here, so that all of them read the scale before it is overwritten.
  template <bool>
  __device__ static void store(std::byte* data, std::size_t block, int, const Elements& values, const std::uint32_t*,
                               const Tables& tables) {
    Elements x = values;
    float scale = 0;
    for (const float value : x.at) scale = fmaxf(scale, kFirst ? fabsf(value) : value);
    // Non-negative floats have the same order as their bits.
    scale = std::bit_cast<float>(__reduce_max_sync(kAllLanes, std::bit_cast<std::uint32_t>(scale)));
    if (!(scale <= FLT_MAX)) {  // an infinity must not turn the others into NaN
      scale = FLT_MAX;
      for (float& value : x.at) value = rounding::max(rounding::min(value, scale), -scale);
    }
    const bool tiny = scale < FLT_MIN;  // its inverse would overflow
    scale = tiny ? 0.0f : scale;
    const float inverse = tiny ? 0.0f : 1.0f / scale;
    std::byte* at = data + block * kBytes;
    if (threadIdx.x % kWarp == 0) *reinterpret_cast<float*>(at) = scale;
    for (int half = 0; half < 2; ++half) {
      std::uint32_t codes = 0;
      for (int i = 0; i < 4; ++i)
        codes |= (table(tables).template byte_of<kFirst>(x.at[4 * half + i] * inverse) & 0xffu) << 8 * i;
      *reinterpret_cast<std::uint32_t*>(at + sizeof(float) + offset_of(half)) = codes;
    }
  }
};

template <bool kWhole>
__device__ void store_parameter(const Update& u, std::size_t begin, int n, const Elements& p) {
  visit_here(u.parameter_dtype,
             [&](auto zero) { store_elements<kWhole>(reinterpret_cast<decltype(zero)*>(u.parameter) + begin, n, p); });
}

// One block of `n` elements. Its loads are issued together and awaited in the branch that the gradient's dtype selects.
// Values are converted after that branch.
template <typename Rule, template <bool> typename Moment, bool kWhole>
__device__ void update_block(const Update& u, std::size_t block, int n, const UpdateFactors& f, const RandomStream& s,
                             const Tables& tables) {
  constexpr bool kDraws = std::is_same_v<Moment<true>, Bf16Moment<true>>, kBoth = Rule::kMoments == 2;
  const std::size_t begin = block * kMomentBlock;
  Elements p = load_elements<kWhole>(u.master + begin, n);
  const auto first = Moment<true>::template load<kWhole>(u.moment1, block, n);
  const auto second = Moment<false>::template load<kWhole>(kBoth ? u.moment2 : u.moment1, block, n);
  const Elements g = visit_here(
      u.gradient_dtype, [&](auto zero) { return load_gradient<kWhole, decltype(zero)>(u.first, u.second, begin, n); });
  Elements m = Moment<true>::values(first, tables), v{};
  if constexpr (kBoth) v = Moment<false>::values(second, tables);
  std::uint32_t words[8] = {};
  if constexpr (kDraws)
    for (int half = 0; half < 2; ++half)
      random_words(s, (u.begin + begin + static_cast<std::size_t>(offset_of(half))) / 4, 1, words + 4 * half);
  for (int i = 0; i < 8; ++i) Rule::apply(g.at[i], p.at[i], m.at[i], v.at[i], f);
  store_elements<kWhole>(u.master + begin, n, p);
  if (u.parameter) store_parameter<kWhole>(u, begin, n, p);
  Moment<true>::template store<kWhole>(u.moment1, block, n, m, words, tables);
  if constexpr (kBoth) Moment<false>::template store<kWhole>(u.moment2, block, n, v, words, tables);
}

template <typename Rule, template <bool> typename Moment, bool kWhole>
__global__ void __launch_bounds__(kThreads) update_blocks(const __grid_constant__ Update u) {
  constexpr bool kLooksUp = std::is_same_v<Moment<true>, Block8Moment<true>>;
  __shared__ UpdateFactors factors;
  __shared__ Tables tables;
  const bool skip = u.scalars->skip != 0;
  if (skip && !u.rewrite) return;
  if (threadIdx.x == 0) factors = Rule::factors(u.optimizer, *u.scalars);
  if constexpr (kLooksUp) {
    tables.of_signed.copy<kThreads>(kTables.of_signed);
    tables.of_unsigned.copy<kThreads>(kTables.of_unsigned);
  }
  __syncthreads();
  const UpdateFactors f = factors;
  const RandomStream stream{u.scalars->seed, u.scalars->first_micro_batch, kMomentSites | u.unit};

  const std::size_t blocks = (u.size + kMomentBlock - 1) / kMomentBlock, stride = std::size_t{gridDim.x} * kWarps;
  for (std::size_t block = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; block < blocks; block += stride) {
    const std::size_t begin = block * kMomentBlock, left = u.size - begin;
    const int n = left < kMomentBlock ? static_cast<int>(left) : static_cast<int>(kMomentBlock);
    if (skip)
      store_parameter<kWhole>(u, begin, n, load_elements<kWhole>(u.master + begin, n));
    else
      update_block<Rule, Moment, kWhole>(u, block, n, f, stream, tables);
  }
}

template <typename Rule, bool kWhole>
auto kernel_of(StorageFormat format) {
  switch (format) {
    case StorageFormat::bf16:
      return update_blocks<Rule, Bf16Moment, kWhole>;
    case StorageFormat::block8:
      return update_blocks<Rule, Block8Moment, kWhole>;
    case StorageFormat::fp32:
    case StorageFormat::fp16:  // no moment has this format or one of those below
    case StorageFormat::nf4:
    case StorageFormat::nf4_plain:
      break;
  }
  return update_blocks<Rule, Fp32Moment, kWhole>;
}
template <bool kWhole>
auto kernel_of(Algorithm algorithm, StorageFormat format) {
  switch (algorithm) {
    case Algorithm::lion:
      return kernel_of<Lion, kWhole>(format);
    case Algorithm::sgd:
      return kernel_of<Sgd, kWhole>(format);
    case Algorithm::adamw:
      break;
  }
  return kernel_of<AdamW, kWhole>(format);
}

}  // namespace

void update(Lane& lane, const Optimizer& optimizer, const StepScalars* scalars, const UpdateOperands& s,
            OnSkip on_skip) {
  if (s.master.size == 0) return;
  const std::size_t gradient = 4 * size_of(s.first.dtype), parameter = 4 * size_of(s.parameter.dtype);
  const std::size_t moment = s.format == StorageFormat::fp32 ? 16 : s.format == StorageFormat::bf16 ? 8 : 4;
  const bool whole = s.master.size % 4 == 0 && aligned(s.master.data, 0) && aligned(s.first.data, 0, gradient) &&
                     aligned(s.second.data, 0, gradient) && aligned(s.parameter.data, 0, parameter) &&
                     aligned(s.moment1, 0, moment) && aligned(s.moment2, 0, moment);
  Update u{.optimizer = optimizer,
           .scalars = scalars,
           .first = s.first.data,
           .second = s.second.data,
           .master = s.master.as<float>(),
           .parameter = s.parameter.data,
           .moment1 = s.moment1,
           .moment2 = s.moment2,
           .gradient_dtype = s.first.dtype,
           .parameter_dtype = s.parameter.dtype,
           .rewrite = on_skip == OnSkip::rewrite_parameter && s.parameter,
           .unit = s.unit,
           .begin = s.begin,
           .size = s.master.size};
  if (!s.decay) u.optimizer.weight_decay = 0;
  // Enough blocks to leave little of the GPU idle at the end, and no more, because each first computes the factors.
  const std::size_t per_block = kWarps * kMomentBlock;
  const auto grid = static_cast<unsigned>(std::min<std::size_t>((u.size + per_block - 1) / per_block, 8192));
  const auto kernel = (whole ? kernel_of<true> : kernel_of<false>)(optimizer.algorithm, s.format);
  launch(lane, grid, kThreads, 0, kernel, u);
}

}  // namespace strata::device::cuda
