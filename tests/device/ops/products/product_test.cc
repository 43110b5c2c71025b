#include "device/ops/products/product.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "device/ops/activation.h"
#include "tests/device/arrays.h"

namespace strata::device {

void PrintTo(const ProductShape& s, std::ostream* out) {
  *out << s.m << " x " << s.n << " x " << s.k << (s.transpose_a ? " A^T" : " A") << (s.transpose_b ? " B^T" : " B")
       << " strides " << s.lda << " " << s.ldb << " " << s.ldc << " " << name_of(s.in) << " to " << name_of(s.out)
       << (s.bias ? " bias" : "") << (s.accumulate ? " accumulate" : "") << " epilogue "
       << static_cast<int>(s.epilogue);
}

namespace {

using testing::Array;

// The number of elements of a matrix whose rows are `row` elements apart; the last row is not padded.
std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

ProductShape dense(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b, DType in,
                   DType out) {
  return {m, n, k, transpose_a, transpose_b, transpose_a ? m : k, transpose_b ? k : n, n, in, out};
}

// A product of random operands of exactly the required size.
struct Multiplication {
  ProductShape shape;
  Array a, b, bias, before, c;
  Array second;  // the epilogue's output or input

  explicit Multiplication(const ProductShape& s)
      : shape(s),
        a(Array::random(s.in, s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), 1)),
        b(Array::random(s.in, s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), 2)),
        bias(Array::random(s.in, s.bias ? static_cast<std::size_t>(s.n) : 0, 3)),
        before(Array::random(s.out, extent(s.m, s.n, s.ldc), 4)),
        c(before),
        second(Array::random(s.out, before.size(), 5)) {}

  void run(int threads) {
    c = before;
    const bool reads = is_gelu_gradient(shape.epilogue);
    run_on(threads, a.view(), b.view(), shape.bias ? bias.view() : View{}, c.view(),
           reads || shape.epilogue == Epilogue::none ? View{} : second.view(), reads ? second.view() : View{});
  }

  void run_on(int threads, ConstView left, ConstView right, ConstView shift, View out, View epilogue_out = {},
              ConstView epilogue_in = {}) const {
    const Product product(testing::kDevice, shape);
    Array workspace(DType::fp32, product.workspace_bytes(threads) / sizeof(float) + 1);
    std::memset(workspace.data(), 0xff, workspace.view().bytes());  // NaN: nothing may rely on what it held
    testing::in_lane(threads, [&](Lane& lane) {
      product.run(lane, left, right, shift, out, workspace.view(), epilogue_out, epilogue_in);
    });
  }

  // An element of op(A) op(B) (+ bias) (+ C) in doubles, and a bound on the error of rounded fp32 sums.
  struct Sum {
    double value, bound;
  };
  Sum reference(std::int64_t i, std::int64_t j) const {
    const ProductShape& s = shape;
    const double unit = s.out == DType::fp32 ? 0x1p-24 : s.out == DType::bf16 ? 0x1p-9 : 0x1p-12;
    double sum = 0, size = 0;  // the sum, and that of the magnitudes
    const auto add = [&](double x) { sum += x, size += std::abs(x); };
    for (std::int64_t p = 0; p < s.k; ++p)
      add(double{a[static_cast<std::size_t>(s.transpose_a ? p * s.lda + i : i * s.lda + p)]} *
          double{b[static_cast<std::size_t>(s.transpose_b ? j * s.ldb + p : p * s.ldb + j)]});
    if (s.bias) add(double{bias[static_cast<std::size_t>(j)]});
    if (s.accumulate) add(before[static_cast<std::size_t>(i * s.ldc + j)]);
    // k + 2 fp32 operations (Higham 2002, section 3.1), then one rounding of C, whose fp16 numbers below 2^-14 are
    // 2^-24 apart.
    const double subnormal = s.out == DType::fp16 ? 0x1p-25 : 0;
    return {sum, static_cast<double>(s.k + 2) * 0x1p-24 * size + 2 * unit * std::abs(sum) + subnormal};
  }

