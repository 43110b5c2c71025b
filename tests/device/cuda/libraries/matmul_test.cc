#include "device/cuda/libraries/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/ops/activation.h"
#include "tests/device/arrays.h"
#include "tests/failure.h"

namespace strata::device {
namespace {

using ::testing::AllOf;
using testing::Array;
using ::testing::HasSubstr;
using testing::kDevice;

ProductShape shape_with(Epilogue epilogue) {
  ProductShape s{48, 40, 24, false, true, 24, 24, 40, DType::bf16, DType::bf16};
  s.bias = is_gelu(epilogue);
  s.epilogue = epilogue;
  // The layouts of a backward pass, in which the summed operand is the gradient of the output.
  if (epilogue == Epilogue::sums_a) s.transpose_a = true, s.lda = 48;
  if (epilogue == Epilogue::sums_a || epilogue == Epilogue::sums_b) s.transpose_b = false, s.ldb = 40;
  return s;
}
const ProductShape kShape = shape_with(Epilogue::gelu_tanh);

AlgorithmTable table_with(const ProductShape& shape, const std::string& algorithm) {
  AlgorithmTable table("a machine");
  table.set({shape, 16}, algorithm);
  return table;
}

// One product with its epilogue; without a table, the library's first proposal.
struct Multiplied {
  Array a = Array::random(DType::bf16, 48 * 24, 1), b = Array::random(DType::bf16, 40 * 24, 2),
        bias = Array::random(DType::bf16, 40, 3), c = Array(DType::bf16, 48 * 40), out = c,
        in = Array::random(DType::bf16, 48 * 40, 4);

  explicit Multiplied(const ProductShape& shape, const AlgorithmTable* table = nullptr) {
    const Product product(kDevice, shape);
    Array workspace(DType::fp32, product.workspace_bytes(1) / sizeof(float) + 1);
    const bool reads = is_gelu_gradient(shape.epilogue);
    const bool writes = shape.epilogue != Epilogue::none && !reads;
    testing::in_lane(1, [&](Lane& lane) {
      if (table) use_algorithms(lane, std::make_shared<AlgorithmTable>(*table));
      product.run(lane, a.view(), b.view(), shape.bias ? bias.view() : View{}, c.view(), workspace.view(),
                  writes ? out.view() : View{}, reads ? in.view() : View{});
    });
  }
};
Multiplied apart(const ProductShape& shape) {
  const AlgorithmTable table = table_with(shape, std::string(AlgorithmTable::kApart));
  return Multiplied(shape, &table);
}

// Fused, gelu may see the sum before it is rounded. Then x differs by half a unit of bf16, which gelu's slope (at most
// 1.13) passes on, and the result by another half.
void expect_one_rounding(const Array& fused, const Array& plain, const Array& x) {
  bool differ = false;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_NEAR(fused[i], plain[i], 0x1p-8f * (std::abs(x[i]) * 1.13f + std::abs(plain[i])) + 1e-6f) << i;
    differ |= fused[i] != plain[i];
  }
  EXPECT_TRUE(differ) << "nothing was fused";
}

// gelu is applied to the rounded sum.
TEST(Matmul, GeluGivesBothOutputs) {
  const Multiplied fused(kShape), plain = apart(kShape);
  EXPECT_EQ(fused.c, plain.c);
  expect_one_rounding(fused.out, plain.out, plain.c);
}

TEST(Matmul, GeluGradientIsFused) {
  const ProductShape shape = shape_with(Epilogue::gelu_tanh_gradient);
  ProductShape bare = shape;
  bare.epilogue = Epilogue::none;
  const Multiplied fused(shape), plain = apart(shape);
  EXPECT_EQ(fused.in, plain.in);
  Multiplied product(bare);
  expect_one_rounding(fused.c, plain.c, product.c);
}

// The fake adds numbers in order, our kernel in blocks: fp32 sums of 24 numbers below 1, rounded to bf16.
TEST(Matmul, SumsOfOperandsAreFused) {
  for (const Epilogue epilogue : {Epilogue::sums_a, Epilogue::sums_b}) {
    const Multiplied fused(shape_with(epilogue)), plain = apart(shape_with(epilogue));
    EXPECT_EQ(fused.c, plain.c);
    const std::size_t count = epilogue == Epilogue::sums_a ? 48 : 40;
    for (std::size_t i = 0; i < fused.out.size(); ++i) {
      const float want = plain.out[i];
      EXPECT_NEAR(fused.out[i], want, i < count ? 0x1p-8f * std::abs(want) + 24 * 24 * 0x1p-24f : 0) << i;
    }
    EXPECT_NE(fused.out[count - 1], 0);
  }
}

TEST(Matmul, SearchFillsATableThatRunsUse) {
  const std::string machine = algorithm_machine(kDevice);
  EXPECT_EQ(machine, "Fake GPU (1 SMs), cuBLASLt 13.0.0");
  AlgorithmTable table(machine);
  const ProductShape sum{8, 8, 8, true, false, 8, 8, 8, DType::fp16, DType::fp32, false, true};
  const ProductShape gradient = shape_with(Epilogue::sums_b);
  const std::vector shapes{kShape, sum, gradient, kShape};
  search_algorithms(kDevice, shapes, table);
  EXPECT_EQ(table.size(), 5u);  // with and without its epilogue, if it has one
  const AlgorithmTable sent = AlgorithmTable::parse(table.text(), "rank 0");
  ASSERT_NE(sent.find({sum, 16}), nullptr);
  EXPECT_EQ(sent.find({sum, 16})->size(), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_NE(sent.find({gradient, 16}), nullptr);
  const std::string before = table.text();
  search_algorithms(kDevice, shapes, table);
  EXPECT_EQ(table.text(), before) << "a known result is not searched again";
  EXPECT_EQ(Multiplied(kShape, &sent).c, Multiplied(kShape).c);

  // Known algorithms stay, so the bits do too. Only missing ones are added.
  ProductShape bare = kShape;
  bare.epilogue = Epilogue::none;
  AlgorithmTable kept(machine);
  std::string other = *sent.find({bare, 16});
  other[other.size() - 1] ^= 1;
  kept.set({bare, 16}, other);
  search_algorithms(kDevice, shapes, kept);
  EXPECT_EQ(kept.size(), 5u);
  EXPECT_EQ(*kept.find({bare, 16}), other);
}

TEST(Matmul, ReportsAnEntryThatTheLibraryRefuses) {
  const AlgorithmTable damaged = table_with(kShape, std::string(64, 'x'));
  EXPECT_FAILURE(Multiplied(kShape, &damaged), Exit::usage,
                 AllOf(HasSubstr("cuBLASLt refuses"), HasSubstr("a machine"), HasSubstr("48x40x24")));
}

}  // namespace
}  // namespace strata::device
