#include "device/ops/norm.h"

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

constexpr float kEps = 1e-5f;

struct NormCase {
  bool centred;
  NormShape shape;
};
// Cases: odd widths and strides, several vectors per row, a single row, many blocks of rows.
const NormCase kCases[] = {
    {true, {3, 1, 1, 1, 1, kEps}},       {true, {5, 37, 1, 40, 39, kEps}},      {true, {70, 129, 1, 129, 129, kEps}},
    {true, {600, 64, 1, 64, 64, kEps}},  {false, {1, 16, 1, 16, 16, kEps}},     {false, {5, 37, 1, 40, 39, kEps}},
    {false, {33, 24, 3, 100, 80, kEps}}, {false, {600, 64, 2, 128, 130, kEps}}, {true, {33, 17, 2, 60, 34, kEps}},
};

struct Reference {
  double mean = 0, rstd;
  std::vector<double> y;
};
Reference normalize(bool centred, const std::vector<double>& x, const std::vector<double>& gain,
                    const std::vector<double>& bias) {
  Reference r;
  const double n = static_cast<double>(x.size());
  if (centred)
    for (const double v : x) r.mean += v / n;
  double variance = 0;
  for (const double v : x) variance += (v - r.mean) * (v - r.mean) / n;
  r.rstd = 1 / std::sqrt(variance + static_cast<double>(kEps));
  for (std::size_t i = 0; i < x.size(); ++i)
    r.y.push_back((x[i] - r.mean) * r.rstd * gain[i] + (centred ? bias[i] : 0.0));
  return r;
}

class Norm : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  const NormCase& c = kCases[std::get<0>(GetParam())];
  const NormShape& s = c.shape;
  const DType dtype = std::get<1>(GetParam());
  const std::size_t vectors = s.rows * s.groups;
  Array x = Array::random(dtype, s.rows*s.x_stride, 1, 2.0f), gain = Array::random(dtype, s.width, 2),
        bias = Array::random(dtype, s.width, 3), dy = Array::random(dtype, s.rows*s.y_stride, 4),
        residual = Array::random(dtype, s.rows*s.x_stride, 5);

  struct Forward {
    Array y, mean, rstd;
  };
  Forward forward(int threads) {
    Forward f{Array::random(dtype, s.rows * s.y_stride, 6), Array(DType::fp32, vectors), Array(DType::fp32, vectors)};
    in_lane(threads, [&](Lane& lane) {
      if (c.centred)
        layernorm_forward(lane, s, x.view(), gain.view(), bias.view(), f.y.view(), f.mean.view(), f.rstd.view());
      else
        rmsnorm_forward(lane, s, x.view(), gain.view(), f.y.view(), f.rstd.view());
    });
    return f;
  }

  struct Backward {
    Array dx, dgain, dbias;
  };
  // Runs in place over the residual's gradient if there is one, as in models.
  Backward backward(int threads, bool with_residual) {
    Forward f = forward(threads);
    Backward b{residual, Array(DType::fp32, s.width), Array(dtype, s.width)};
    Array workspace(DType::fp32, norm_backward_workspace(s) / 4);
    const ConstView base = with_residual ? b.dx.view() : View{};
    in_lane(threads, [&](Lane& lane) {
      if (c.centred)
        layernorm_backward(lane, s, dy.view(), x.view(), gain.view(), f.mean.view(), f.rstd.view(), base, b.dx.view(),
                           b.dgain.view(), b.dbias.view(), workspace.view());
      else
        rmsnorm_backward(lane, s, dy.view(), x.view(), gain.view(), f.rstd.view(), base, b.dx.view(), b.dgain.view(),
                         workspace.view());
    });
    return b;
  }
  std::size_t x_at(std::size_t v) const { return v / s.groups * s.x_stride + v % s.groups * s.width; }
  std::size_t y_at(std::size_t v) const { return v / s.groups * s.y_stride + v % s.groups * s.width; }
};

