#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/philox16.h"
#include "device/cpu/kernels/tables.h"
#include "device/numeric/nf4.h"

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

template <typename T>
[[gnu::flatten]] static void dropout(const RandomStream& stream, std::uint64_t index, std::uint32_t threshold,
                                     float scale, const std::byte* x, const std::byte* residual, std::byte* out,
                                     std::size_t n) {
  const RandomStream s = stream;
  const auto* from = reinterpret_cast<const T*>(x);
  const auto* base = reinterpret_cast<const T*>(residual);
  auto* to = reinterpret_cast<T*>(out);
  const F32x16 factor = broadcast(scale);
  alignas(64) std::uint32_t words[32];
  for16(n, [&](std::size_t i, auto some) {
    if (i % 32 == 0) random_words32(s, (index + i) / 4, words);
    F32x16 y = keep_from(load(from + i, some) * factor, words + i % 32, threshold);
    if (base) y = load(base + i, some) + y;
    store(to + i, y, some);
  });
}

extern const DropoutKernels dropout_kernels_table = {.dropout = STRATA_BY_DTYPE(dropout)};

// The sums of complete subtrees that wait for their right neighbours: with 2^10 partials there are at most eleven.
static constexpr std::size_t kMaxWaiting = 11;

// partial(p) returns a pointer to the first element of partial p.
template <typename T, typename Partial>
static inline void add_tree(const Partial& partial, std::size_t count, const std::byte* bias, std::byte* out,
                            std::size_t n) {
  const auto* b = reinterpret_cast<const T*>(bias);
  auto* o = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t i, auto some) {
    F32x16 waiting[kMaxWaiting];
    std::size_t top = 0;
    for (std::size_t p = 0; p < count; ++p) {
      F32x16 sum = load(partial(p) + i, some);
      for (std::size_t bits = p; bits & 1; bits >>= 1) sum = waiting[--top] + sum;
      waiting[top++] = sum;
    }
    F32x16 sum = waiting[0];
    if (b) sum = sum + load(b + i, some);
    store(o + i, sum, some);
  });
}

template <typename T>
[[gnu::flatten]] static void tree_sum(const float* partials, std::size_t count, std::size_t stride,
                                      const std::byte* bias, std::byte* out, std::size_t n) {
  add_tree<T>([=](std::size_t p) { return partials + p * stride; }, count, bias, out, n);
}

template <typename T>
[[gnu::flatten]] static void tree_sum_of_pieces(const std::byte* const* partials, std::size_t count, std::size_t begin,
                                                const std::byte* bias, std::byte* out, std::size_t n) {
  add_tree<T>([=](std::size_t p) { return reinterpret_cast<const float*>(partials[p]) + begin; }, count, bias, out, n);
}

extern const TreeSumKernels tree_sum_kernels_table = {.tree_sum = STRATA_BY_DTYPE(tree_sum),
                                                      .tree_sum_of_pieces = STRATA_BY_DTYPE(tree_sum_of_pieces)};

// Codes under one scale have only 16 values, which are rounded first and then looked up. For 16-bit types, one register
// holds the low bytes of all values and another the high bytes.
template <typename T>
STRATA_LANES void look_up(const T* values, const std::uint8_t* codes, T* out) {
  if constexpr (sizeof(T) == 2) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
    const __m256i low_bytes = _mm256_and_si256(all, _mm256_set1_epi16(0xff)), high_bytes = _mm256_srli_epi16(all, 8);
    const auto packed = [](__m256i words) {
      return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    };
    const __m128i low = packed(low_bytes), high = packed(high_bytes), half = _mm_set1_epi8(0xf);
    for (std::size_t i = 0; i < kScaleBlock / 2; i += 16) {
      const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
      const __m128i even = _mm_and_si128(_mm_srli_epi16(pairs, 4), half), odd = _mm_and_si128(pairs, half);
      auto* to = reinterpret_cast<__m128i*>(out + 2 * i);
      for (const __m128i at : {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)}) {
        const __m128i l = _mm_shuffle_epi8(low, at), h = _mm_shuffle_epi8(high, at);
        _mm_storeu_si128(to++, _mm_unpacklo_epi8(l, h));
        _mm_storeu_si128(to++, _mm_unpackhi_epi8(l, h));
      }
    }
  } else {
    for (std::size_t i = 0; i < kScaleBlock / 2; ++i) {
      out[2 * i] = values[codes[i] >> 4];
      out[2 * i + 1] = values[codes[i] & 0xf];
    }
  }
}

template <typename T>
[[gnu::flatten]] static void nf4(const float* scales, const std::byte* codes, std::byte* out) {
  const auto* c = reinterpret_cast<const std::uint8_t*>(codes);
  auto* o = reinterpret_cast<T*>(out);
  for (std::size_t block = 0; block < kNf4Scales; ++block) {
    T values[kLanes];
    store(values, load(kNf4Values, Full{}) * broadcast(scales[block]), Full{});
    look_up(values, c + block * (kScaleBlock / 2), o + block * kScaleBlock);
  }
}

extern const UnpackKernels unpack_kernels_table = {.nf4 = STRATA_BY_DTYPE(nf4)};

}  // namespace strata::device::cpu::STRATA_ISA
