#include "runtime/plan/offsets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace strata::runtime {
namespace {

// A buffer of so many pages that tasks `first` to `last` use.
struct Span {
  std::size_t pages;
  int first, last;
};

// Pages of the arena that a plan of these buffers takes, each of which has its place.
std::size_t pages_of(const std::vector<Span>& spans) {
  constexpr std::size_t kPage = aligned(1);
  StepPlan plan{};
  plan.tasks.resize(6);
  for (Task& task : plan.tasks) task.lane = LaneId::compute;
  for (std::size_t b = 0; b < spans.size(); ++b) {
    plan.buffers.push_back({std::to_string(b), Kind::activations, Tier::device, spans[b].pages * kPage, false});
    for (const int t : {spans[b].first, spans[b].last})
      plan.tasks[static_cast<std::size_t>(t)].uses.push_back({static_cast<int>(b), Role::x, Access::update});
  }
  assign_offsets(plan);
  for (std::size_t a = 0; a < spans.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const Buffer &one = plan.buffers[a], &other = plan.buffers[b];
      if (spans[a].last < spans[b].first || spans[b].last < spans[a].first) continue;
      EXPECT_TRUE(one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset) << a << ' ' << b;
    }
  predict_memory(plan);
  EXPECT_EQ(plan.memory[static_cast<std::size_t>(Tier::device)].peak % kPage, 0u);
  return plan.memory[static_cast<std::size_t>(Tier::device)].peak / kPage;
}

// Each case names the order that finds the lower bound, the pages that live at once; the others take more.
TEST(Offsets, TheOrderThatTakesLeastIsKept) {
  EXPECT_EQ(pages_of({{5, 0, 2}, {3, 1, 1}, {2, 2, 4}}), 8u) << "largest first";
  EXPECT_EQ(pages_of({{2, 3, 5}, {1, 0, 3}, {4, 0, 0}, {3, 4, 4}}), 5u) << "bytes times tasks; largest first takes 6";
  EXPECT_EQ(pages_of({{5, 0, 2}, {4, 1, 4}, {3, 2, 5}, {6, 0, 0}}), 12u) << "longest first; the others take 14 and 15";
}

}  // namespace
}  // namespace strata::runtime