TEST_P(Norm, Forward) {
  const Forward f = forward(1);
  const auto g = gain.doubles(0, s.width), b = bias.doubles(0, s.width);
  for (std::size_t v = 0; v < vectors; ++v) {
    const Reference r = normalize(c.centred, x.doubles(x_at(v), s.width), g, b);
    ASSERT_NEAR(f.mean[v], r.mean, 1e-6);  // 0 for both if there is none
    // A vector of one element has variance 0 after centring.
    ASSERT_NEAR(f.rstd[v], r.rstd, 2e-6 * r.rstd);
    for (std::size_t i = 0; i < s.width; ++i)
      ASSERT_NEAR(f.y[y_at(v) + i], r.y[i], tolerance(dtype, r.y[i], 8.0)) << "vector " << v << " element " << i;
  }
}

TEST_P(Norm, BackwardAgreesWithDifferences) {
  const auto g = gain.doubles(0, s.width), b = bias.doubles(0, s.width);
  std::vector<double> dgain(s.width, 0.0), dbias(s.width, 0.0), size(s.width, 0.0);
  for (const bool with_residual : {true, false}) {
    const Backward out = backward(1, with_residual);
    std::ranges::fill(dgain, 0.0);
    std::ranges::fill(dbias, 0.0);
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto weights = dy.doubles(y_at(v), s.width), at = x.doubles(x_at(v), s.width);
      const auto dx = testing::gradient_of(
          [&](const std::vector<double>& z) {
            const Reference r = normalize(c.centred, z, g, b);
            double sum = 0;
            for (std::size_t i = 0; i < s.width; ++i) sum += weights[i] * r.y[i];
            return sum;
          },
          at);
      const Reference r = normalize(c.centred, at, g, b);
      for (std::size_t i = 0; i < s.width; ++i) {
        const double expected = dx[i] + (with_residual ? static_cast<double>(residual[x_at(v) + i]) : 0.0);
        // Width 1, centred: rstd is 316, and differences of a constant leave rounding errors.
        ASSERT_NEAR(out.dx[x_at(v) + i], expected, tolerance(dtype, expected, 4 * std::max(1.0, r.rstd)) + 1e-6)
            << "vector " << v << " element " << i;
        const double hat = (at[i] - r.mean) * r.rstd;
        dgain[i] += weights[i] * hat;
        dbias[i] += weights[i];
        size[i] += std::abs(weights[i] * hat) + std::abs(weights[i]);
      }
    }
    for (std::size_t i = 0; i < s.width; ++i) {
      ASSERT_NEAR(out.dgain[i], dgain[i], tolerance(DType::fp32, dgain[i], size[i]));
      ASSERT_NEAR(out.dbias[i], c.centred ? dbias[i] : 0.0, tolerance(dtype, dbias[i], size[i]));
    }
  }
}

TEST_P(Norm, LeavesGapsAlone) {
  const Forward f = forward(1);
  const Backward b = backward(1, false);
  const Array before = Array::random(dtype, s.rows * s.y_stride, 6);
  for (std::size_t r = 0; r < s.rows; ++r) {
    for (std::size_t i = s.groups * s.width; i < s.y_stride; ++i)
      ASSERT_EQ(f.y[r * s.y_stride + i], before[r * s.y_stride + i]);
    for (std::size_t i = s.groups * s.width; i < s.x_stride; ++i)
      ASSERT_EQ(b.dx[r * s.x_stride + i], residual[r * s.x_stride + i]);
  }
}

