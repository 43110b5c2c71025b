#include "launcher/control/watch/node_liveness.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace strata::launcher::control {
namespace {

using State = NodeLiveness::State;
using Change = NodeLiveness::Change;

constexpr double kTimeout = 30;
constexpr std::array kStates = {State::unreached, State::unreachable, State::present,
                                State::broken,    State::lost,        State::left};

// A node that entered the state at 100, when its last message came.
NodeLiveness in(State state) {
  NodeLiveness node(100, state == State::broken ? State::present : state);
  if (state == State::broken) node.lose_connection(100);
  EXPECT_EQ(node.state(), state);
  return node;
}

// Expected results by state, in the order of kStates.
using Row = std::array<State, kStates.size()>;

void expect(const char* what, const std::function<void(NodeLiveness&)>& event, const Row& becomes) {
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    NodeLiveness node = in(kStates[i]);
    event(node);
    EXPECT_EQ(node.state(), becomes[i]) << what << " in state " << i;
  }
}

// The table of node_liveness.h, cell by cell.
TEST(NodeLivenessTest, HandlesEveryEventInEveryState) {
  using enum State;
  expect("heard", [](NodeLiveness& node) { node.record_contact(101); },
         {present, present, present, present, lost, left});
  expect("left", [](NodeLiveness& node) { node.leave(); }, {left, left, left, left, left, left});
  expect("broke", [](NodeLiveness& node) { node.lose_connection(102.9); },
         {unreached, unreachable, broken, broken, lost, left});
  expect("broke late", [](NodeLiveness& node) { node.lose_connection(103); },
         {unreached, unreachable, present, broken, lost, left});
  expect("resume", [](NodeLiveness& node) { node.resume(101); },
         {unreached, unreachable, present, present, lost, left});
  expect("look", [](NodeLiveness& node) { node.look(102.9, kTimeout); },
         {unreached, unreachable, present, broken, lost, left});
  expect("look, 3 s later", [](NodeLiveness& node) { node.look(103, kTimeout); },
         {unreached, unreachable, present, lost, lost, left});
  expect("look, after the timeout", [](NodeLiveness& node) { node.look(130, kTimeout); },
         {unreachable, unreachable, lost, lost, lost, left});
  expect("look, without a timeout", [](NodeLiveness& node) { node.look(1e6, 0); },
         {unreached, unreachable, present, lost, lost, left});
}

TEST(NodeLivenessTest, ReportsAChangeOnce) {
  const auto twice = [](State state, double now, double timeout) {
    NodeLiveness node = in(state);
    const Change first = node.look(now, timeout);
    EXPECT_EQ(node.look(now + 1, timeout), Change::none);
    return first;
  };
  EXPECT_EQ(twice(State::unreached, 130, kTimeout), Change::unreachable);
  EXPECT_EQ(twice(State::present, 130, kTimeout), Change::silent);
  EXPECT_EQ(twice(State::broken, 103, kTimeout), Change::ended);
  EXPECT_EQ(twice(State::broken, 130, kTimeout), Change::silent) << "that says more";
}

TEST(NodeLivenessTest, ARestoredConnectionCountsFromItsNextBreak) {
  NodeLiveness node = in(State::broken);
  node.record_contact(102);
  node.lose_connection(104.5);
  EXPECT_EQ(node.look(107, kTimeout), Change::none);
  EXPECT_EQ(node.look(107.5, kTimeout), Change::ended);
}

TEST(NodeLivenessTest, ReportsTheLongestSilenceOnce) {
  NodeLiveness node = in(State::present);
  node.record_contact(104.9);
  EXPECT_EQ(node.take_silence(), 0);
  node.record_contact(114.9);
  node.record_contact(120);
  EXPECT_EQ(node.take_silence(), 10);
  EXPECT_EQ(node.take_silence(), 0);
  node.record_contact(130);
  node.leave();
  EXPECT_EQ(node.take_silence(), 0) << "the silence of a node that left does not count";
  NodeLiveness first = in(State::unreached);
  first.record_contact(120);
  EXPECT_EQ(first.take_silence(), 0) << "it never came up";
}

}  // namespace
}  // namespace strata::launcher::control
