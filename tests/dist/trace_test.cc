// A trace of a run under mpirun contains every rank's timeline of the selected steps, on one clock.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/dist/tiny_run.h"
#include "tests/trace_events.h"

namespace strata::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TraceOfARun, ContainsEveryRank) {
  const TinyRun run_;
  const std::string file = run_.file("trace.json");
  for (const bool picked : {false, true}) {
    std::vector<std::string> sets = {"zero.stage=2", "report.trace=" + file};
    if (picked) sets.emplace_back("report.trace_steps=[1, \"2-3\"]");
    const Outcome outcome = run(under_mpirun(2, run_.train(sets)));
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    const TraceEvents trace = read_trace(text_of_file(file));
    EXPECT_THAT(trace.processes, ElementsAre(Pair(0, "rank 0"), Pair(1, "rank 1")));
    if (picked)
      EXPECT_THAT(trace.steps, ElementsAre(1, 2, 3));
    else
      EXPECT_THAT(trace.steps, ElementsAre(3));
    ASSERT_FALSE(trace.tasks_of(0).empty());
    EXPECT_EQ(trace.tasks_of(0).size(), trace.tasks_of(1).size());
    EXPECT_EQ(trace.tasks_of(0).size() % trace.steps.size(), 0u) << "every step has every task";
  }
}

// Only rank 0 writes, so its options apply. Missing ranks are reported.
TEST(TraceOfARun, FollowsTheOptionsOfRankZero) {
  const TinyRun run_;
  const std::string file = run_.file("trace.json"),
                    script = "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then exec \"$@\" --set report.trace=" + file +
                             " --set report.trace_steps=2-9; else exec \"$@\"; fi";
  const Outcome outcome = run(under_mpirun(2, run_.train(), script));
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("report.trace_steps = \"2-9\" names steps after the last one"));
  EXPECT_THAT(outcome.errors, HasSubstr("took 2 of them"));
  const TraceEvents trace = read_trace(text_of_file(file));
  EXPECT_THAT(trace.steps, ElementsAre(2, 3));
  EXPECT_FALSE(trace.tasks_of(1).empty());
}

}  // namespace
}  // namespace strata::tests
