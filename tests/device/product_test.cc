#include "device/ops/product.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "device/abort.h"
#include "device/ops/activation.h"

namespace strata::device {

void PrintTo(const ProductShape& s, std::ostream* out) {
  *out << s.m << " x " << s.n << " x " << s.k << (s.transpose_a ? " A^T" : " A") << (s.transpose_b ? " B^T" : " B")
       << " strides " << s.lda << " " << s.ldb << " " << s.ldc << " " << name_of(s.in) << " to " << name_of(s.out)
       << (s.bias ? " bias" : "") << (s.accumulate ? " accumulate" : "");
}

namespace {

double at(const std::vector<std::byte>& bytes, DType dtype, std::size_t i) {
  return visit(dtype,
               [&](auto zero) { return double{to_float(reinterpret_cast<const decltype(zero)*>(bytes.data())[i])}; });
}

std::vector<std::byte> random_bytes(std::size_t size, DType dtype, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(size * size_of(dtype));
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < size; ++i) reinterpret_cast<T*>(bytes.data())[i] = from_float<T>(normal(generator));
  });
  return bytes;
}

// Elements of a matrix of `rows` rows that lie `row` apart: the last one is not padded.
std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

ProductShape dense(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b, DType in,
                   DType out) {
  return {m, n, k, transpose_a, transpose_b, transpose_a ? m : k, transpose_b ? k : n, n, in, out};
}

// One product on random operands that are exactly as large as they must be (the address sanitizer sees what is read
// beyond them).
struct Multiplication {
  ProductShape shape;
  std::vector<std::byte> a, b, bias, before, c, activated;

  explicit Multiplication(const ProductShape& s, std::uint32_t seed = 1)
      : shape(s),
        a(random_bytes(s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), s.in, seed)),
        b(random_bytes(s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), s.in, seed + 1)),
        bias(random_bytes(s.bias ? static_cast<std::size_t>(s.n) : 0, s.in, seed + 2)),
        before(random_bytes(extent(s.m, s.n, s.ldc), s.out, seed + 3)) {}

  void run(int threads, Epilogue epilogue = Epilogue::none) {
    c = before;
    activated = epilogue == Epilogue::none ? std::vector<std::byte>{} : before;
    const Product product(shape);
    std::vector<std::byte> workspace(product.workspace_bytes(threads), std::byte{0xff});
    AbortToken token;
    Lane lane("test", threads, 0, token);
    product.run(lane, view(a, shape.in), view(b, shape.in), view(bias, shape.in), view(c, shape.out),
                {workspace.data(), workspace.size() / sizeof(float), DType::fp32}, epilogue,
                view(activated, shape.out));
    lane.synchronize();
  }

  // Every element against a sum of doubles; what lies between the rows of C must be untouched.
  void expect_reference() const {
    SCOPED_TRACE(::testing::PrintToString(shape));
    const ProductShape& s = shape;
    const double unit = s.out == DType::fp32 ? 0x1p-24 : s.out == DType::bf16 ? 0x1p-9 : 0x1p-12;
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.ldc && (i + 1 < s.m || j < s.n); ++j) {
        const auto place = static_cast<std::size_t>(i * s.ldc + j);
        const double got = at(c, s.out, place), old = at(before, s.out, place);
        if (j >= s.n) {
          ASSERT_EQ(got, old) << "between rows, at " << i << ", " << j;
          continue;
        }
        double sum = 0, size = 0;  // the sum, and that of the magnitudes
        const auto add = [&](double x) { sum += x, size += std::abs(x); };
        for (std::int64_t p = 0; p < s.k; ++p)
          add(at(a, s.in, static_cast<std::size_t>(s.transpose_a ? p * s.lda + i : i * s.lda + p)) *
              at(b, s.in, static_cast<std::size_t>(s.transpose_b ? j * s.ldb + p : p * s.ldb + j)));
        if (s.bias) add(at(bias, s.in, static_cast<std::size_t>(j)));
        if (s.accumulate) add(old);
        // k + 2 fp32 operations in any order (Higham 2002, section 3.1), then one rounding of C.
        const double bound = static_cast<double>(s.k + 2) * 0x1p-24 * size + 2 * unit * std::abs(sum);
        ASSERT_NEAR(got, sum, bound) << "at " << i << ", " << j;
      }
    }
  }

 private:
  static View view(std::vector<std::byte>& bytes, DType dtype) {
    return {bytes.empty() ? nullptr : bytes.data(), bytes.size() / size_of(dtype), dtype};
  }
};

