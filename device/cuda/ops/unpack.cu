#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/nf4.h"
#include "device/ops/elementwise.h"

namespace strata::device::cuda {
namespace {

struct ScaleValues {
  float at[256];  // by bitsandbytes' code
};
constexpr ScaleValues make_scale_values() {
  ScaleValues values{};
  for (int code = 0; code < 256; ++code) values.at[code] = scale_value(static_cast<std::uint8_t>(code));
  return values;
}
struct Nf4Values {
  float at[16];
};

constexpr unsigned kThreads = kNf4Scales, kN = 8;  // elements of a thread's turn: four bytes of codes
static_assert(kNf4Block % (kThreads * kN) == 0 && kScaleBlock % kN == 0);

// A block of threads unpacks a block of nf4: each thread has one of its scales.
template <typename T, bool kPlain>
__global__ void __launch_bounds__(kThreads)
    unpack_nf4(const std::byte* packed, const ScaleValues values, const Nf4Values nf4, T* out) {
  __shared__ float scales[kThreads];
  __shared__ float numbers[16];
  const std::byte* from = packed + std::size_t{blockIdx.x} * (kPlain ? kNf4PlainBytes : kNf4Bytes);
  const auto* floats = reinterpret_cast<const float*>(from);
  const unsigned thread = threadIdx.x;
  if (kPlain) {
    scales[thread] = floats[thread];
  } else {
    const auto code = static_cast<unsigned>(from[kNf4ScaleBytes + thread]);
    scales[thread] = values.at[code] * floats[0] + floats[1];
  }
  if (thread < 16) numbers[thread] = nf4.at[thread];
  __syncthreads();
  const auto* codes = reinterpret_cast<const std::uint32_t*>(from + (kPlain ? kNf4PlainCodes : kNf4Codes));
  T* const to = out + std::size_t{blockIdx.x} * kNf4Block;
#pragma unroll
  for (unsigned turn = 0; turn < kNf4Block / (kThreads * kN); ++turn) {
    const unsigned unit = turn * kThreads + thread;
    const std::uint32_t word = codes[unit];
    const float scale = scales[unit * kN / kScaleBlock];
    constexpr int kPack = 16 / sizeof(T);  // elements of a store
#pragma unroll
    for (unsigned first = 0; first < kN; first += kPack) {
      Floats<kPack> x;
      // Bytes start with the lowest, and the high half of a byte comes first.
      for (unsigned i = 0; i < kPack; ++i) {
        const unsigned element = first + i;
        x.at[i] = numbers[word >> (element / 2 * 8 + (element % 2 == 0 ? 4 : 0)) & 0xf] * scale;
      }
      store_pack<true>(to + unit * kN + first, kPack, rounded<T>(x));
    }
  }
}

}  // namespace

void unpack(Lane& lane, StorageFormat format, const std::byte* packed, View out) {
  if (out.size == 0) return;
  static constexpr ScaleValues kScaleValues = make_scale_values();
  Nf4Values nf4{};
  for (int code = 0; code < 16; ++code) nf4.at[code] = kNf4Values[code];
  const auto blocks = static_cast<unsigned>(out.size / kNf4Block);
  visit(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = format == StorageFormat::nf4 ? unpack_nf4<T, false> : unpack_nf4<T, true>;
    launch(lane, blocks, kThreads, 0, kernel, packed, kScaleValues, nf4, out.as<T>());
  });
}

}  // namespace strata::device::cuda