  // Compares every element of C with its reference. Elements between the rows must be unchanged.
  void expect_reference() const {
    SCOPED_TRACE(::testing::PrintToString(shape));
    const ProductShape& s = shape;
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.ldc && (i + 1 < s.m || j < s.n); ++j) {
        const auto place = static_cast<std::size_t>(i * s.ldc + j);
        if (j >= s.n) {
          ASSERT_EQ(c[place], before[place]) << "between rows, at " << i << ", " << j;
          continue;
        }
        const Sum want = reference(i, j);
        ASSERT_NEAR(c[place], want.value, want.bound) << "at " << i << ", " << j;
      }
    }
  }
};

// Tests every allowed combination of the flags for one size.
std::vector<ProductShape> variants(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<ProductShape> all;
  for (const DType in : testing::kDTypes)
    for (int flags = 0; flags < 32; ++flags) {
      ProductShape s = dense(m, n, k, (flags & 1) != 0, (flags & 2) != 0, in, (flags & 4) != 0 ? DType::fp32 : in);
      s.bias = (flags & 8) != 0;
      s.accumulate = (flags & 16) != 0;
      if (in == DType::fp32 && (flags & 4) != 0) continue;  // the same again
      all.push_back(s);
    }
  return all;
}

void expect_references(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const ProductShape& s : variants(m, n, k)) {
    Multiplication x(s);
    x.run(2);
    x.expect_reference();
  }
}

TEST(Product, AgreesWithReferenceForAllVariants) {
  expect_references(45, 70, 33);
}
TEST(Product, AgreesWithReferenceForDimensionsOfOne) {
  expect_references(1, 1, 1);
  expect_references(1, 40, 3);
  expect_references(40, 1, 3);
  expect_references(40, 3, 1);
}
// A row or column of a wider matrix, or of its last tile, whose elements are not adjacent.
TEST(Product, AgreesWithReferenceForDimensionsOfOneWithStrides) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1},   {1, 1, 3},   {1, 40, 1},    {40, 1, 1},
                                        {1, 40, 33}, {40, 1, 33}, {257, 385, 20}};
  for (const auto& [m, n, k] : kSizes)
    for (ProductShape s : variants(m, n, k)) {
      s.lda += 5;
      s.ldb += 3;
      s.ldc += 7;
      Multiplication x(s);
      x.run(1);
      x.expect_reference();
    }
}
// There is more than one tile in each direction and more than two blocks of k, none of them complete.
TEST(Product, AgreesWithReferenceAcrossTiles) {
  expect_references(300, 420, 10);
}
TEST(Product, AgreesWithReferenceForDeepSums) {
  expect_references(20, 30, 1200);
}

RC_GTEST_PROP(Product, AgreesWithReferenceForAnyShape, ()) {
  const auto size = [] { return *rc::gen::inRange<std::int64_t>(1, 90); };
  const auto gap = [] { return *rc::gen::element<std::int64_t>(0, 0, 1, 7, 64); };
  const auto choices = variants(size(), size(), size());
  ProductShape s = choices[*rc::gen::inRange<std::size_t>(0, choices.size())];
  s.lda += gap();
  s.ldb += gap();
  s.ldc += gap();
  Multiplication x(s);
  x.run(1);
  x.expect_reference();
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Product, BitsDoNotDependOnThreads) {
  for (const DType in : testing::kDTypes) {
    for (int flags = 0; flags < 8; ++flags) {
      ProductShape s = dense(530, 400, 600, (flags & 1) != 0, (flags & 2) != 0, in, in);
      if ((flags & 4) != 0) s.out = DType::fp32, s.accumulate = true;
      Multiplication once(s);
      once.run(1);
      for (const int threads : {1, 2, 3, 5}) {
        Multiplication again(s);
        again.run(threads);
        EXPECT_EQ(once.c, again.c) << ::testing::PrintToString(s) << " on " << threads;
      }
    }
  }
}

// The rows are apart, and what lies between them must stay unchanged.
ProductShape with_epilogue(DType dtype, Epilogue epilogue) {
  ProductShape s = dense(300, 210, 40, epilogue == Epilogue::sums_a, false, dtype, dtype);
  s.lda += 2;
  s.ldb += 1;
  s.ldc += 3;
  s.epilogue = epilogue;
  return s;
}
Multiplication without_epilogue(ProductShape s) {
  s.epilogue = Epilogue::none;
  Multiplication plain(s);
  plain.run(1);
  return plain;
}

