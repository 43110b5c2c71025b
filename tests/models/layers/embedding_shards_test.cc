// If ranks share the words of an embedding, the rows that they exchange have the bits of the table, including the sign
// of zeros.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/ops/elementwise.h"
#include "models/layers/embedding.h"
#include "tests/device/arrays.h"

namespace strata::models {
namespace {

using device::DType;
using device::testing::Array;

constexpr std::size_t kWords = 7, kEmbeddingShardsHidden = 5, kTokens = 9;

// A call, or one stretch of it, on the pieces of `table` that the unit has.
Array run_stretch(const RunShape& shape, const Array& table, std::size_t stretch, Array* partial, const Array* total) {
  const auto unit = make_embedding({"wte", "", kWords, 0, kEmbeddingShardsHidden, {0, 0.02f}, 0}, shape);
  Array parameters = Array::random(shape.dtype, unit->size(), 3),
        y = Array::random(shape.dtype, kTokens * kEmbeddingShardsHidden, 4);
  const Parameter& p = unit->parameters()[0];
  for (std::size_t piece = 0; piece < p.pieces(); ++piece)
    for (std::size_t i = 0; i < p.piece_size(piece); ++i)
      parameters.set(p.offset_of(piece) + i, table[p.piece(piece).full_index(i)]);
  const std::vector<std::uint32_t> tokens = {6, 0, 3, 5, 5, 1, 2, 4, 6};
  device::testing::in_lane(1, [&](device::Lane& lane) {
    Context c{};
    c.batch.tokens = tokens.data();
    c.parameters = {parameters.view()};
    c.stretch = stretch;
    if (partial) c.partial = partial->view();
    Array read = total ? *total : Array(shape.dtype, 1);
    if (total) c.total = read.view();
    for (std::size_t part = 0; part < unit->parts().size(); ++part) unit->forward(lane, c, part, {}, y.view(), {});
    lane.synchronize();
  });
  return y;
}

TEST(EmbeddingShards, RowsThatRanksExchangeHaveTheBitsOfTheTable) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    Array table = Array::random(dtype, kWords * kEmbeddingShardsHidden, 1);
    for (std::size_t word = 0; word < kWords; ++word)
      table.set(word * kEmbeddingShardsHidden + word % kEmbeddingShardsHidden, word % 2 ? -0.0f : 0.0f);
    RunShape shape{1, kTokens, dtype, 1};
    const Array whole = run_stretch(shape, table, 0, nullptr, nullptr);
    shape.shards = {0, 4, 4};  // two words each, and one word in the last
    EXPECT_TRUE(run_stretch(shape, table, 0, nullptr, nullptr) == whole)
        << "four shards of one rank, " << name_of(dtype);

    Array partials(DType::fp32, 2 * kTokens * kEmbeddingShardsHidden), total(dtype, kTokens * kEmbeddingShardsHidden);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      shape.shards = {2 * rank, 2, 4};
      Array partial(DType::fp32, kTokens * kEmbeddingShardsHidden);
      (void)run_stretch(shape, table, 0, &partial, nullptr);
      for (std::size_t i = 0; i < partial.size(); ++i) partials.set(rank * partial.size() + i, partial[i]);
    }
    device::testing::in_lane(1, [&](device::Lane& lane) { tree_sum(lane, 2, partials.view(), {}, total.view()); });
    EXPECT_TRUE(run_stretch(shape, table, 1, nullptr, &total) == whole) << "two ranks, " << name_of(dtype);
  }
}

}  // namespace
}  // namespace strata::models
