#include "device/cuda/matmul.h"

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

const ProductShape kShape{48, 40, 24, false, true, 24, 24, 40, DType::bf16, DType::bf16, true, false};

AlgorithmTable table_of(const std::string& plain, const std::string& gelu) {
  AlgorithmTable table("a machine");
  table.set({kShape, Epilogue::none, 16}, plain);
  table.set({kShape, Epilogue::gelu_tanh, 16}, gelu);
  return table;
}

struct Both {
  Array a = Array::random(DType::bf16, 48 * 24, 1), b = Array::random(DType::bf16, 40 * 24, 2),
        bias = Array::random(DType::bf16, 40, 3), c = Array(DType::bf16, 48 * 40), activated = c;

  explicit Both(const AlgorithmTable* table) {
    const Product product(kDevice, kShape);
    Array workspace(DType::fp32, product.workspace_bytes(1) / sizeof(float) + 1);
    testing::in_lane(1, [&](Lane& lane) {
      if (table) use_algorithms(lane, std::make_shared<AlgorithmTable>(*table));
      product.run(lane, a.view(), b.view(), bias.view(), c.view(), workspace.view(), Epilogue::gelu_tanh,
                  activated.view());
      product.run(lane, a.view(), b.view(), bias.view(), c.view(), workspace.view());
    });
  }
};

// The pre-activation is the rounded sum; the activation may be that of the sum before it was rounded.
TEST(Matmul, EpilogueGivesBothOutputs) {
  Both fused(nullptr);
  const AlgorithmTable apart = [] {
    AlgorithmTable table("a machine");
    table.set({kShape, Epilogue::gelu_tanh, 16}, std::string(AlgorithmTable::kApart));
    return table;
  }();
  Both plain(&apart);
  EXPECT_EQ(fused.c, plain.c);
  bool differ = false;
  for (std::size_t i = 0; i < fused.activated.size(); ++i) {
    const float x = plain.activated[i];
    // Rounded before or after: half a unit of bf16 in x, which gelu's slope, at most 1.13, passes on, and another.
    EXPECT_NEAR(fused.activated[i], x, 0x1p-8f * (std::abs(plain.c[i]) * 1.13f + std::abs(x)) + 1e-6f) << i;
    differ |= fused.activated[i] != x;
  }
  EXPECT_TRUE(differ) << "nothing was fused";
}

TEST(Matmul, SearchFillsATableThatRunsUse) {
  const std::string machine = algorithm_machine(kDevice);
  EXPECT_EQ(machine, "Fake GPU (1 SMs), cuBLASLt 13.0.0");
  AlgorithmTable table(machine);
  ProductShape sum{8, 8, 8, true, false, 8, 8, 8, DType::fp16, DType::fp32, false, true};
  const std::vector shapes{kShape, sum, kShape};
  search_algorithms(kDevice, shapes, table);
  EXPECT_EQ(table.size(), 3u);  // the second has no bias: no epilogue
  const AlgorithmTable sent = AlgorithmTable::parse(table.text(), "rank 0");
  ASSERT_NE(sent.find({kShape, Epilogue::none, 16}), nullptr);
  EXPECT_EQ(sent.find({kShape, Epilogue::none, 16})->size(), sizeof(cublasLtMatmulAlgo_t));
  const std::string before = table.text();
  search_algorithms(kDevice, shapes, table);
  EXPECT_EQ(table.text(), before) << "what is known is not sought again";
  Both with(&sent), without(nullptr);
  EXPECT_EQ(with.c, without.c);
}

TEST(Matmul, EntryThatTheLibraryRefusesIsSaid) {
  const AlgorithmTable damaged = table_of(std::string(64, 'x'), std::string(AlgorithmTable::kApart));
  EXPECT_FAILURE(Both{&damaged}, Exit::usage,
                 AllOf(HasSubstr("cuBLASLt refuses"), HasSubstr("a machine"), HasSubstr("48x40x24")));
}

}  // namespace
}  // namespace strata::device