TEST(Product, GeluUsesTheRoundedOutput) {
  for (const DType dtype : testing::kDTypes)
    for (const Epilogue epilogue : {Epilogue::gelu_tanh, Epilogue::gelu_erf}) {
      ProductShape s = with_epilogue(dtype, epilogue);
      s.bias = true;
      Multiplication x(s);
      Array want = x.second;
      x.run(3);
      EXPECT_EQ(x.c, without_epilogue(s).c) << "the input of gelu stays";
      const Activation gelu = epilogue == Epilogue::gelu_tanh ? Activation::gelu_tanh : Activation::gelu_erf;
      testing::in_lane(1, [&](Lane& lane) {
        for (std::int64_t i = 0; i < s.m; ++i) {
          const auto offset = static_cast<std::size_t>(i * s.ldc), count = static_cast<std::size_t>(s.n);
          activation_forward(lane, gelu, x.c.view().sub(offset, count), want.view().sub(offset, count));
        }
      });
      EXPECT_EQ(x.second, want) << name_of(dtype);
    }
}

TEST(Product, GeluGradientUsesTheRoundedOutput) {
  for (const DType dtype : testing::kDTypes)
    for (const Epilogue epilogue : {Epilogue::gelu_tanh_gradient, Epilogue::gelu_erf_gradient}) {
      const ProductShape s = with_epilogue(dtype, epilogue);
      Multiplication x(s);
      const Array second = x.second;
      x.run(3);
      EXPECT_EQ(x.second, second) << "the input of gelu stays";
      Array want = without_epilogue(s).c;
      const Activation gelu = epilogue == Epilogue::gelu_tanh_gradient ? Activation::gelu_tanh : Activation::gelu_erf;
      testing::in_lane(1, [&](Lane& lane) {
        for (std::int64_t i = 0; i < s.m; ++i) {
          const View row = want.view().sub(static_cast<std::size_t>(i * s.ldc), static_cast<std::size_t>(s.n));
          activation_backward(lane, gelu, row, x.second.view().sub(static_cast<std::size_t>(i * s.ldc), row.size), row);
        }
      });
      EXPECT_EQ(x.c, want) << name_of(dtype);
    }
}

double gelu(double x, bool erf) {
  if (erf) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Aligned as required by a library that fuses the epilogue, which may then use the sum before it is rounded. The slopes
// of gelu and of its gradient are at most 1.13.
TEST(Product, AlignedGeluAgreesWithReference) {
  constexpr double kStep = 1e-5;
  for (const DType dtype : testing::kDTypes)
    for (const Epilogue epilogue :
         {Epilogue::gelu_tanh, Epilogue::gelu_tanh_gradient, Epilogue::gelu_erf, Epilogue::gelu_erf_gradient}) {
      ProductShape s = dense(96, 64, 48, false, true, dtype, dtype);
      s.bias = is_gelu(epilogue);
      s.epilogue = epilogue;
      const bool erf = epilogue == Epilogue::gelu_erf || epilogue == Epilogue::gelu_erf_gradient;
      Multiplication x(s);
      const Array input = x.second;
      x.run(1);
      if (s.bias) x.expect_reference();
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) {
          const auto place = static_cast<std::size_t>(i * s.ldc + j);
          const Multiplication::Sum sum = x.reference(i, j);
          const double at = input[place], slope = (gelu(at + kStep, erf) - gelu(at - kStep, erf)) / (2 * kStep);
          const double want = s.bias ? gelu(sum.value, erf) : sum.value * slope, size = std::abs(sum.value);
          ASSERT_NEAR(s.bias ? x.second[place] : x.c[place], want,
                      1.13 * sum.bound + testing::tolerance(dtype, want, 2 * size, 16))
              << name_of(dtype) << " at " << i << ", " << j;
        }
    }
}

