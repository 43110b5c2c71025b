#include <cfloat>
#include <cstring>
#include <type_traits>

#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/moments16.h"
#include "device/cpu/kernels/lanes/philox16.h"
#include "device/cpu/kernels/tables.h"
#include "device/numeric/storage_format.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void read(const std::byte* first, const std::byte* second, float* gradient, std::size_t n) {
  const auto *a = reinterpret_cast<const T*>(first), *b = reinterpret_cast<const T*>(second);
  if (b)
    for16(n, [&](std::size_t i, auto some) {
      store(gradient + i, (zeros() + load(a + i, some)) + load(b + i, some), some);
    });
  else
    for16(n, [&](std::size_t i, auto some) { store(gradient + i, zeros() + load(a + i, some), some); });
}

template <typename T>
[[gnu::flatten]] static void write(const float* master, std::byte* parameter, std::size_t n) {
  auto* to = reinterpret_cast<T*>(parameter);
  for16(n, [&](std::size_t i, auto some) { store(to + i, load(master + i, some), some); });
}

// The update rules, for sixteen elements' master and moments.
static constexpr auto kSpread = [](float x) { return broadcast(x); };
struct AdamW {
  static constexpr int kMoments = 2;
  STRATA_LANES void apply(F32x16 g, F32x16& p, F32x16& m, F32x16& v, const UpdateFactors& f) {
    rounding::adamw_update(g, p, m, v, f, kSpread);
  }
};
struct Lion {
  static constexpr int kMoments = 1;
  STRATA_LANES void apply(F32x16 g, F32x16& p, F32x16& m, F32x16&, const UpdateFactors& f) {
    rounding::lion_update(g, p, m, f, kSpread);
  }
};
struct Sgd {
  static constexpr int kMoments = 1;
  STRATA_LANES void apply(F32x16 g, F32x16& p, F32x16& m, F32x16&, const UpdateFactors& f) {
    rounding::sgd_update(g, p, m, f, kSpread);
  }
};

// A moment in each format. kFirst: it is the first moment, otherwise the second. open() begins a block of n elements,
// load() and keep() take sixteen of them at a time, and close() ends the block.
template <bool kFirst, typename T>
class PlainMoment {
 public:
  PlainMoment(std::byte* data, float*) : block_(reinterpret_cast<T*>(data)) {}
  void open(std::size_t) {}
  template <typename Some>
  F32x16 load(std::size_t i, Some some) const {
    return STRATA_ISA::load(block_ + i, some);
  }
  template <typename Some>
  void keep(std::size_t i, F32x16 x, const std::uint32_t* words, Some some) {
    if constexpr (sizeof(T) == sizeof(float))
      store(block_ + i, x, some);
    else
      store_stochastically<kFirst ? Bits::low : Bits::high>(block_ + i, x, words, some);
  }
  void close() { block_ += kMomentBlock; }

 private:
  T* block_;
};
template <bool kFirst>
using Fp32Moment = PlainMoment<kFirst, float>;
template <bool kFirst>
using Bf16Moment = PlainMoment<kFirst, bf16>;

