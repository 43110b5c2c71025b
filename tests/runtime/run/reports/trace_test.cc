#include "runtime/run/reports/trace.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "runtime/forecast/simulator.h"
#include "tests/runtime/rows.h"
#include "tests/runtime/tiny_job.h"
#include "tests/trace_events.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using tests::read_trace;
using tests::TraceEvents;

std::vector<Span> simulated(const StepPlan& plan) {
  return simulate(plan, nominal_profile(plan));
}

Job traced_job(std::vector<std::string> sets, int ranks) {
  sets.insert(sets.end(), {"training.gradient_accumulation_steps=2", "memory.nvme=/tmp"});
  return tiny_job(std::move(sets), ranks);
}

// The stages and tiers whose steps differ most: with late gathers, and with updates left by the previous step.
std::string planned(const Job& job) {
  const StepPlan* const plans[] = {&job.plan};
  const std::vector<Span> spans[] = {simulated(job.plan)};
  return planned_trace(plans, *job.model, spans);
}

std::vector<Job> jobs() {
  std::vector<Job> all;
  all.push_back(traced_job({}, 1));
  all.push_back(traced_job({"zero.stage=1"}, 2));
  all.push_back(traced_job({"zero.stage=3", "training.recompute=block", "zero.activations=host"}, 4));
  all.push_back(traced_job({"zero.stage=3", "zero.parameters=nvme", "zero.gradients=host", "zero.optimizer=nvme"}, 2));
  return all;
}

TEST(Trace, EveryTaskIsASliceWithItsNameAndBytes) {
  for (const Job& job : jobs()) {
    const StepPlan& plan = job.plan;
    const TraceEvents trace = read_trace(planned(job));
    EXPECT_EQ(trace.kind, "planned");
    EXPECT_EQ(trace.ranks, plan.ranks());
    ASSERT_EQ(trace.processes.size(), 1u) << "all ranks are the same";
    const auto slices = trace.tasks_of(0);
    ASSERT_EQ(slices.size(), tasks_with_rows(plan));
    double sent = 0, read = 0, written = 0;
    for (std::size_t t = 0, task = 0; t < slices.size(); ++t, ++task) {
      while (!has_row(plan.tasks[task])) ++task;
      EXPECT_EQ(slices[t].task, static_cast<std::int64_t>(task));
      EXPECT_EQ(slices[t].name, name_of(plan.tasks[task], *job.model));
      EXPECT_EQ(trace.rows.at(slices[t].row), kLaneNames[static_cast<std::size_t>(plan.tasks[task].lane)]);
      const auto bytes = [&](const char* of) {
        return slices[t].bytes.contains(of) ? static_cast<double>(slices[t].bytes.at(of)) : 0;
      };
      sent += bytes("sent_bytes");
      read += bytes("read_bytes");
      written += bytes("written_bytes");
    }
    double planned = 0;
    for (const Task& task : plan.tasks) planned += task.cost.sent_bytes;
    EXPECT_EQ(sent, planned);
    EXPECT_GE(sent, static_cast<double>(plan.comm_bytes.total()))
        << "the plan counts the rank that sends most, and this is rank 0";
    EXPECT_EQ(read, static_cast<double>(plan.io_bytes.read[static_cast<std::size_t>(Tier::nvme)]));
    EXPECT_EQ(written, static_cast<double>(plan.io_bytes.written[static_cast<std::size_t>(Tier::nvme)]));
  }
}

TEST(Trace, EveryWaitIsAnArrow) {
  for (const Job& job : jobs()) {
    const TraceEvents trace = read_trace(planned(job));
    const std::size_t waits = waits_between_rows(job.plan, false);
    EXPECT_EQ(trace.arrows.size(), waits);
    EXPECT_GT(waits, 0u);
  }
}

// Buffers that are alive at the same time do not overlap, so their sum never exceeds the arena's size.
TEST(Trace, MemoryStaysBelowThePlannedPeak) {
  for (const Job& job : jobs()) {
    const StepPlan& plan = job.plan;
    const TraceEvents trace = read_trace(planned(job));
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      std::int64_t most = 0, last = -1, lasting = 0;
      std::size_t events = 0;
      for (const auto& counter : trace.counters) {
        if (counter.name != fmt::format("{} bytes", kTierNames[tier])) continue;
        ++events;
        most = std::max(most, counter.total);
        last = counter.total;
      }
      if (plan.memory[tier].peak == 0) {
        EXPECT_EQ(events, 0u) << "no such tier";
        continue;
      }
      for (const Buffer& buffer : plan.buffers)
        if (static_cast<std::size_t>(buffer.tier) == tier && buffer.persistent)
          lasting += static_cast<std::int64_t>(buffer.bytes);
      EXPECT_EQ(last, lasting) << "the tensors that the step leaves";
      EXPECT_GE(most, lasting);
      EXPECT_LE(most, static_cast<std::int64_t>(plan.memory[tier].peak)) << kTierNames[tier];
      if (tier == 0) {
        EXPECT_GT(most, lasting);
      }
    }
  }
}

