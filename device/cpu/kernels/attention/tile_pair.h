#pragma once
#include "device/cpu/kernels/attention/attention_call.h"
#include "device/cpu/kernels/attention/operands.h"
#include "device/cpu/kernels/lanes/lanes16.h"

// Shared by forward and backward: which keys a tile of queries sees, and the operands of a dtype.
namespace strata::device::cpu::STRATA_ISA {

static constexpr float kMaskedScore = -__builtin_inff();
// The initial running maximum. It is finite, so that a tile leaves no NaN if a query sees nothing in it.
static constexpr float kLowest = -1e30f;

STRATA_LANES std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

template <typename T>
struct OperandsOf {
  using Type = Floats<T>;
};
#if defined(__AVX512BF16__)
template <>
struct OperandsOf<bf16> {
  using Type = Pairs;
};
#endif
template <typename T>
using Operands = typename OperandsOf<T>::Type;

// to[r, c] = factor * from[r, c] rounded. Rows of `to` are too far apart for the hardware prefetcher.
template <typename T>
static void unpack(const float* from, std::size_t padded, std::size_t rows, std::size_t head_dim, float factor, T* to,
                   std::size_t stride) {
  constexpr std::size_t kAhead = 12;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; r + kAhead < rows && c < head_dim; c += 64 / sizeof(T))
      __builtin_prefetch(to + (r + kAhead) * stride + c, 1);
    for16(head_dim, [&](std::size_t c, auto n) {
      store(to + r * stride + c, load(from + r * padded + c) * broadcast(factor), n);
    });
  }
}

static void fill(float* row, std::size_t begin, std::size_t end, float value) {
  for (std::size_t i = begin; i < end; ++i) row[i] = value;
}

// A tile of queries q .. q + kTile - 1 against one of keys k .. k + keys - 1, rows of one document.
struct TilePair {
  std::size_t q, k, keys, behind, ahead;
  bool some_visible() const { return k < q + kTile + ahead && k + keys + behind > q; }
  bool all_visible() const { return k + keys <= q + ahead + 1 && q + kTile <= k + behind + 1; }
  // True if half of the pair is masked.
  bool diagonal() const { return q == k && ahead == 0; }
};

STRATA_LANES std::size_t clamp_tile(std::size_t beyond, std::size_t origin) {
  return beyond <= origin ? 0 : smaller(beyond - origin, kTile);
}

STRATA_LANES std::uint64_t score_index(const AttentionCall& c, const AttentionRows& rows, std::size_t head,
                                       std::size_t query, std::size_t key) {
  const std::uint64_t in_layer = std::uint64_t{rows.batch} * c.layer_heads + c.first_head + head;
  return (in_layer * c.seq + rows.first + query) * c.seq + rows.first + key;
}

static constexpr std::size_t kWords =
    kTile + kLanes * 2;  // random_range writes whole 32s and may begin three words early

}  // namespace strata::device::cpu::STRATA_ISA
