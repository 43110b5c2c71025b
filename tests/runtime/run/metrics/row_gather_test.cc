#include "runtime/run/metrics/row_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/runtime/run/metrics/rank_exchange.h"

namespace strata::runtime {
namespace {

using Row = std::pair<std::int32_t, std::vector<float>>;

// Micro-batch m has m % 4 rows, numbered through.
std::vector<Row> rows_of(std::uint64_t micro_batch) {
  std::vector<Row> out;
  for (std::uint64_t i = 0; i < micro_batch % 4; ++i) {
    const auto label = static_cast<std::int32_t>(10 * micro_batch + i);
    out.push_back({label, {static_cast<float>(label) + 0.5f, static_cast<float>(i)}});
  }
  return out;
}

TEST(RowGatherTest, BringsRowsInTheOrderOfMicroBatchesOnAnyNumberOfRanks) {
  constexpr std::uint64_t kMicroBatches = 13;
  std::vector<Row> wanted;
  for (std::uint64_t m = 0; m < kMicroBatches; ++m)
    for (Row& row : rows_of(m)) wanted.push_back(std::move(row));
  for (const int ranks : {1, 2, 3})
    for (const std::size_t rounds : {1, 2, 5, 100})
      comm::run_threads(ranks, [&](comm::World& world) {
        RankExchange exchange(world, 4096 + rounds * 40);
        RowGather gather(exchange.exchange(), 3, 3, rounds);
        std::vector<Row> found;
        const auto take = [&](std::int32_t label, std::span<const float> said) {
          found.push_back({label, {said.begin(), said.end()}});
        };
        const auto w = static_cast<std::uint64_t>(world.size());
        const std::uint64_t all = (kMicroBatches + w - 1) / w;
        for (std::uint64_t round = 0; round < all; ++round) {
          const std::uint64_t m = round * w + static_cast<std::uint64_t>(world.rank());
          if (m < kMicroBatches)
            for (const auto& [label, said] : rows_of(m)) gather.add(label, said);
          gather.end_round(take);
        }
        gather.flush(take);
        EXPECT_EQ(found, wanted) << ranks << " ranks, rounds " << rounds;
        EXPECT_EQ(exchange.calls(), static_cast<int>((all + rounds - 1) / rounds)) << "few messages";
        gather.flush(take);
        EXPECT_EQ(found.size(), wanted.size()) << "nothing is left";
      });
}

TEST(RowGatherTest, ForgetsWhatAnEvaluationThatWasStoppedHadAdded) {
  comm::run_threads(1, [](comm::World& world) {
    RankExchange exchange(world, 4096);
    RowGather gather(exchange.exchange(), 2, 4, 8);
    std::vector<std::int32_t> labels;
    const auto take = [&](std::int32_t label, std::span<const float>) { labels.push_back(label); };
    const float said = 0;
    gather.add(1, {&said, 1});
    gather.end_round(take);
    gather.add(2, {&said, 1});
    gather.clear();
    gather.add(3, {&said, 1});
    gather.end_round(take);
    gather.flush(take);
    EXPECT_EQ(labels, std::vector<std::int32_t>{3});
  });
}

}  // namespace
}  // namespace strata::runtime
