#include "launcher/control/watch/node_life.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace strata::launcher::control {
namespace {

using State = NodeLife::State;
using Change = NodeLife::Change;

constexpr double kTimeout = 30;
constexpr std::array kStates = {State::unreached, State::unreachable, State::present,
                                State::broken,    State::lost,        State::left};

// A node that entered the state at 100, when its last message came.
NodeLife in(State state) {
  NodeLife life(100, state == State::broken ? State::present : state);
  if (state == State::broken) life.lose_connection(100);
  EXPECT_EQ(life.state(), state);
  return life;
}

// Expected results by state, in the order of kStates.
using Row = std::array<State, kStates.size()>;

void expect(const char* what, const std::function<void(NodeLife&)>& event, const Row& becomes) {
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    NodeLife life = in(kStates[i]);
    event(life);
    EXPECT_EQ(life.state(), becomes[i]) << what << " in state " << i;
  }
}

// The table of node_life.h, cell by cell.
TEST(NodeLifeTest, HandlesEveryEventInEveryState) {
  using enum State;
  expect("heard", [](NodeLife& life) { life.hear(101); }, {present, present, present, present, lost, left});
  expect("left", [](NodeLife& life) { life.leave(); }, {left, left, left, left, left, left});
  expect("broke", [](NodeLife& life) { life.lose_connection(102.9); },
         {unreached, unreachable, broken, broken, lost, left});
  expect("broke late", [](NodeLife& life) { life.lose_connection(103); },
         {unreached, unreachable, present, broken, lost, left});
  expect("resume", [](NodeLife& life) { life.resume(101); }, {unreached, unreachable, present, present, lost, left});
  expect("look", [](NodeLife& life) { life.look(102.9, kTimeout); },
         {unreached, unreachable, present, broken, lost, left});
  expect("look, 3 s later", [](NodeLife& life) { life.look(103, kTimeout); },
         {unreached, unreachable, present, lost, lost, left});
  expect("look, after the timeout", [](NodeLife& life) { life.look(130, kTimeout); },
         {unreachable, unreachable, lost, lost, lost, left});
  expect("look, without a timeout", [](NodeLife& life) { life.look(1e6, 0); },
         {unreached, unreachable, present, lost, lost, left});
}

TEST(NodeLifeTest, ReportsAChangeOnce) {
  const auto twice = [](State state, double now, double timeout) {
    NodeLife life = in(state);
    const Change first = life.look(now, timeout);
    EXPECT_EQ(life.look(now + 1, timeout), Change::none);
    return first;
  };
  EXPECT_EQ(twice(State::unreached, 130, kTimeout), Change::unreachable);
  EXPECT_EQ(twice(State::present, 130, kTimeout), Change::silent);
  EXPECT_EQ(twice(State::broken, 103, kTimeout), Change::ended);
  EXPECT_EQ(twice(State::broken, 130, kTimeout), Change::silent) << "that says more";
}

TEST(NodeLifeTest, ARestoredConnectionCountsFromItsNextBreak) {
  NodeLife life = in(State::broken);
  life.hear(102);
  life.lose_connection(104.5);
  EXPECT_EQ(life.look(107, kTimeout), Change::none);
  EXPECT_EQ(life.look(107.5, kTimeout), Change::ended);
}

TEST(NodeLifeTest, ReportsTheLongestSilenceOnce) {
  NodeLife life = in(State::present);
  life.hear(104.9);
  EXPECT_EQ(life.take_silence(), 0);
  life.hear(114.9);
  life.hear(120);
  EXPECT_EQ(life.take_silence(), 10);
  EXPECT_EQ(life.take_silence(), 0);
  life.hear(130);
  life.leave();
  EXPECT_EQ(life.take_silence(), 0) << "the silence of a node that left does not count";
  NodeLife first = in(State::unreached);
  first.hear(120);
  EXPECT_EQ(first.take_silence(), 0) << "it never came up";
}

}  // namespace
}  // namespace strata::launcher::control