const std::vector<DType> kDTypes = {DType::fp32, DType::bf16, DType::fp16};

// Every combination of the flags that is allowed, for one size.
std::vector<ProductShape> variants(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<ProductShape> all;
  for (const DType in : kDTypes)
    for (int flags = 0; flags < 32; ++flags) {
      ProductShape s = dense(m, n, k, (flags & 1) != 0, (flags & 2) != 0, in, (flags & 4) != 0 ? DType::fp32 : in);
      s.bias = (flags & 8) != 0;
      s.accumulate = (flags & 16) != 0;
      if (s.accumulate && s.out != DType::fp32) continue;
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
TEST(Product, AgreesWithReferenceForOneOfAnything) {
  expect_references(1, 1, 1);
  expect_references(1, 40, 3);
  expect_references(40, 1, 3);
  expect_references(40, 3, 1);
}
// More than one tile each way, and more than two blocks of k, none of them whole.
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
  for (const DType in : kDTypes) {
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

TEST(Product, EpilogueIsActivationOfRoundedOutput) {
  for (const DType dtype : kDTypes) {
    ProductShape s = dense(300, 210, 40, false, false, dtype, dtype);
    s.ldc += 3;
    s.bias = true;
    Multiplication x(s), plain(s);
    x.run(3, Epilogue::gelu_tanh);
    plain.run(1);
    EXPECT_EQ(x.c, plain.c) << "the pre-activation stays";
    std::vector<std::byte> want = x.before;
    AbortToken token;
    Lane lane("test", 1, 0, token);
    for (std::int64_t i = 0; i < s.m; ++i) {
      const auto offset = static_cast<std::size_t>(i * s.ldc), count = static_cast<std::size_t>(s.n);
      gelu_forward(lane, ConstView{x.c.data(), x.c.size() / size_of(dtype), dtype}.sub(offset, count),
                   View{want.data(), want.size() / size_of(dtype), dtype}.sub(offset, count));
    }
    lane.synchronize();
    EXPECT_EQ(x.activated, want) << name_of(dtype);
  }
}

// fp16 is multiplied in fp32: sums beyond 65,504 on the way do no harm, at the end they are infinite.
TEST(Product, HalfPrecisionSumsAreWide) {
  ProductShape s = dense(1, 2, 3, false, false, DType::fp16, DType::fp16);
  Multiplication x(s);
  const float a[] = {60000, 60000, -60000}, b[] = {1, 1, 1, 1, 1, 0};
  for (std::size_t i = 0; i < 3; ++i) reinterpret_cast<fp16*>(x.a.data())[i] = from_float<fp16>(a[i]);
  for (std::size_t i = 0; i < 6; ++i) reinterpret_cast<fp16*>(x.b.data())[i] = from_float<fp16>(b[i]);
  x.run(1);
  EXPECT_EQ(at(x.c, DType::fp16, 0), to_float(from_float<fp16>(60000)));
  EXPECT_EQ(at(x.c, DType::fp16, 1), std::numeric_limits<double>::infinity());
}

TEST(Product, ServesLanesOfDifferentWidth) {
  const ProductShape s = dense(300, 300, 20, false, false, DType::fp32, DType::fp32);
  const Product product(s);
  const Multiplication x(s);
  std::vector<std::byte> workspace(product.workspace_bytes(4)), first;
  for (const int threads : {1, 4, 2}) {
    std::vector<std::byte> c(x.before.size());
    AbortToken token;
    Lane lane("test", threads, 0, token);
    product.run(lane, {x.a.data(), x.a.size() / 4, s.in}, {x.b.data(), x.b.size() / 4, s.in}, {},
                {c.data(), c.size() / 4, s.out}, {workspace.data(), workspace.size() / 4, DType::fp32});
    lane.synchronize();
    if (first.empty()) first = c;
    EXPECT_EQ(first, c);
  }
}

}  // namespace
}  // namespace strata::device
