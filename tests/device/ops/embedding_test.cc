#include "device/ops/embedding.h"

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

std::vector<std::uint32_t> indices_below(std::size_t rows, std::uint32_t limit) {
  std::mt19937 engine(3);
  std::vector<std::uint32_t> out(rows);
  // Half of the tokens are one word, as in text, and some words never occur.
  for (auto& i : out) i = engine() % 2 ? 2 : static_cast<std::uint32_t>(engine() % limit) / 2 * 2 % limit;
  return out;
}

TEST(Embedding, ForwardAddsPositions) {
  for (const DType dtype : kDTypes)
    for (const std::size_t width : {std::size_t{1}, std::size_t{16}, std::size_t{77}}) {
      const std::size_t rows = 1003, vocab = 131;
      Array table = Array::random(dtype, vocab * width, 1), places = Array::random(dtype, 40 * width, 2);
      const auto tokens = indices_below(rows, vocab);
      std::vector<std::uint32_t> positions(rows);
      for (std::size_t i = 0; i < rows; ++i) positions[i] = static_cast<std::uint32_t>(i % 40);
      Array with(dtype, rows * width), without = with;
      in_lane(3, [&](Lane& lane) {
        const auto word = [&](Array& out, std::size_t first, std::size_t count) {
          embedding_forward(lane, rows, width, tokens.data(), {first, count, vocab},
                            table.view().sub(first * width, count * width), out.view());
        };
        word(without, 0, vocab);
        for (std::size_t first = 0; first < vocab; first += 50)
          word(with, first, std::min(vocab - first, std::size_t{50}));
        embedding_add(lane, rows, width, positions.data(), places.view(), with.view());
      });
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < width; ++j) {
          const float word = table[tokens[i] * width + j], place = places[positions[i] * width + j];
          Array sum(dtype, 1);
          sum.set(0, word + place);
          ASSERT_EQ(with[i * width + j], sum[0]) << name_of(dtype);
          ASSERT_EQ(without[i * width + j], word) << name_of(dtype);
        }
    }
}

// The result is exactly the fp32 sum in ascending i, rounded once. Rows without an index become zero, whatever they
// contained.
TEST(Embedding, BackwardSumsInOrder) {
  for (const DType dtype : kDTypes)
    for (const DType out_dtype : {dtype, DType::fp32})
      for (const std::size_t width : {std::size_t{1}, std::size_t{64}, std::size_t{150}}) {
        const std::size_t rows = 301, vocab = 203;
        Array dout = Array::random(dtype, rows * width, 1);
        const auto indices = indices_below(rows, vocab);
        const auto run = [&](int threads) {
          Array dtable = Array::random(out_dtype, vocab * width, 9);
          Array workspace = Array::random(DType::fp32, embedding_backward_workspace(rows, vocab) / 4, 8);
          in_lane(threads, [&](Lane& lane) {
            embedding_backward(lane, rows, width, indices.data(), {0, vocab, vocab}, dout.view(), dtable.view(),
                               workspace.view());
          });
          return std::vector<Array>{dtable};
        };
        testing::expect_same_bits_on_any_threads(run);
        Array tiled(out_dtype, vocab * width), scratch(DType::fp32, rows + vocab);
        in_lane(2, [&](Lane& lane) {
          for (std::size_t first = 0; first < vocab; first += 100) {
            const std::size_t count = std::min(vocab - first, std::size_t{100});
            embedding_backward(lane, rows, width, indices.data(), {first, count, vocab}, dout.view(),
                               tiled.view().sub(first * width, count * width), scratch.view());
          }
        });
        EXPECT_TRUE(tiled == run(1)[0]) << "by tiles";
        std::vector<float> sums(vocab * width, 0.0f);
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < width; ++j) sums[indices[i] * width + j] += dout[i * width + j];
        Array expected(out_dtype, vocab * width);
        for (std::size_t i = 0; i < sums.size(); ++i) expected.set(i, sums[i]);
        EXPECT_TRUE(run(1)[0] == expected) << name_of(dtype) << " width " << width;
      }
}

