#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <type_traits>

#include "device/cuda/kernels/convert.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/ops/norm.h"

// How teams of threads read the vectors of norms, which may have any length, and where these vectors are.
namespace strata::device::cuda {

// How a team of 2^bits threads reads a vector: each thread has `packs` packs of some elements, which stay in registers,
// so memory is read once. packs == 0: the vector is longer than that, and is read several times.
struct Split {
  int bits, packs;
};
inline constexpr int kLeastTeamBits = 2, kMaxTeamBits = 9, kMaxTeam = 1 << kMaxTeamBits;

// The tightest split for a vector of this many packs, at `most` packs per thread or one less. It depends only on the
// width, never on the alignment of operands.
inline Split split(std::size_t packs, int most) {
  for (int bits = kLeastTeamBits; bits <= kMaxTeamBits; ++bits)
    for (const int mine : {most - 1, most})
      if (packs <= static_cast<std::size_t>(mine) << bits) return {bits, mine};
  return {kMaxTeamBits, 0};
}

// The calling thread's packs of kSize elements of a vector: the team's threads take turns. kWhole: see load_pack().
// kPacks: see Split.
template <typename T, int kSize, bool kWhole, int kPacks>
struct Packs {
  static constexpr int kN = kSize;
  using Bits = typename Pack<T, kN>::Bits;  // half words would take a register each
  static constexpr int kHeld = kPacks > 0 ? kPacks : 1;
  unsigned thread, width;
  int bits;

  __device__ Packs(int team_bits, unsigned vector_width)
      : thread(threadIdx.x & ((1u << team_bits) - 1)), width(vector_width), bits(team_bits) {}
  __device__ int count() const {
    const unsigned at_once = kN << bits;
    return kPacks > 0 ? kPacks : static_cast<int>((width + at_once - 1) / at_once);
  }
  __device__ unsigned column(int pack) const { return (thread + (static_cast<unsigned>(pack) << bits)) * kN; }
  // The number of the vector's elements from that column to its end.
  __device__ unsigned left(int pack) const {
    const unsigned at = column(pack);
    return at < width ? width - at : 0;
  }
  __device__ bool inside(int pack, int i) const {
    return kWhole ? left(pack) != 0 : static_cast<unsigned>(i) < left(pack);
  }
  // Adds bytes to the finished pointer. Otherwise the compiler would add them to each of the many terms of the address.
  template <typename U>
  __device__ U* pack_at(U* vector, int pack) const {
    using Byte = std::conditional_t<std::is_const_v<U>, const char, char>;
    return reinterpret_cast<U*>(reinterpret_cast<Byte*>(vector) + column(pack) * static_cast<unsigned>(sizeof(T)));
  }
  __device__ Bits load(const T* vector, int pack) const {
    if constexpr (kWhole)
      return left(pack) != 0 ? *reinterpret_cast<const Bits*>(pack_at(vector, pack)) : Bits{};
    else
      return std::bit_cast<Bits>(load_pack<false, kN>(pack_at(vector, pack), left(pack)));
  }
  __device__ static Floats<kN> numbers(Bits bits) { return widen(std::bit_cast<Pack<T, kN>>(bits)); }
  __device__ void store(T* vector, int pack, const Floats<kN>& x) const {
    store_pack<kWhole>(pack_at(vector, pack), left(pack), narrow<T>(x));
  }
  template <typename F>
  __device__ void each(F&& f) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) f(pack);
    } else {
      for (int pack = 0, all = count(); pack < all; ++pack) f(pack);
    }
  }
};

// A thread's column sums of vectors that do not fit into registers. They are in `shared` until the end, next to those
// of the block's other threads, or in `columns` if `shared` is null.
template <typename Own>
struct LongSums {
  static constexpr int kN = Own::kN;
  const Own& packs;
  float *columns, *shared;
  unsigned apart;

  __device__ LongSums(const Own& of, float* sums_of_columns, float* shared_memory, int number)
      : packs(of), columns(sums_of_columns), shared(shared_memory), apart(shared_memory ? blockDim.x : 1) {
    if (shared) shared += static_cast<unsigned>(number * packs.count() * kN) * blockDim.x;
  }
  __device__ float* at(int pack) const {
    return shared ? shared + static_cast<unsigned>(pack * kN) * blockDim.x + threadIdx.x : columns + packs.column(pack);
  }
  __device__ void clear() const {
    each([&](int pack, unsigned i) { at(pack)[i * apart] = 0; });
  }
  // All are read before the first is written.
  __device__ void add(int pack, const Floats<kN>& x) const {
    float* const sums = at(pack);
    Floats<kN> sum{};
    for (int i = 0; i < kN; ++i)
      if (packs.inside(pack, i)) sum.at[i] = sums[static_cast<unsigned>(i) * apart] + x.at[i];
    for (int i = 0; i < kN; ++i)
      if (packs.inside(pack, i)) sums[static_cast<unsigned>(i) * apart] = sum.at[i];
  }
  __device__ void finish() const {
    if (shared) each([&](int pack, unsigned i) { columns[packs.column(pack) + i] = at(pack)[i * apart]; });
  }

 private:
  template <typename F>
  __device__ void each(F&& f) const {
    packs.each([&](int pack) {
      for (int i = 0; i < kN; ++i)
        if (packs.inside(pack, i)) f(pack, static_cast<unsigned>(i));
    });
  }
};

// The place of a vector: it starts at element x of x, dx and the residual, and at element y of y and dy. Also its
// number in its row.
struct Place {
  std::size_t x, y;
  unsigned group;
};
// The places of a shape's vectors. A team reads every `teams`-th vector: the next one is `turn` elements further, plus
// `wrap` if it is in a later row.
struct Layout {
  std::size_t x_stride, y_stride, x_turn, y_turn, x_wrap, y_wrap;
  unsigned width, groups, group_turn;

  Layout(const NormShape& s, std::size_t teams)
      : x_stride(s.x_stride),
        y_stride(s.y_stride),
        x_turn(teams / s.groups * s.x_stride + teams % s.groups * s.width),
        y_turn(teams / s.groups * s.y_stride + teams % s.groups * s.width),
        x_wrap(s.x_stride - s.groups * s.width),
        y_wrap(s.y_stride - s.groups * s.width),
        width(static_cast<unsigned>(s.width)),
        groups(static_cast<unsigned>(s.groups)),
        group_turn(static_cast<unsigned>(teams % s.groups)) {}
  __device__ Place place(std::size_t vector) const {
    const RowUnit unit = groups == 1 ? RowUnit{vector, 0} : row_unit(vector, groups);
    const std::size_t within = std::size_t{unit.at} * width;
    return {unit.row * x_stride + within, unit.row * y_stride + within, unit.at};
  }
  // Avoids a division.
  __device__ void advance(Place& at) const {
    at.x += x_turn;
    at.y += y_turn;
    at.group += group_turn;
    if (at.group < groups) return;
    at.x += x_wrap;
    at.y += y_wrap;
    at.group -= groups;
  }
};

}  // namespace strata::device::cuda
