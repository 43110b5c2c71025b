#include "comm/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::comm {
namespace {

using testing::ElementsAre;

TEST(Levels, GroupMembersByNode) {
  const std::vector<int> nodes{0, 0, 1, 1, 2, 2};
  // Members are in the order of pieces, which is not that of ranks.
  const Levels levels({{0, 2, 4, 1, 3, 5}, 4}, nodes);
  EXPECT_THAT(levels.nodes(), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
  EXPECT_EQ(levels.node(), 1);
  EXPECT_EQ(levels.place(), 1);
  EXPECT_TRUE(levels.even() && levels.two());
  EXPECT_TRUE(levels.far(0) && levels.far(5));
  EXPECT_FALSE(levels.far(1) || levels.far(4));
  EXPECT_THAT(Levels(all_ranks(0, 4), std::vector<int>{0, 1, 1, 0}).nodes(),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
}

TEST(Levels, CountsBytesSentToOtherNodes) {
  const std::vector<int> nodes{0, 0, 1, 1, 2, 2};
  const Levels all(all_ranks(0, 6), nodes);
  EXPECT_EQ(all.gathered(10), 20u) << "once to each other node";
  EXPECT_EQ(all.exchanged({10, 0, 60}), 40u);
  EXPECT_EQ(all.exchanged({10, 15, 25}), 5u) << "of the shards of ranks 1 and 2";
  EXPECT_EQ(all.sent_to_all(10), 40u);
  EXPECT_EQ(all.sent(10, 1), 0u);
  EXPECT_EQ(all.sent(10, 2), 10u);
  const Levels uneven(all_ranks(0, 5), nodes);
  EXPECT_FALSE(uneven.even() || uneven.two());
  EXPECT_EQ(uneven.gathered(10), 30u) << "to each rank of other nodes";
  const Levels one_each({{1, 3, 5}, 0}, nodes);
  EXPECT_FALSE(one_each.two());
  EXPECT_EQ(one_each.gathered(10), 20u);
}

TEST(Levels, OneNodeSendsNothingToOtherNodes) {
  for (const std::vector<int>& nodes : {std::vector<int>{}, std::vector<int>{0, 0, 0}}) {
    const Levels levels(all_ranks(1, 3), nodes);
    EXPECT_FALSE(levels.two());
    EXPECT_EQ(levels.gathered(10) + levels.exchanged({10, 0, 30}) + levels.sent_to_all(10), 0u);
  }
}

}  // namespace
}  // namespace strata::comm