class TraceOfSteps : public testing::Test {
 protected:
  std::vector<Span> at(std::int64_t begin) const {
    std::vector<Span> spans = simulated(job_.plan);
    for (Span& span : spans) span = {span.begin + begin, span.end + begin};
    return spans;
  }
  TraceEvents read(const std::vector<std::pair<int, std::int64_t>>& ranks_and_steps) {
    Trace trace(job_.plan, *job_.model);
    std::string text =
        Trace::begin({"measured", 2, {{0, "rank 0", &trace}, {1, "rank \"1\" on\nb", &trace}}, {3, 4}, "one clock"});
    for (const auto& [rank, step] : ranks_and_steps) text += trace.step(rank, step, at(step * kStep), 3 * kStep);
    return read_trace(text + Trace::end());
  }
  std::size_t waits_across() const { return waits_between_rows(job_.plan, true); }

  static constexpr std::int64_t kStep = 1'000'000'000;
  Job job_ = traced_job({"zero.stage=1"}, 2);
};

TEST_F(TraceOfSteps, EachRankIsAProcessAndEachStepASlice) {
  const TraceEvents trace = read({{0, 3}, {1, 3}, {0, 4}, {1, 4}});
  EXPECT_EQ(trace.processes.at(0), "rank 0");
  EXPECT_EQ(trace.processes.at(1), "rank \"1\" on\nb");
  EXPECT_THAT(trace.steps, ElementsAre(3, 4));
  std::vector<std::string> steps;
  for (const auto& slice : trace.slices)
    if (slice.task < 0) steps.push_back(fmt::format("{} {} {}", slice.row.first, slice.name, slice.begin / kStep));
  EXPECT_THAT(steps, ElementsAre("0 step 3 0", "1 step 3 0", "0 step 4 1", "1 step 4 1"));
  for (const int rank : {0, 1}) EXPECT_EQ(trace.tasks_of(rank).size(), 2 * tasks_with_rows(job_.plan));
}

TEST_F(TraceOfSteps, AWaitForThePreviousStepIsAnArrow) {
  ASSERT_GT(waits_across(), 0u);
  const std::size_t one = read({{0, 3}}).arrows.size();
  EXPECT_EQ(read({{0, 3}, {0, 4}}).arrows.size(), 2 * one + waits_across());
  EXPECT_EQ(read({{0, 3}, {0, 5}}).arrows.size(), 2 * one) << "the previous step is not in the trace";
  EXPECT_EQ(read({{0, 3}, {1, 4}}).arrows.size(), 2 * one) << "it belongs to another rank";
}

TEST_F(TraceOfSteps, ATaskThatDidNotRunHasNoSliceNorArrow) {
  std::vector<Span> spans = at(3 * kStep);
  const auto& tasks = job_.plan.tasks;
  // The newest task in a row for which another one waits, in the same step.
  const auto in_step = [&](std::size_t t, int wait) {
    const auto other = static_cast<std::size_t>(wait);
    return other < t && has_row(tasks[t]) && has_row(tasks[other]);
  };
  std::size_t left_out = 0, waiting = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t)
    for (const int wait : tasks[t].waits)
      if (in_step(t, wait)) left_out = std::max(left_out, static_cast<std::size_t>(wait));
  for (std::size_t t = 0; t < tasks.size(); ++t)
    for (const int wait : tasks[t].waits)
      if (in_step(t, wait) && (t == left_out || static_cast<std::size_t>(wait) == left_out)) ++waiting;
  spans[left_out] = {};
  Trace trace(job_.plan, *job_.model);
  const std::string head = Trace::begin({"measured", 1, {{0, "rank 0", &trace}}, {3}, "one clock"});
  const TraceEvents events = read_trace(head + trace.step(0, 3, spans, 3 * kStep) + Trace::end());
  EXPECT_EQ(events.tasks_of(0).size(), tasks_with_rows(job_.plan) - 1);
  EXPECT_EQ(events.arrows.size(), read({{0, 3}}).arrows.size() - waiting);
  const TraceEvents none =
      read_trace(head + trace.step(0, 3, std::vector<Span>(spans.size()), 3 * kStep) + Trace::end());
  EXPECT_TRUE(none.slices.empty() && none.counters.empty());
}

}  // namespace
}  // namespace strata::runtime