template <bool kFirst>
class Block8Moment {
 public:
  // values: room for a block.
  Block8Moment(std::byte* data, float* values) : block_(data), values_(values) {}
  void open(std::size_t n) {
    std::memcpy(&scale_, block_, sizeof scale_);
    largest_ = zeros();
    if (n < kMomentBlock) std::memset(values_, 0, kMomentBlock * sizeof(float));
  }
  template <typename Some>
  F32x16 load(std::size_t i, Some) const {
    return decode16<kFirst>(codes() + i) * broadcast(scale_);
  }
  // Elements past a tensor's end have no gradient: their moments are zeros.
  template <typename Some>
  void keep(std::size_t i, F32x16 x, const std::uint32_t*, Some) {
    largest_ = max(largest_, kFirst ? magnitude(x) : x);
    store(values_ + i, x);
  }
  void close() {
    float scale = maximum(largest_);
    if (!(scale <= FLT_MAX)) {  // an infinity must not turn the others into NaN
      scale = FLT_MAX;
      for (std::size_t i = 0; i < kMomentBlock; i += kLanes)
        store(values_ + i, max(min(STRATA_ISA::load(values_ + i), broadcast(scale)), broadcast(-scale)));
    }
    const bool tiny = scale < FLT_MIN;  // its inverse would overflow
    scale = tiny ? 0.0f : scale;
    const F32x16 inverse = broadcast(tiny ? 0.0f : 1.0f / scale);
    std::memcpy(block_, &scale, sizeof scale);
    for (std::size_t i = 0; i < kMomentBlock; i += kLanes)
      encode16<kFirst>(STRATA_ISA::load(values_ + i) * inverse, codes() + i);
    block_ += sizeof scale + kMomentBlock;
  }

 private:
  std::uint8_t* codes() const { return reinterpret_cast<std::uint8_t*>(block_) + sizeof(float); }
  std::byte* block_;
  float scale_ = 0;
  F32x16 largest_{};
  float* values_;  // not an array: stores to one would keep the other members out of registers
};

// For rules without a second moment.
struct NoMoment {
  NoMoment(std::byte*, float*) {}
  void open(std::size_t) {}
  template <typename Some>
  F32x16 load(std::size_t, Some) const {
    return zeros();
  }
  template <typename Some>
  void keep(std::size_t, F32x16, const std::uint32_t*, Some) {}
  void close() {}
};

template <typename Rule, template <bool> typename Moment>
[[gnu::flatten]] static void update(const UpdateElements& a, std::size_t n, const UpdateFactors& factors) {
  constexpr bool kDraws = std::is_same_v<Moment<true>, Bf16Moment<true>>;
  using Second = std::conditional_t<Rule::kMoments == 2, Moment<false>, NoMoment>;
  const UpdateFactors f = factors;  // copies that no store can alias
  const RandomStream stream = a.stream;
  alignas(64) float gradient[kMomentBlock], values1[kMomentBlock], values2[kMomentBlock];
  Moment<true> moment1(a.moment1, values1);
  Second moment2(a.moment2, values2);
  alignas(64) std::uint32_t words[32];
  for (std::size_t block = 0; block < n; block += kMomentBlock) {
    const std::size_t size = n - block < kMomentBlock ? n - block : kMomentBlock;
    a.read(a.first + block * a.element_bytes, a.second ? a.second + block * a.element_bytes : nullptr, gradient, size);
    float* master = a.master + block;
    moment1.open(size);
    moment2.open(size);
    for16(size, [&](std::size_t i, auto some) {
      if (kDraws && i % 32 == 0) random_words32(stream, (a.begin + block + i) / 4, words);
      F32x16 p = load(master + i, some), m = moment1.load(i, some), v = moment2.load(i, some);
      Rule::apply(load(gradient + i, some), p, m, v, f);
      store(master + i, p, some);
      moment1.keep(i, m, words + i % 32, some);
      moment2.keep(i, v, words + i % 32, some);
    });
    moment1.close();
    moment2.close();
    if (a.parameter) a.write(master, a.parameter + block * a.parameter_bytes, size);
  }
}

extern const OptimizerKernels optimizer_kernels_table = {
    .read = STRATA_BY_DTYPE(read),
    .write = STRATA_BY_DTYPE(write),
    .update = {{update<AdamW, Fp32Moment>, update<AdamW, Bf16Moment>, update<AdamW, Block8Moment>},
               {update<Lion, Fp32Moment>, update<Lion, Bf16Moment>, update<Lion, Block8Moment>},
               {update<Sgd, Fp32Moment>, update<Sgd, Bf16Moment>, update<Sgd, Block8Moment>}},
};

}  // namespace strata::device::cpu::STRATA_ISA
