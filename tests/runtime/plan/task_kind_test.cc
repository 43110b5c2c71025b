#include "runtime/plan/task_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string_view>
#include <vector>

namespace strata::runtime {
namespace {

using testing::ElementsAre;

// The names of the kinds that have this value in a column.
template <typename Value>
std::vector<std::string_view> kinds_with(Value TaskTraits::*column, const Value& value) {
  std::vector<std::string_view> names;
  for (const TaskTraits& traits : kTaskTraits)
    if (traits.*column == value) names.push_back(traits.name);
  return names;
}

std::vector<std::string_view> kinds_among(Peers peers) {
  return kinds_with(&TaskTraits::peers, std::optional(peers));
}

TEST(TaskKinds, ExchangeAmongTheRanksThatShareTheirData) {
  EXPECT_THAT(kinds_among(Peers::parameters), ElementsAre("gather"));
  EXPECT_THAT(kinds_among(Peers::updates), ElementsAre("spread"));
  EXPECT_THAT(kinds_among(Peers::gradients), ElementsAre("reduce"));
  EXPECT_THAT(kinds_among(Peers::sums), ElementsAre("gather sums"));
  EXPECT_THAT(kinds_among(Peers::node), ElementsAre("node sum"));
  EXPECT_THAT(kinds_among(Peers::tensor), ElementsAre("exchange", "gather rows"));
  EXPECT_THAT(kinds_among(Peers::stages), ElementsAre("send", "receive"));
  EXPECT_THAT(kinds_among(Peers::all), ElementsAre("consensus", "publish"));
}

TEST(TaskKinds, HaveOneCollectiveOrOneEndOfAMessage) {
  const auto collectives = [](Collective of) { return kinds_with(&TaskTraits::collective, of); };
  EXPECT_THAT(collectives(Collective::all_gather), ElementsAre("gather", "gather rows", "gather sums", "spread"));
  EXPECT_THAT(collectives(Collective::all_to_all), ElementsAre("exchange", "node sum", "reduce"));
  EXPECT_THAT(collectives(Collective::exchange), ElementsAre("consensus", "publish"));
  const auto ends = [](MessageEnd end) { return kinds_with(&TaskTraits::message, end); };
  EXPECT_THAT(ends(MessageEnd::sender), ElementsAre("send"));
  EXPECT_THAT(ends(MessageEnd::receiver), ElementsAre("receive"));
  for (const TaskTraits& traits : kTaskTraits) {
    EXPECT_FALSE(traits.collective != Collective::none && is_message(traits.kind)) << traits.name;
    EXPECT_EQ(traits.peers == Peers::stages, is_message(traits.kind)) << traits.name;
  }
}

TEST(TaskKinds, BelongToAUnitOrToTheBoundary) {
  EXPECT_THAT(kinds_with(&TaskTraits::boundary, true),
              ElementsAre("consensus", "publish", "carry", "host write", "host read"));
}

TEST(TaskKinds, RunAtTheSpeedOfTheirTraffic) {
  const auto bounded = [](Traffic by) { return kinds_with(&TaskTraits::traffic, by); };
  EXPECT_THAT(bounded(Traffic::loss), ElementsAre("loss"));
  EXPECT_THAT(bounded(Traffic::optimizer), ElementsAre("update"));
  EXPECT_THAT(bounded(Traffic::sums),
              ElementsAre("exchange", "gather rows", "accumulate", "round", "node sum", "reduce", "combine"));
  EXPECT_THAT(bounded(Traffic::norm), ElementsAre("norm"));
}

}  // namespace
}  // namespace strata::runtime
