#include "launcher/control/board.h"

#include <gtest/gtest.h>

namespace strata::launcher::control {
namespace {

TEST(RingTest, DropsEntriesThatDoNotFit) {
  Ring<int, 2> ring;
  EXPECT_EQ(ring.pop(), std::nullopt);
  for (const int item : {1, 2, 3}) ring.push(item);
  EXPECT_EQ(ring.pop(), 1);
  ring.push(4);
  EXPECT_EQ(ring.pop(), 2);
  EXPECT_EQ(ring.pop(), 4);
  EXPECT_EQ(ring.pop(), std::nullopt);
}

class BoardTest : public testing::Test {
 protected:
  BoardTest() {
    board_.describe(pb::RunInfo(), 100, {}, 10);
    board_.set_state(pb::TRAINING);
  }
  void post(std::int64_t step, double loss) {
    board_.post({.step = step, .loss = loss, .tokens = 8, .step_ms = 2}, {}, {});
  }

  Board board_;
};

TEST_F(BoardTest, StepsAreKnownOnceCollected) {
  post(11, 2.5);
  post(12, 2.25);
  EXPECT_EQ(board_.steps_done(), 10);
  board_.collect();
  EXPECT_EQ(board_.steps_done(), 12);
  EXPECT_EQ(board_.status().last().loss(), 2.25);
  EXPECT_EQ(board_.step_after(10)->step(), 11);
  EXPECT_EQ(board_.step_after(11)->step(), 12);
  EXPECT_FALSE(board_.step_after(12));
}

TEST_F(BoardTest, ACheckpointIsRequestedOnce) {
  EXPECT_EQ(board_.take_requests(), 0U);
  board_.request_checkpoint();
  EXPECT_EQ(board_.take_requests(), runtime::kCheckpoint);
  EXPECT_EQ(board_.take_requests(), 0U);
}

TEST_F(BoardTest, AStopNamesTheStepThatAcceptsIt) {
  (void)board_.take_requests();  // step 11 begins
  EXPECT_EQ(board_.request_stop(false).last, 12) << "step 11 has already looked";
  EXPECT_EQ(board_.take_requests(), runtime::kStop);
  const Board::Stop again = board_.request_stop(true);
  EXPECT_EQ(again.last, 12);
  EXPECT_FALSE(again.at_once) << "the run has taken the earlier request, which asked for a checkpoint";
  EXPECT_EQ(board_.stop_requested(), runtime::kStop);
}

TEST_F(BoardTest, APendingStopCanBecomeImmediate) {
  (void)board_.request_stop(false);
  EXPECT_TRUE(board_.request_stop(true).at_once);
  EXPECT_EQ(board_.take_stop(), runtime::kStop | runtime::kStopAtOnce);
}

TEST_F(BoardTest, CountsDurableCheckpoints) {
  board_.post_saved(20, "/ck/step-20");
  board_.post_saved(40, "/ck/step-40");
  board_.collect();
  const auto [newest, count] = board_.saved();
  EXPECT_EQ(newest.step(), 40);
  EXPECT_EQ(newest.path(), "/ck/step-40");
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace strata::launcher::control