TEST(Product, SumsOfAnOperandAreItsColumnSums) {
  for (const DType dtype : testing::kDTypes)
    for (const Epilogue epilogue : {Epilogue::sums_a, Epilogue::sums_b}) {
      const ProductShape s = with_epilogue(dtype, epilogue);
      Multiplication x(s);
      const Array before = x.second;
      x.run(2);
      x.expect_reference();
      const bool first = epilogue == Epilogue::sums_a;
      const auto count = static_cast<std::size_t>(first ? s.m : s.n);
      const Array& operand = first ? x.a : x.b;
      for (std::size_t j = 0; j < x.second.size(); ++j) {
        if (j >= count) {
          ASSERT_EQ(x.second[j], before[j]) << "after the sums";
          continue;
        }
        double sum = 0, size = 0;
        for (std::int64_t p = 0; p < s.k; ++p) {
          const double term = operand[static_cast<std::size_t>(p * (first ? s.lda : s.ldb)) + j];
          sum += term, size += std::abs(term);
        }
        ASSERT_NEAR(x.second[j], sum, testing::tolerance(dtype, sum, size, static_cast<double>(s.k))) << j;
      }
    }
}

// fp16 is multiplied in fp32: intermediate sums beyond 65,504 do no harm, and final ones are infinite.
TEST(Product, HalfPrecisionSumsAreWide) {
  Multiplication x(dense(1, 2, 3, false, false, DType::fp16, DType::fp16));
  const float a[] = {60000, 60000, -60000}, b[] = {1, 1, 1, 1, 1, 0};
  for (std::size_t i = 0; i < 3; ++i) x.a.set(i, a[i]);
  for (std::size_t i = 0; i < 6; ++i) x.b.set(i, b[i]);
  x.run(1);
  EXPECT_EQ(x.c[0], to_float(from_float<fp16>(60000)));
  EXPECT_EQ(x.c[1], std::numeric_limits<float>::infinity());
}

TEST(Product, ServesLanesOfDifferentWidth) {
  Multiplication x(dense(300, 300, 20, false, false, DType::fp32, DType::fp32));
  const Product product(testing::kDevice, x.shape);
  Array workspace(DType::fp32, product.workspace_bytes(4)), first = x.before;
  for (const int threads : {1, 4, 2}) {
    testing::in_lane(threads,
                     [&](Lane& lane) { product.run(lane, x.a.view(), x.b.view(), {}, x.c.view(), workspace.view()); });
    if (threads == 1) first = x.c;
    EXPECT_EQ(first, x.c);
  }
}

// The library generates its kernels at run time, and no sanitizer checks them. So these bytes are followed by a
// protected page.
class Guarded {
 public:
  explicit Guarded(Array& from) : from_(from), pages_((from.view().bytes() + page() - 1) / page() * page()) {
    void* const p = mmap(nullptr, pages_ + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    first_ = static_cast<std::byte*>(p);
    mprotect(first_ + pages_, page(), PROT_NONE);
    if (from.size() > 0) std::memcpy(view().data, from.data(), from.view().bytes());
  }
  ~Guarded() { munmap(first_, pages_ + page()); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  View view() const { return {first_ + pages_ - from_.view().bytes(), from_.size(), from_.dtype()}; }

 private:
  static std::size_t page() { return static_cast<std::size_t>(getpagesize()); }
  Array& from_;
  std::size_t pages_;
  std::byte* first_;
};

TEST(Product, TouchesNothingBeyondItsOperands) {
  if (testing::kDevice.kind == Kind::cuda) GTEST_SKIP() << "a GPU does not address pages with guards";
  for (const std::int64_t m : {1, 5, 33}) {
    for (const std::int64_t n : {1, 17, 63}) {
      for (const std::int64_t k : {1, 19, 34}) {
        for (ProductShape s : variants(m, n, k)) {
          s.lda += 1;  // the last row is shorter than the stride
          s.ldb += 2;
          s.ldc += 3;
          Multiplication x(s);
          const Guarded a(x.a), b(x.b), bias(x.bias), c(x.before);
          x.run_on(1, a.view(), b.view(), s.bias ? bias.view() : View{}, c.view());
          x.run(1);
          EXPECT_EQ(std::memcmp(c.view().data, x.c.data(), c.view().bytes()), 0) << ::testing::PrintToString(s);
        }
      }
    }
  }
}

// Without native bf16 every narrow operand is widened. The instruction set is chosen once per process.
TEST(ProductDeathTest, AgreesWithReferenceOnTheLowerInstructionSet) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "only for the CPU's kernels";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto run = [] {
    setenv("STRATA_CPU_ISA", "avx2", 1);
    expect_references(45, 70, 33);
    expect_references(20, 30, 1200);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace strata::device
