#pragma once
#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/micro_product.h"

// Products by AMX: 16 x 16 sums at a time, over 16 pairs of bf16. TDPBF16PS sums the first and the second elements of
// pairs separately, then adds the two sums to each other and their sum to the result, so its bits differ from those of
// VDPBF16PS and FMA.
namespace strata::device::cpu::STRATA_ISA {

#if defined(__AMX_BF16__)

// A matrix in panels of 16 columns: a tile is 16 consecutive cache lines, which neither collide in the first-level
// cache nor alias. Element (r, c) is at data[c / 16 * panel + r * row + c % 16].
template <typename E>
struct Panels {
  E* data;
  std::size_t panel, row = kLanes;

  [[gnu::always_inline]] Panels from(std::size_t r, std::size_t c) const {
    return {data + c / kLanes * panel + r * row, panel, row};
  }
};
using Factors = Panels<const Pair>;
using Sums = Panels<float>;

// This thread's tile registers: eight, of 16 rows of 64 bytes. oneDNN's kernels configure them again in every call, so
// an object must not live longer than a task.
class TileUnit {
 public:
  [[gnu::always_inline]] TileUnit() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  [[gnu::always_inline]] ~TileUnit() { _tile_release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  // c[m, n] (+)= a[m, k] b[k, n], for multiples of 16; k counts pairs. Without kAdd, the last sums may stay in
  // registers until the next call or flush(): a store waits for its sums to be complete.
  template <bool kAdd>
  void multiply(std::size_t m, std::size_t n, std::size_t k, Factors a, Factors b, Sums c) {
    for (std::size_t x = 0; x < n; x += 2 * kLanes) {
      for (std::size_t y = 0; y < m; y += 2 * kLanes) {
        const bool two_rows = y + kLanes < m, two_columns = x + kLanes < n;
        const Factors left = a.from(y, 0), right = b.from(0, x);
        if (two_rows && two_columns) [[likely]] {
          block<kAdd>(k, left, right, c.from(y, x));
          if (kAdd) flush();  // later, these lines of c would have left the first-level cache
          continue;
        }
        flush();
        if (two_rows)
          edge_block<true, false, kAdd>(k, left, right, c.from(y, x));
        else if (two_columns)
          edge_block<false, true, kAdd>(k, left, right, c.from(y, x));
        else
          edge_block<false, false, kAdd>(k, left, right, c.from(y, x));
      }
    }
  }
  // The same for any m, with all sums stored. The last rows of c go through a block of their own, because the rows
  // after them do not belong to this call. `a` has memory for a multiple of 16 rows.
  template <bool kAdd>
  void multiply_rows(std::size_t m, std::size_t n, std::size_t k, Factors a, Factors b, Sums c) {
    const std::size_t full = m / kLanes * kLanes, rest = m - full;
    multiply<kAdd>(full, n, k, a, b, c);
    flush();
    if (rest == 0) return;
    alignas(64) float last[kLanes * kLanes];
    for (std::size_t x = 0; x < n; x += kLanes) {
      const Sums to = c.from(full, x);
      for (std::size_t r = 0; r < rest; ++r) store(last + r * kLanes, kAdd ? load(to.data + r * to.row) : zeros());
      edge_block<false, false, true>(k, a.from(full, 0), b.from(0, x), {last, 0});
      for (std::size_t r = 0; r < rest; ++r) store(to.data + r * to.row, load(last + r * kLanes));
    }
  }
  // Stores all sums.
  [[gnu::always_inline]] void flush() {
    if (unstored_.data == nullptr) return;
    memory_barrier();
    const std::size_t step = unstored_.row * sizeof(float);
    float* const below = unstored_.data + kLanes * unstored_.row;
    _tile_stored(0, unstored_.data, step);
    _tile_stored(1, unstored_.data + unstored_.panel, step);
    _tile_stored(2, below, step);
    _tile_stored(3, below + unstored_.panel, step);
    memory_barrier();
    unstored_.data = nullptr;
  }

 private:
  // Needed because the compiler does not know that AMX intrinsics read and write memory.
  [[gnu::always_inline]] static void memory_barrier() { __asm__ volatile("" ::: "memory"); }
  static constexpr std::size_t kStep = kLanes * sizeof(Pair);

  // c[32, 32] (+)= a b. Each sum of the block before is stored just before its register is needed.
  template <bool kAdd>
  [[gnu::always_inline]] void block(std::size_t k, Factors a, Factors b, Sums c) {
    const Sums old = unstored_;
    const std::size_t c_step = c.row * sizeof(float), old_step = old.row * sizeof(float);
    float* const below = c.data + kLanes * c.row;
    memory_barrier();
    _tile_loadd(4, a.data, kStep);
    _tile_loadd(6, b.data, kStep);
    if (old.data != nullptr) _tile_stored(0, old.data, old_step);
    if constexpr (kAdd)
      _tile_loadd(0, c.data, c_step);
    else
      _tile_zero(0);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b.data + b.panel, kStep);
    if (old.data != nullptr) _tile_stored(1, old.data + old.panel, old_step);
    if constexpr (kAdd)
      _tile_loadd(1, c.data + c.panel, c_step);
    else
      _tile_zero(1);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a.data + kLanes * kLanes, kStep);
    if (old.data != nullptr) _tile_stored(2, old.data + kLanes * old.row, old_step);
    if constexpr (kAdd)
      _tile_loadd(2, below, c_step);
    else
      _tile_zero(2);
    _tile_dpbf16ps(2, 5, 6);
    if (old.data != nullptr) _tile_stored(3, old.data + kLanes * old.row + old.panel, old_step);
    if constexpr (kAdd)
      _tile_loadd(3, below + c.panel, c_step);
    else
      _tile_zero(3);
    _tile_dpbf16ps(3, 5, 7);
    for (std::size_t i = kLanes; i < k; i += kLanes) {
      a.data += a.panel;
      b.data += kLanes * kLanes;
      _tile_loadd(4, a.data, kStep);
      _tile_loadd(6, b.data, kStep);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b.data + b.panel, kStep);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a.data + kLanes * kLanes, kStep);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    memory_barrier();
    unstored_ = c;
  }

  // c[16 or 32, 16 or 32] (+)= a b, but not 32 x 32. No sums may wait to be stored.
  template <bool kTwoRows, bool kTwoColumns, bool kAdd>
  void edge_block(std::size_t k, Factors a, Factors b, Sums c) {
    const std::size_t c_step = c.row * sizeof(float);
    float* const other = kTwoRows ? c.data + kLanes * c.row : c.data + c.panel;
    memory_barrier();
    if constexpr (kAdd) {
      _tile_loadd(0, c.data, c_step);
      if constexpr (kTwoRows || kTwoColumns) _tile_loadd(1, other, c_step);
    } else {
      _tile_zero(0);
      if constexpr (kTwoRows || kTwoColumns) _tile_zero(1);
    }
    for (std::size_t i = 0; i < k; i += kLanes, a.data += a.panel, b.data += kLanes * kLanes) {
      _tile_loadd(4, a.data, kStep);
      _tile_loadd(6, b.data, kStep);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTwoRows) {
        _tile_loadd(5, a.data + kLanes * kLanes, kStep);
        _tile_dpbf16ps(1, 5, 6);
      } else if constexpr (kTwoColumns) {
        _tile_loadd(7, b.data + b.panel, kStep);
        _tile_dpbf16ps(1, 4, 7);
      }
    }
    _tile_stored(0, c.data, c_step);
    if constexpr (kTwoRows || kTwoColumns) _tile_stored(1, other, c_step);
    memory_barrier();
  }

  Sums unstored_ = {nullptr, 0};  // the block whose sums are in registers 0 to 3; null if there is none
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
