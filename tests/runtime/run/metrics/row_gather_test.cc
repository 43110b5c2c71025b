#include "runtime/run/metrics/row_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/comm/run_threads.h"
#include "tests/runtime/run/metrics/rank_exchange.h"

namespace strata::runtime {
namespace {

// A label of two words, and two numbers.
using Row = std::pair<std::vector<std::uint32_t>, std::vector<float>>;

// Micro-batch m has m % 4 rows, with consecutive numbers.
std::vector<Row> rows_of(std::uint64_t micro_batch) {
  std::vector<Row> out;
  for (std::uint64_t i = 0; i < micro_batch % 4; ++i) {
    const auto number = static_cast<std::uint32_t>(10 * micro_batch + i);
    out.push_back({{number, ~number}, {static_cast<float>(number) + 0.5f, static_cast<float>(i)}});
  }
  return out;
}

TEST(RowGatherTest, KeepsTheOrderOfMicroBatchesOnAnyNumberOfRanks) {
  constexpr std::uint64_t kMicroBatches = 13;
  std::vector<Row> wanted;
  for (std::uint64_t m = 0; m < kMicroBatches; ++m)
    for (Row& row : rows_of(m)) wanted.push_back(std::move(row));
  for (const int ranks : {1, 2, 3})
    for (const std::size_t rounds : {1, 2, 5, 100})
      comm::run_threads(ranks, [&](comm::World& world) {
        RankExchange exchange(world, 4096 + rounds * 52);
        RowGather gather(exchange.exchange(), 4, 2, 3, rounds);
        std::vector<Row> found;
        const auto take = [&](std::span<const std::uint32_t> label, std::span<const float> said) {
          found.push_back({{label.begin(), label.end()}, {said.begin(), said.end()}});
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

TEST(RowGatherTest, DiscardsRowsOfAnInterruptedEvaluation) {
  comm::run_threads(1, [](comm::World& world) {
    RankExchange exchange(world, 4096);
    RowGather gather(exchange.exchange(), 2, 1, 4, 8);
    std::vector<std::uint32_t> labels;
    const auto take = [&](std::span<const std::uint32_t> label, std::span<const float>) { labels.push_back(label[0]); };
    const auto add = [&](std::uint32_t label) {
      const float said = 0;
      gather.add({&label, 1}, {&said, 1});
    };
    add(1);
    gather.end_round(take);
    add(2);
    gather.clear();
    add(3);
    gather.end_round(take);
    gather.flush(take);
    EXPECT_EQ(labels, std::vector<std::uint32_t>{3});
  });
}

}  // namespace
}  // namespace strata::runtime
