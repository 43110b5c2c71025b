#include <gtest/gtest.h>

#include "models/layers/heads/head_parts.h"

namespace strata::models {
namespace {

using device::Kind;

// Chunks are as even as complete rows allow, so that the last one is not a small remainder.
TEST(TileProducts, ChunksAreEven) {
  constexpr std::size_t kWords = std::size_t{1} << 17;  // 128 rows of 512 KiB in 64 MiB
  EXPECT_EQ(chunk_rows(100, kWords, Kind::cpu), 100u);
  EXPECT_EQ(chunk_rows(129, kWords, Kind::cpu), 65u);
  EXPECT_EQ(chunk_rows(1024, kWords, Kind::cpu), 128u);
  EXPECT_EQ(chunk_rows(1024, 64 * kWords, Kind::cpu), 64u) << "never fewer: the weights are read once per chunk";
}

// A GPU's products are computed in tiles of 256 rows.
TEST(TileProducts, GpuChunksAreCompleteTiles) {
  constexpr std::size_t kWords = std::size_t{1} << 17;  // 4096 rows in 2 GiB
  EXPECT_EQ(chunk_rows(4097, kWords, Kind::cuda), 2304u);
  EXPECT_EQ(chunk_rows(100, kWords, Kind::cuda), 100u);
}

TEST(TileProducts, RowsAvoidPowersOfTwo) {
  for (const std::size_t columns : {1024u, 4096u, 50257u}) {
    EXPECT_GE(logit_stride(columns), columns);
    EXPECT_EQ(logit_stride(columns) % 16, 0u);
    EXPECT_NE(logit_stride(columns) & (logit_stride(columns) - 1), 0u) << columns;
  }
}

}  // namespace
}  // namespace strata::models
