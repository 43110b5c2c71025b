#include "device/cpu/kernels/tables.h"
#include "device/ops/products/product.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

// Lengths around those of vectors and tasks: one, less than a vector, with a tail, many.
const MatvecShape kMatvecShapes[] = {{1, 1}, {5, 37}, {300, 129}, {129, 576}, {7, 5000}};

class Matvec : public ::testing::TestWithParam<std::tuple<DType, bool, bool>> {
 protected:
  const DType dtype = std::get<0>(GetParam());
  const bool input_major = std::get<1>(GetParam()), with_bias = std::get<2>(GetParam());

  static Array run(const MatvecShape& s, Array& w, Array& x, Array* bias, DType out, int threads) {
    Array y(out, s.out);
    in_lane(threads, [&](Lane& lane) {
      matvec(lane, s, w.view(), x.view(), bias ? ConstView(bias->view()) : ConstView{}, y.view());
    });
    return y;
  }
};

TEST_P(Matvec, IsTheProductRoundedOnce) {
  for (MatvecShape s : kMatvecShapes) {
    s.input_major = input_major;
    Array w = Array::random(dtype, s.out * s.in, 1), x = Array::random(dtype, s.in, 2),
          b = Array::random(dtype, s.out, 3);
    for (const DType out : {dtype, DType::fp32}) {
      const Array y = run(s, w, x, with_bias ? &b : nullptr, out, 2);
      for (std::size_t o = 0; o < s.out; ++o) {
        double sum = with_bias ? static_cast<double>(b[o]) : 0.0, size = std::abs(sum);
        for (std::size_t i = 0; i < s.in; ++i) {
          const double term =
              static_cast<double>(w[input_major ? i * s.out + o : o * s.in + i]) * static_cast<double>(x[i]);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(y[o], sum, tolerance(out, sum, size)) << s.out << " x " << s.in << ", output " << o;
      }
    }
  }
}

TEST_P(Matvec, SameBitsOnAnyThreads) {
  const MatvecShape s{1500, 300, input_major};
  Array w = Array::random(dtype, s.out * s.in, 1), x = Array::random(dtype, s.in, 2),
        b = Array::random(dtype, s.out, 3);
  testing::expect_same_bits_on_any_threads(
      [&](int threads) { return std::vector<Array>{run(s, w, x, with_bias ? &b : nullptr, dtype, threads)}; });
}

TEST_P(Matvec, SameBitsOnBothInstructionSets) {
  const std::size_t out = 333, in = 211;
  Array w = Array::random(dtype, out * in, 1), x = Array::random(dtype, in, 2);
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::matvec_kernels_table, cpu::avx512::matvec_kernels_table, [&](const cpu::MatvecKernels& kernels) {
        Array y(DType::fp32, out);
        (input_major ? kernels.columns
                     : kernels.rows)[static_cast<std::size_t>(dtype)]({.outputs = out,
                                                                       .inputs = in,
                                                                       .stride = input_major ? out : in,
                                                                       .w = w.data(),
                                                                       .x = x.data(),
                                                                       .y = y.floats()});
        return std::vector<Array>{y};
      });
}

INSTANTIATE_TEST_SUITE_P(All, Matvec,
                         ::testing::Combine(::testing::ValuesIn(kDTypes), ::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace strata::device
