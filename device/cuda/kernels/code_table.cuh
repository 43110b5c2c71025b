#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <iterator>

#include "device/numeric/dynamic_map.h"

// A dynamic map (device/numeric/dynamic_map.h) as tables for kernels, with the same results: a few instructions for a
// byte or its value. The tables are copied into shared memory, because every lane reads a different entry.
namespace strata::device::cuda {

struct CodeTable {
  // The bytes of a decade's numbers: |byte| = floor(steps * number + shift), at most `most`.
  struct alignas(16) Line {
    float steps, shift, most;
  };
  // Numbers between two powers of two lie in one or two decades: in the decade of line `last` if they are at least
  // `least`, otherwise in the one before.
  struct alignas(8) Octave {
    float least;
    std::int32_t last;
  };

  float value[256];    // indexed by the byte
  Octave octave[256];  // indexed by the exponent of a float
  Line line[10];       // 0: for numbers below all decades

  // Called by the kThreads threads of a block, which synchronize before they look up.
  template <unsigned kThreads>
  __device__ void copy(const CodeTable& from) {
    for (unsigned i = threadIdx.x; i < std::size(value); i += kThreads) {
      value[i] = from.value[i];
      octave[i] = from.octave[i];
    }
    if (threadIdx.x < std::size(line)) line[threadIdx.x] = from.line[threadIdx.x];
  }

  // DynamicMap::byte_of(), in the low byte.
  template <bool kSigned>
  __device__ std::uint32_t byte_of(float number) const {
    const float x = kSigned ? fabsf(number) : number;
    const Octave o = octave[std::bit_cast<std::uint32_t>(number) >> 23 & 0xffu];
    const Line l = line[o.last - (x < o.least)];
    const int n = static_cast<int>(fminf(fmaf(l.steps, x, l.shift), l.most));
    if (!kSigned) return static_cast<std::uint32_t>(n);
    return static_cast<std::uint32_t>(number < 0 ? min(n, 127) : -n);
  }
};

template <bool kSigned>
constexpr CodeTable make_code_table() {
  constexpr DynamicMap map = kSigned ? kSignedMap : kUnsignedMap;
  CodeTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    // Like DynamicMap::value_of(), whose fused multiply-add nvcc does not evaluate: in fp64 this is exact.
    const int count = !kSigned ? byte + 1 : byte < 128 ? byte : byte - 256, n = count < 0 ? -count : count;
    const int at = (std::bit_width(static_cast<unsigned>(n)) + 6) % 8;
    const double value = static_cast<double>(map.slope[at]) * n + static_cast<double>(map.offset[at]);
    table.value[byte] = n == 0 ? 0.0f : static_cast<float>(kSigned && count > 0 ? -value : value);
  }
  // Line e + 1 is for decade e. The lowest decade of an unsigned map is zero's, whose entry in the map is also one's.
  for (int e = kSigned ? 0 : -1; e < map.first + 8; ++e) {
    const int at = (e + 8) % 8;
    const float most = map.most[at];
    table.line[e + 1] = {map.steps[at], map.shift[at], kSigned || most < 255 ? most : 255};
  }
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    // A number above one can only come from rounding.
    const auto largest = std::bit_cast<float>((exponent < 127 ? exponent : 127u) << 23 | 0x7fffffu);
    int e = map.first;
    while (e < map.first + 7 && map.least[(e + 1) % 8] <= largest) ++e;
    table.octave[exponent] = {map.least[e % 8], e + 1};
  }
  return table;
}

}  // namespace strata::device::cuda
