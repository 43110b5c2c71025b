#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "tests/failure.h"
#include "tests/launcher/commands/plan/printed_plan.h"

namespace strata::launcher {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

TEST_F(Plan, ShowsStagesSideBySideWithThePapersFigures) {
  stages_ = true;
  const std::string text = planned(4, 4, {"zero.stage=2"});
  for (const char* stage : {"ZeRO-0 ", "ZeRO-1 ", "ZeRO-2 ", "ZeRO-3 "}) EXPECT_THAT(text, HasSubstr(stage));
  for (const char* note : {"[0] All tiers together", "[1] Gradients are summed in fp32",
                           "[2] At stage 3 a rank's shard", "[3] Activations"})
    EXPECT_THAT(text, HasSubstr(note));
  EXPECT_THAT(json_, AllOf(HasSubstr("\"stages\":[{\"stage\":0,"), HasSubstr("{\"stage\":3,")));
  EXPECT_THAT(text, Not(HasSubstr("a step  order\n"))) << "one micro-batch needs no order";
  EXPECT_THAT(planned(4, 4, {"zero.stage=2", "training.gradient_accumulation_steps=4"}),
              AllOf(HasSubstr("a step  order\n"), HasSubstr("- horiz.\n")));
  EXPECT_THAT(json_, HasSubstr("{\"stage\":2,\"order\":\"horizontal\","));
  // There are 16 bytes per parameter at stage 0, divided over 4 ranks at stage 3.
  const double parameters = number("parameters");
  EXPECT_THAT(text, HasSubstr(bytes_text(static_cast<std::size_t>(16 * parameters))));
  EXPECT_THAT(text, HasSubstr(bytes_text(static_cast<std::size_t>(4 * parameters))));
}

// State sharded within each node next to state sharded over all ranks, and the traffic between nodes in each case.
TEST_F(Plan, ShowsGroupsWithinNodes) {
  const auto crossing = [&] { return number("between_nodes"); };
  const auto unfolded = [&](int ranks, int ranks_per_node, const std::vector<std::string>& sets) {
    std::string text = planned(ranks, ranks_per_node, sets);
    for (auto at = text.find("\n  "); at != text.npos; at = text.find("\n  ")) text.replace(at, 3, " ");
    return text;
  };
  EXPECT_THAT(unfolded(4, 4, {"zero.stage=3"}), Not(HasSubstr("to other nodes")));
  EXPECT_EQ(crossing(), 0);
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=3"}), AllOf(HasSubstr(" of it in its node of 2 ranks and "),
                                                      HasSubstr(" to other nodes\n"), Not(HasSubstr("in groups"))));
  const double flat = crossing();
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=3", "zero.parameters_group=node"}),
              HasSubstr("in groups: 2 copies of the parameters, each over 2 ranks\n"));
  EXPECT_LT(crossing(), flat);
  EXPECT_THAT(json_, HasSubstr("\"mesh\":{\"data\":4,\"tensor\":1,\"stages\":1,\"node\":2}"));
  EXPECT_THAT(
      planned(4, 2, {"zero.stage=3", "zero.gradients_group=2"}),
      HasSubstr("in groups: 2 copies of the parameters, each over 2 ranks; 2 copies of the sums of gradients, "));
  EXPECT_FAILURE((void)planned(3, 2, {"zero.stage=3", "zero.parameters_group=node"}), Exit::usage,
                 HasSubstr("but these have 2 and 1 ranks"));
  stages_ = true;
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=2"}), AllOf(HasSubstr("ZeRO-3 [4] "), HasSubstr("ZeRO-3 [5] "),
                                                      HasSubstr("[4] zero.parameters_group = \"node\"")));
  EXPECT_THAT(json_, HasSubstr("{\"stage\":3,\"zero.parameters_group\":\"node\",\"order\":"));
  EXPECT_THAT(unfolded(4, 4, {"zero.stage=2"}), Not(HasSubstr("[4]")));
}

// Even the largest figures, those of one rank, do not touch the next column.
TEST_F(Plan, ColumnsOfStagesStaySeparate) {
  stages_ = true;
  const std::string text =
      planned(1, 1, {"model.preset=llama-1b", "model.config.num_hidden_layers=1200", "memory.device=99999GiB"});
  const std::size_t at = text.find("\nZeRO-0 ");
  ASSERT_NE(at, std::string::npos);
  const std::string row = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  EXPECT_THAT(row, testing::Not(testing::ContainsRegex("[a-zA-Z][0-9]"))) << row;
}

TEST_F(Plan, APageShowsAllStages) {
  html_ = folder_.path() / "plan.html";
  (void)planned(2, 2, {"zero.stage=3"});
  const std::string page = folder_.read("plan.html");
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_THAT(page, HasSubstr("\"ranks\":2,\"data_ranks\":2,\"stage\":" + std::to_string(stage) + ","));
}

}  // namespace
}  // namespace strata::launcher