// Tables with more words than one block sorts, with fewer positions than words, and with many positions of one word.
TEST(Embedding, BackwardOfManyWords) {
  for (const std::size_t rows : {std::size_t{2}, std::size_t{30}, std::size_t{700}}) {
    const std::size_t width = 4, vocab = 9001;
    Array dout = Array::random(DType::bf16, rows * width, 1), dtable(DType::fp32, vocab * width);
    Array workspace(DType::fp32, embedding_backward_workspace(rows, vocab) / 4);
    const auto indices = indices_below(rows, vocab);
    in_lane(1, [&](Lane& lane) {
      embedding_backward(lane, rows, width, indices.data(), {0, vocab, vocab}, dout.view(), dtable.view(),
                         workspace.view());
    });
    Array expected(DType::fp32, vocab * width);
    for (std::size_t i = 0; i < rows * width; ++i) expected.floats()[indices[i / width] * width + i % width] += dout[i];
    EXPECT_TRUE(dtable == expected) << rows << " positions";
  }
}

// A vocabulary of several tiles and more positions than are sorted at a time, half of them of one word.
TEST(Embedding, BackwardByTilesOfManyPositions) {
  constexpr std::size_t kTile = 32768;
  for (const auto& [rows, vocab] : {std::pair<std::size_t, std::size_t>{500, 33000}, {66100, 70000}}) {
    const std::size_t width = 2;
    Array dout = Array::random(DType::bf16, rows * width, 1), dtable(DType::fp32, vocab * width);
    Array workspace(DType::fp32, embedding_backward_workspace(rows, kTile) / 4);
    const auto indices = indices_below(rows, static_cast<std::uint32_t>(vocab));
    in_lane(2, [&](Lane& lane) {
      for (std::size_t first = 0; first < vocab; first += kTile) {
        const std::size_t count = std::min(vocab - first, kTile);
        embedding_backward(lane, rows, width, indices.data(), {first, count, vocab}, dout.view(),
                           dtable.view().sub(first * width, count * width), workspace.view());
      }
    });
    Array expected(DType::fp32, vocab * width);
    for (std::size_t i = 0; i < rows * width; ++i) expected.floats()[indices[i / width] * width + i % width] += dout[i];
    EXPECT_TRUE(dtable == expected) << rows << " positions";
  }
}

TEST(EmbeddingDeathTest, IndexOutsideTheTable) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "a trap would end the GPU's context for all tests";
  Array dout(DType::fp32, 2), dtable(DType::fp32, 4), workspace(DType::fp32, 64);
  const std::uint32_t indices[] = {1, 4};
  EXPECT_DEATH(
      in_lane(1,
              [&](Lane& lane) {
                embedding_backward(lane, 2, 1, indices, {0, 4, 4}, dout.view(), dtable.view(), workspace.view());
              }),
      "4 vs 4");
}

TEST(EmbeddingKernels, SameBitsOnBothInstructionSets) {
  const std::size_t width = 64 + 37;
  const std::uint32_t which[] = {3, 0, 4, 4};
  testing::expect_same_bits_on_both_isas(cpu::avx2::embedding_kernels_table, cpu::avx512::embedding_kernels_table,
                                         [&](const cpu::EmbeddingKernels& k) {
                                           std::vector<Array> out;
                                           for (std::size_t t = 0; t < 3; ++t) {
                                             const Array rows = Array::random(kDTypes[t], 5 * width, 1);
                                             Array sum(kDTypes[t], width), wide(DType::fp32, width);
                                             k.sum_rows[t][t](rows.data(), which, 4, sum.data(), width);
                                             k.sum_rows[t][0](rows.data(), which, 4, wide.data(), width);
                                             out.insert(out.end(), {sum, wide});
                                           }
                                           return out;
                                         });
}

}  // namespace
}  // namespace strata::device