TEST_P(Norm, SameBitsOnAnyThreads) {
  testing::expect_same_bits_on_any_threads([&](int threads) {
    const Forward f = forward(threads);
    const Backward b = backward(threads, true);
    return std::vector<Array>{f.y, f.mean, f.rstd, b.dx, b.dgain, b.dbias};
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(std::size(kCases))),
                                            ::testing::ValuesIn(kDTypes)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

// Compares vectors as wide as those of models, and too wide for a GPU's registers, with the formulas in fp64. Bits do
// not depend on where in memory they start.
struct Wide {
  bool centred;
  std::size_t rows, groups, width;
};
const Wide kWide[] = {{true, 70, 1, 768},   {false, 70, 1, 768}, {false, 40, 3, 128},  {true, 3, 1, 1600},
                      {false, 2, 1, 4100},  {true, 3, 1, 8192},  {false, 2, 1, 16400}, {true, 2, 1, 16390},
                      {false, 40, 3, 1600}, {true, 3, 1, 5120},  {true, 2, 1, 33000}};

class WideNorm : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  const Wide& c = kWide[std::get<0>(GetParam())];
  const DType dtype = std::get<1>(GetParam());
  const NormShape s{c.rows, c.width, c.groups, c.groups* c.width + 16, c.groups* c.width + 32, kEps};
  struct Outputs {
    Array y, mean, rstd, dx, dgain, dbias;
  };
  // Every operand starts at element `offset` of its memory.
  Outputs run(std::size_t offset) const {
    const std::size_t xs = s.rows * s.x_stride, ys = s.rows * s.y_stride, vectors = s.rows * s.groups;
    const auto moved = [&](std::size_t size, unsigned seed) {
      Array from = Array::random(dtype, size, seed, 2.0f), to(dtype, size + offset);
      std::memcpy(to.data() + offset * size_of(dtype), from.data(), size * size_of(dtype));
      return to;
    };
    const auto back = [&](const Array& from) {
      Array to(dtype, from.size() - offset);
      std::memcpy(to.data(), from.data() + offset * size_of(dtype), to.size() * size_of(dtype));
      return to;
    };
    Array x = moved(xs, 1), gain = moved(s.width, 2), bias = moved(s.width, 3), dy = moved(ys, 4), dx = moved(xs, 5);
    Array y(dtype, ys + offset), mean(DType::fp32, vectors), rstd(DType::fp32, vectors), dgain(DType::fp32, s.width),
        dbias(DType::fp32, s.width), workspace(DType::fp32, norm_backward_workspace(s) / 4);
    const auto at = [&](Array& a) { return a.view().sub(offset, a.size() - offset); };
    in_lane(2, [&](Lane& lane) {
      if (c.centred) {
        layernorm_forward(lane, s, at(x), at(gain), at(bias), at(y), mean.view(), rstd.view());
        layernorm_backward(lane, s, at(dy), at(x), at(gain), mean.view(), rstd.view(), at(dx), at(dx), dgain.view(),
                           dbias.view(), workspace.view());
      } else {
        rmsnorm_forward(lane, s, at(x), at(gain), at(y), rstd.view());
        rmsnorm_backward(lane, s, at(dy), at(x), at(gain), rstd.view(), at(dx), at(dx), dgain.view(), workspace.view());
      }
    });
    return {back(y), mean, rstd, back(dx), dgain, dbias};
  }
};

TEST_P(WideNorm, MatchesTheFormula) {
  const Outputs out = run(0);
  const std::size_t xs = s.rows * s.x_stride;
  const Array x = Array::random(dtype, xs, 1, 2.0f), gain = Array::random(dtype, s.width, 2, 2.0f),
              bias = Array::random(dtype, s.width, 3, 2.0f), residual = Array::random(dtype, xs, 5, 2.0f),
              dy = Array::random(dtype, s.rows * s.y_stride, 4, 2.0f);
  const auto g = gain.doubles(0, s.width), b = bias.doubles(0, s.width);
  std::vector<double> dgain(s.width, 0.0), dbias(s.width, 0.0), size(s.width, 0.0);
  for (std::size_t v = 0; v < s.rows * s.groups; ++v) {
    const std::size_t x_at = v / s.groups * s.x_stride + v % s.groups * s.width,
                      y_at = v / s.groups * s.y_stride + v % s.groups * s.width;
    const auto d = dy.doubles(y_at, s.width), at = x.doubles(x_at, s.width);
    const Reference r = normalize(c.centred, at, g, b);
    double e_mean = 0, eh_mean = 0;
    for (std::size_t i = 0; i < s.width; ++i) {
      const double e = d[i] * g[i], h = (at[i] - r.mean) * r.rstd;
      if (c.centred) e_mean += e / static_cast<double>(s.width);
      eh_mean += e * h / static_cast<double>(s.width);
      dgain[i] += d[i] * h;
      dbias[i] += c.centred ? d[i] : 0.0;
      size[i] += std::abs(d[i] * h) + std::abs(d[i]);
    }
    for (std::size_t i = 0; i < s.width; ++i) {
      ASSERT_NEAR(out.y[y_at + i], r.y[i], tolerance(dtype, r.y[i], 8.0)) << "vector " << v << " element " << i;
      const double h = (at[i] - r.mean) * r.rstd;
      const double dx = static_cast<double>(residual[x_at + i]) + r.rstd * (d[i] * g[i] - e_mean - h * eh_mean);
      ASSERT_NEAR(out.dx[x_at + i], dx, tolerance(dtype, dx, 16.0)) << "vector " << v << " element " << i;
    }
  }
  for (std::size_t i = 0; i < s.width; ++i) {
    ASSERT_NEAR(out.dgain[i], dgain[i], tolerance(DType::fp32, dgain[i], size[i]));
    ASSERT_NEAR(out.dbias[i], dbias[i], tolerance(DType::fp32, dbias[i], size[i]));
  }
}

TEST_P(WideNorm, SameBitsAtAnyAddress) {
  const Outputs a = run(0), b = run(1);
  EXPECT_TRUE(a.y == b.y && a.mean == b.mean && a.rstd == b.rstd);
  EXPECT_TRUE(a.dx == b.dx);
  EXPECT_TRUE(a.dgain == b.dgain && a.dbias == b.dbias);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WideNorm,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(std::size(kWide))),
                                            ::testing::ValuesIn(kDTypes)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

// A large mean must not cancel the variance away, as E[x^2] - mean^2 would.
TEST(LayerNorm, LargeMean) {
  const NormShape s{1, 512, 1, 512, 512, 0.0f};
  Array x(DType::fp32, 512), gain(DType::fp32, 512), bias(DType::fp32, 512), y(DType::fp32, 512);
  Array mean(DType::fp32, 1), rstd(DType::fp32, 1);
  for (std::size_t i = 0; i < 512; ++i) x.set(i, 10000.0f + (i % 2 ? 1.0f : -1.0f)), gain.set(i, 1.0f);
  in_lane(1, [&](Lane& lane) {
    layernorm_forward(lane, s, x.view(), gain.view(), bias.view(), y.view(), mean.view(), rstd.view());
  });
  EXPECT_EQ(mean[0], 10000.0f);
  EXPECT_NEAR(rstd[0], 1.0, 1e-6);
  EXPECT_NEAR(y[1], 1.0, 1e-6);
}

TEST(NormKernels, SameBitsOnBothInstructionSets) {
  const std::size_t rows = 20, groups = 2, width = 77;
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::norm_kernels_table, cpu::avx512::norm_kernels_table, [&](const cpu::NormKernels& k) {
        std::vector<Array> out;
        for (std::size_t t = 0; t < 3; ++t)
          for (const bool centred : {false, true}) {
            const std::size_t n = rows * groups * width;
            const Array x = Array::random(kDTypes[t], n, 1, 3.0f), gain = Array::random(kDTypes[t], width, 2),
                        bias = Array::random(kDTypes[t], width, 3), dy = Array::random(kDTypes[t], n, 4);
            Array y(kDTypes[t], n), dx(kDTypes[t], n), mean(DType::fp32, rows * groups),
                rstd = mean, dgain(DType::fp32, width), dbias = dgain;
            const std::size_t stride = groups * width;
            const cpu::NormForward f{rows,     groups,      width,       stride,   stride,        kEps,
                                     x.data(), gain.data(), bias.data(), y.data(), mean.floats(), rstd.floats()};
            k.forward[centred][t](f);
            const cpu::NormBackward b{rows,          groups,    width,          stride,        stride,
                                      dy.data(),     x.data(),  gain.data(),    nullptr,       mean.floats(),
                                      rstd.floats(), dx.data(), dgain.floats(), dbias.floats()};
            k.backward[centred][t](b);
            out.insert(out.end(), {y, mean, rstd, dx, dgain, dbias});
          }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
