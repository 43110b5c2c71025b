#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "device/lane.h"
#include "device/view.h"

// Shared by the tests of operations: arrays of any dtype, lanes, and gradients by finite differences.
namespace strata::device::testing {

// The twin that this test program tests.
#ifndef STRATA_TEST_KIND
#define STRATA_TEST_KIND cpu
#endif
inline constexpr Device kDevice{.kind = Kind::STRATA_TEST_KIND};

inline const DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};

class Array {
 public:
  Array(DType dtype, std::size_t size) : dtype_(dtype), size_(size), bytes_(size * size_of(dtype)) {}
  // Uniform in (-scale, scale).
  static Array random(DType dtype, std::size_t size, unsigned seed, float scale = 1.0f) {
    Array a(dtype, size);
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> uniform(-scale, scale);
    for (std::size_t i = 0; i < size; ++i) a.set(i, uniform(engine));
    return a;
  }

  View view() { return {bytes_.data(), size_, dtype_}; }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  float* floats() { return view().as<float>(); }
  std::size_t size() const { return size_; }
  DType dtype() const { return dtype_; }
  float operator[](std::size_t i) const {
    return visit(dtype_, [&](auto zero) {
      std::memcpy(&zero, bytes_.data() + i * sizeof(zero), sizeof(zero));
      return to_float(zero);
    });
  }
  void set(std::size_t i, float x) {
    visit(dtype_, [&](auto zero) {
      const auto stored = from_float<decltype(zero)>(x);
      std::memcpy(bytes_.data() + i * sizeof(stored), &stored, sizeof(stored));
    });
  }
  std::vector<double> doubles(std::size_t begin, std::size_t count) const {
    std::vector<double> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = (*this)[begin + i];
    return out;
  }
  friend bool operator==(const Array& a, const Array& b) { return a.bytes_ == b.bytes_; }

 private:
  DType dtype_;
  std::size_t size_;
  std::vector<std::byte> bytes_;
};

// Runs f(lane) in a fresh lane and waits for it.
template <typename F>
void in_lane(int threads, F&& f, Device device = kDevice) {
  AbortToken abort;
  Lane lane("test", threads, 0, abort, device);
  f(lane);
  lane.synchronize();
}

// run(threads) returns results that must have the same bits for any number of threads.
template <typename Run>
void expect_same_bits_on_any_threads(Run&& run) {
  const std::vector<Array> one = run(1), three = run(3);
  ASSERT_EQ(one.size(), three.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i] == three[i]) << "output " << i;
}

// run(device) returns what it computed in lanes of `device`: kDevice must give the CPU's bits.
template <typename Run>
void expect_bits_of_the_cpu(Run&& run) {
  const std::vector<Array> cpu = run(Device{}), twin = run(kDevice);
  ASSERT_EQ(cpu.size(), twin.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(cpu[i] == twin[i]) << "output " << i;
}

// run(table) returns arrays; both instruction sets' tables must give the same bits.
template <typename Table, typename Run>
void expect_same_bits_on_both_isas(const Table& avx2, const Table& avx512, Run&& run) {
  if (kDevice.kind != Kind::cpu) GTEST_SKIP() << "only for the CPU's kernels";
  if (!__builtin_cpu_supports("avx512bw")) GTEST_SKIP() << "this processor has no AVX-512";
  const std::vector<Array> a = run(avx2), b = run(avx512);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] == b[i]) << "output " << i;
}

// Half a unit in the last place of the stored result, plus what fp32 arithmetic on values of size `scale` may lose.
inline double tolerance(DType dtype, double reference, double scale, double fp32_units = 8) {
  const double half_ulp = dtype == DType::fp32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double smallest = dtype == DType::fp16 ? 0x1p-25 : 0;  // half of the smallest subnormal half
  return std::abs(reference) * half_ulp * 1.001 + smallest + scale * fp32_units * 0x1p-24;
}

// The gradient of f at x by central differences, in fp64. Exact to about 1e-9 if f and x are of size 1.
inline std::vector<double> gradient_of(const std::function<double(const std::vector<double>&)>& f,
                                       std::vector<double> x) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], h = 1e-5;
    x[i] = at + h;
    const double above = f(x);
    x[i] = at - h;
    gradient[i] = (above - f(x)) / (2 * h);
    x[i] = at;
  }
  return gradient;
}

}  // namespace strata::device::testing
