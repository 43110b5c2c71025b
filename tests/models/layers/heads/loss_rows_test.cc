#include <gtest/gtest.h>

#include <vector>

#include "models/layers/heads/head_parts.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Buffer;
using testing::Doubles;

constexpr std::size_t kLossRowsTokens = 7, kWidth = 5;

struct Rows {
  explicit Rows(std::vector<std::uint32_t> taken) : named(std::move(taken)) {
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i) - 11);
    context.batch.loss_rows = named.data();
  }

  std::vector<std::uint32_t> named;
  RunShape run{.batch = 1, .seq = kLossRowsTokens, .dtype = DType::fp32, .threads = 1, .loss_rows = named.size()};
  LossRows rows{run, kWidth};
  Buffer x{kLossRowsTokens * kWidth, DType::fp32}, selected{named.size() * kWidth, DType::fp32},
      dx{kLossRowsTokens * kWidth, DType::fp32}, scratch{rows.scratch_bytes() / sizeof(float), DType::fp32};
  Context context{};
  AbortToken abort;
  device::Lane lane{"test", 1, 0, abort};
};

TEST(LossRowsTest, TakesTheRowsThatTheBatchNames) {
  Rows r({3, 0, 6});
  EXPECT_TRUE(r.rows.selects());
  EXPECT_EQ(r.rows.count(), 3u);
  EXPECT_EQ(r.rows.select(r.lane, r.context, r.x.view(), r.selected.view()).data, r.selected.view().data);
  r.lane.synchronize();
  for (std::size_t i = 0; i < r.named.size(); ++i)
    EXPECT_EQ(r.selected.doubles(i * kWidth, kWidth), r.x.doubles(r.named[i] * kWidth, kWidth)) << i;
}

// A row that was not taken gets no gradient. A row that is named twice, as leftover rows are, gets both.
TEST(LossRowsTest, GradientsGoBackToTheirRows) {
  Rows r({3, 0, 6, 0});
  const Buffer& d = r.selected;
  for (std::size_t i = 0; i < d.size(); ++i) r.selected.set(i, static_cast<double>(i + 1));
  r.rows.put_back(r.lane, r.context, d.view(), r.dx.view(), r.scratch.view());
  r.lane.synchronize();
  Doubles want(kLossRowsTokens * kWidth);
  for (std::size_t i = 0; i < r.named.size(); ++i)
    for (std::size_t e = 0; e < kWidth; ++e) want[r.named[i] * kWidth + e] += d[i * kWidth + e];
  EXPECT_EQ(r.dx.doubles(), want);
  EXPECT_TRUE(r.scratch.guard_is_whole());
  EXPECT_TRUE(r.dx.guard_is_whole());
}

TEST(LossRowsTest, TakingAllRowsMovesNone) {
  Rows r({});
  EXPECT_FALSE(r.rows.selects());
  EXPECT_EQ(r.rows.count(), kLossRowsTokens);
  EXPECT_EQ(r.rows.scratch_bytes(), 0u);
  EXPECT_EQ(r.rows.select(r.lane, r.context, r.x.view(), {}).data, r.x.view().data);
}

}  // namespace
}  // namespace strata::models
