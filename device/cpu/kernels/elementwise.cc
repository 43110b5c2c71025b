#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename From, typename To>
[[gnu::flatten]] static void cast(const std::byte* from, std::byte* to, std::size_t n) {
  const auto* f = reinterpret_cast<const From*>(from);
  auto* t = reinterpret_cast<To*>(to);
  for16(n, [&](std::size_t i, auto some) { store(t + i, load(f + i, some), some); });
}

template <typename T>
[[gnu::flatten]] static void add(const std::byte* from, float* to, std::size_t n) {
  const auto* f = reinterpret_cast<const T*>(from);
  for16(n, [&](std::size_t i, auto some) { store(to + i, load(to + i, some) + load(f + i, some), some); });
}

template <typename T>
[[gnu::flatten]] static void sum_of_two(const std::byte* a, const std::byte* b, std::byte* out, std::size_t n) {
  const auto* p = reinterpret_cast<const T*>(a);
  const auto* q = reinterpret_cast<const T*>(b);
  auto* to = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t i, auto some) { store(to + i, load(p + i, some) + load(q + i, some), some); });
}

template <typename T>
[[gnu::flatten]] static void scale(const std::byte* x, float factor, std::byte* out, std::size_t n) {
  const auto* p = reinterpret_cast<const T*>(x);
  auto* o = reinterpret_cast<T*>(out);
  const F32x16 factors = broadcast(factor);
  for16(n, [&](std::size_t i, auto some) { store(o + i, load(p + i, some) * factors, some); });
}

template <typename T>
[[gnu::flatten]] static std::uint64_t count_nonfinite(const std::byte* x, std::size_t n) {
  const auto* p = reinterpret_cast<const T*>(x);
  std::uint64_t count = 0;
  for16(n, [&](std::size_t i, auto some) { count += nonfinite(load(p + i, some)); });
  return count;
}

template <typename T>
[[gnu::flatten]] static void column_sum(const std::byte* x, std::size_t rows, std::size_t columns, std::size_t stride,
                                        float* sums) {
  const auto* p = reinterpret_cast<const T*>(x);
  for16(columns, [&](std::size_t j, auto some) { store(sums + j, zeros(), some); });
  std::size_t r = 0;
  // Four rows at a time, so that the sums are loaded and stored a quarter as often.
  for (; r + 4 <= rows; r += 4) {
    const T* row = p + r * stride;
    for16(columns, [&](std::size_t j, auto some) {
      F32x16 s = load(sums + j, some) + load(row + j, some);
      s = s + load(row + stride + j, some);
      s = s + load(row + 2 * stride + j, some);
      store(sums + j, s + load(row + 3 * stride + j, some), some);
    });
  }
  for (; r < rows; ++r) {
    const T* row = p + r * stride;
    for16(columns,
          [&](std::size_t j, auto some) { store(sums + j, load(sums + j, some) + load(row + j, some), some); });
  }
}

template <typename T>
[[gnu::flatten]] static void add_partials(const float* partials, std::size_t count, std::size_t stride, std::byte* out,
                                          std::size_t n) {
  auto* o = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t j, auto some) {
    F32x16 s = load(partials + j, some);
    for (std::size_t p = 1; p < count; ++p) s = s + load(partials + p * stride + j, some);
    store(o + j, s, some);
  });
}

extern const ElementwiseKernels elementwise_kernels_table = {
    .cast = {{cast<float, float>, cast<float, bf16>, cast<float, fp16>},
             {cast<bf16, float>, cast<bf16, bf16>, cast<bf16, fp16>},
             {cast<fp16, float>, cast<fp16, bf16>, cast<fp16, fp16>}},
    .add = STRATA_BY_DTYPE(add),
    .sum = STRATA_BY_DTYPE(sum_of_two),
    .scale = STRATA_BY_DTYPE(scale),
    .count_nonfinite = STRATA_BY_DTYPE(count_nonfinite),
    .column_sum = STRATA_BY_DTYPE(column_sum),
    .add_partials = STRATA_BY_DTYPE(add_partials),
};

}  // namespace strata::device::cpu::STRATA_ISA
