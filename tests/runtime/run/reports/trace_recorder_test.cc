#include "runtime/run/reports/trace_recorder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/forecast/simulator.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/reports/trace.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/rows.h"
#include "tests/runtime/tiny_job.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"
#include "tests/trace_events.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::TraceEvents;

TEST(TraceRecorder, KeepsTheSelectedStepsOfThisRun) {
  const Job job = tiny_job({}, 1);
  const std::size_t tasks = job.plan.tasks.size();
  TraceRecorder recorder(job.plan, {{2, 3}, {6, 6}}, 2, 5);  // resumes after step 2, ends after 5
  for (std::int64_t step = 3; step <= 5; ++step) {
    EXPECT_EQ(recorder.wants(step), step == 3);
    recorder.record(step, std::vector<Span>(tasks, {10 * step, 10 * step + 1}));
  }
  recorder.record_newest(5, std::vector<Span>(tasks, {50, 51}));
  EXPECT_THAT(recorder.steps(), ElementsAre(3));
  EXPECT_EQ(recorder.spans(0).back().begin, 30);
  EXPECT_EQ(recorder.missing(), "report.trace_steps names [\"2-3\", 6], but this run took 1 of them");
}

TEST(TraceRecorder, KeepsTheNewestStepByDefault) {
  const Job job = tiny_job({}, 1);
  TraceRecorder recorder(job.plan, {}, 0, 5);
  EXPECT_FALSE(recorder.wants(5));
  recorder.record_newest(0, std::vector<Span>(job.plan.tasks.size()));
  EXPECT_TRUE(recorder.steps().empty()) << "no step has run";
  recorder.record_newest(4, std::vector<Span>(job.plan.tasks.size(), {40, 41}));
  EXPECT_THAT(recorder.steps(), ElementsAre(4));
  EXPECT_EQ(recorder.missing(), "");
}

TEST(TraceRecorder, RefusesMoreStepsThanATraceHolds) {
  const Job job = tiny_job({}, 1);
  const auto most = static_cast<std::int64_t>(kMaxTraced / job.plan.tasks.size());
  TraceRecorder(job.plan, {{1, most}}, 0, most + 1);
  EXPECT_FAILURE(TraceRecorder(job.plan, {{1, most + 1}}, 0, most + 1), Exit::usage,
                 AllOf(HasSubstr("report.trace_steps"), HasSubstr(fmt::format("holds only {} ", most))));
  TraceRecorder(job.plan, {{1, most + 1}}, 1, most + 1);  // the first was taken before
}

TEST(TraceRecorder, AlignsTheClocksOfNodes) {
  const std::vector<std::string> clocks = {"a", "a", "b", "b", "c"};
  EXPECT_THAT(clock_shifts(clocks, std::vector<std::int64_t>{110, 100, 5000, 5020, 0}),
              ElementsAre(0, 0, -4900, -4900, 0))
      << "a rank that arrives late leaves late: the earliest of a node counts; c's is unknown";
  EXPECT_THAT(clock_shifts(clocks, std::vector<std::int64_t>{0, 0, 5000, 5020, 7}), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(clock_shifts(std::vector<std::string>{"a"}, std::vector<std::int64_t>{9}), ElementsAre(0));
}

std::vector<const StepPlan*> plans_of(const Job& job) {
  return {&job.plan};
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TracedRun : public testing::Test {
 protected:
  TracedRun() {
    std::string bytes(1200, '\0');
    for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(i * i % 97);
    folder_.write("tokens.bin", bytes);
  }
  std::vector<std::string> sets(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"model.preset=tiny-gpt2", "model.config.vocab_size=97", "data.seq_len=16", "training.max_steps=4",
                 "training.gradient_accumulation_steps=2", "memory.nvme=" + folder_.path().string(),
                 "data.train=" + (folder_.path() / "tokens.bin").string()});
    return more;
  }
  // Returns the run's exact losses in one line. Traces these steps, or none.
  std::string train(int ranks, const std::vector<std::string>& more, const std::vector<StepRange>& steps) {
    std::string losses;
    const Recipe recipe = load_recipe({}, sets(more));
    comm::run_threads(ranks, [&](comm::World& world) {
      const Job job = make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1));
      Trainer trainer(job, world, 1);
      trainer.load_initial_weights(1);
      TraceRecorder recorder(job.plan, steps, 0, 4);
      while (!trainer.done()) {
        if (recorder.wants(trainer.steps_done() + 1)) trainer.executor().time_next_step();
        const StepReport report = trainer.step(false);
        recorder.record(report.step, trainer.executor().spans());
        if (world.rank() == 0) losses += hex(report.loss) + " ";
      }
      const std::string hash = trainer.weights_hash();
      if (world.rank() == 0) losses += hash;
      if (steps.empty()) return;
      std::optional<ReportFile> file;
      if (world.rank() == 0) file.emplace(trace_, "report.trace");
      EXPECT_EQ(write_trace(file ? &*file : nullptr, recorder, plans_of(job), *job.model, world), ranks);
      if (file) file->close();
    });
    return losses;
  }

  tests::ScratchFolder folder_;
  std::filesystem::path trace_ = folder_.path() / "trace.json";
};

TEST_F(TracedRun, ContainsEveryRankAndSelectedStepWithThePlansTasks) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"zero.stage=1"},
        {"zero.stage=3", "zero.parameters=host", "zero.optimizer=nvme", "training.recompute=block"}}) {
    const std::string plain = train(2, keys, {}), losses = train(2, keys, {{2, 3}});
    EXPECT_EQ(losses, plain) << "tracing changes no bit";
    const TraceEvents trace = tests::read_trace(text_of_file(trace_));
    const Recipe recipe = load_recipe({}, sets(keys));
    const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
    const std::vector<std::vector<Span>> simulated = {simulate(job.plan, nominal_profile(job.plan))};
    const TraceEvents planned = tests::read_trace(planned_trace(plans_of(job), *job.model, simulated));
    EXPECT_THAT(trace.steps, ElementsAre(2, 3));
    EXPECT_EQ(trace.processes.size(), 2u);
    EXPECT_EQ(trace.kind, "measured");
    const auto names = planned.tasks_of(0);
    for (const int rank : {0, 1}) {
      const auto tasks = trace.tasks_of(rank);
      ASSERT_EQ(tasks.size(), 2 * names.size()) << "late tasks too";
      for (std::size_t t = 0; t < tasks.size(); ++t) {
        EXPECT_EQ(tasks[t].name, names[t % names.size()].name);
        EXPECT_EQ(tasks[t].row.second, names[t % names.size()].row.second);
        EXPECT_GE(tasks[t].begin, 0);
      }
    }
    // All times refer to one clock: no rank begins a step before every other rank has begun the previous one.
    for (const auto& slice : trace.slices)
      for (const auto& other : trace.slices)
        if (slice.name == "step 3" && other.name == "step 2") {
          EXPECT_LT(other.begin, slice.begin);
        }
    for (const auto& counter : trace.counters) {
      const auto tier = std::find_if(kTierNames.begin(), kTierNames.end(), [&](std::string_view name) {
        return counter.name == fmt::format("{} bytes", name);
      });
      ASSERT_NE(tier, kTierNames.end());
      const std::size_t peak = job.plan.memory[static_cast<std::size_t>(tier - kTierNames.begin())].peak;
      EXPECT_LE(counter.total, static_cast<std::int64_t>(peak)) << counter.name;
    }
  }
}

// Rank 0 of two. The other one is on another node and does the same, but its clock is `ahead` ns.
class FarWorld final : public comm::World {
 public:
  explicit FarWorld(std::int64_t ahead) : ahead_(ahead) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int node_size() const override { return 1; }
  int node_rank() const override { return 0; }
  std::string describe() const override { return "far"; }
  AbortToken& abort_token() override { return abort_; }
  std::unique_ptr<comm::Communicator> open(device::Lane&, const comm::Group&) override { return nullptr; }
  void report_failure(const std::string&, Exit) override {}
  std::vector<std::string> exchange(const std::string& mine) override {
    if (!told_) {
      told_ = true;
      return {mine, "another clock\nanother host"};
    }
    std::string theirs = mine;
    for (std::size_t at = sizeof(std::int64_t); at < theirs.size(); at += sizeof(std::int64_t)) {
      std::int64_t time = 0;  // spans follow the step's number
      std::memcpy(&time, theirs.data() + at, sizeof time);
      if (time != 0) time += ahead_;
      std::memcpy(theirs.data() + at, &time, sizeof time);
    }
    return {mine, theirs};
  }

 private:
  device::Arena allocate_host(std::size_t bytes) override { return device::Arena(bytes); }
  std::int64_t ahead_;
  bool told_ = false;
  AbortToken abort_;
};

TEST_F(TracedRun, NodesAreAlignedAtTheConsensus) {
  const Recipe recipe = load_recipe({}, sets({"zero.stage=1"}));
  const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
  std::vector<Span> spans = simulate(job.plan, nominal_profile(job.plan));
  for (Span& span : spans) span = {span.begin + 1'000'000'000, span.end + 1'000'000'000};
  const auto& tasks = job.plan.tasks;
  const auto left_out = std::find_if(tasks.begin(), tasks.end(), has_row) - tasks.begin();
  spans[static_cast<std::size_t>(left_out)] = {};  // stays out
  for (const std::int64_t ahead : {std::int64_t{7'000'000'000'000}, std::int64_t{-999'000'000}}) {
    TraceRecorder recorder(job.plan, {{3, 3}}, 0, 4);
    recorder.record(3, spans);
    FarWorld world(ahead);
    ReportFile file(trace_, "report.trace");
    EXPECT_EQ(write_trace(&file, recorder, plans_of(job), *job.model, world), 2);
    file.close();
    const TraceEvents trace = tests::read_trace(text_of_file(trace_));
    EXPECT_THAT(trace.processes.at(0), testing::StartsWith("rank 0 on "));
    EXPECT_EQ(trace.processes.at(1), "rank 1 on another host");
    EXPECT_THAT(text_of_file(trace_), HasSubstr("nodes are aligned at the end of each step's consensus"));
    const auto near = trace.tasks_of(0), far = trace.tasks_of(1);
    ASSERT_EQ(near.size(), tasks_with_rows(job.plan) - 1);
    ASSERT_EQ(far.size(), near.size());
    for (std::size_t t = 0; t < near.size(); ++t) EXPECT_EQ(near[t].begin, far[t].begin) << near[t].name;
  }
}

TEST_F(TracedRun, LimitsTheTraceToTheFirstRanks) {
  const Recipe recipe = load_recipe({}, sets({}));
  comm::run_threads(3, [&](comm::World& world) {
    const Job job = make_job(open_workload(recipe), 3, capacity_of(recipe.memory, 1));
    TraceRecorder recorder(job.plan, {{1, 2}}, 0, 4);
    for (const std::int64_t step : {1, 2}) {
      std::vector<Span> spans = simulate(job.plan, nominal_profile(job.plan));
      for (Span& span : spans) span = {span.begin + step * 1'000'000'000, span.end + step * 1'000'000'000};
      recorder.record(step, spans);
    }
    const std::size_t tasks = job.plan.tasks.size();
    for (const auto& [most, ranks] : {std::pair{4 * tasks, 2}, {4 * tasks - 1, 1}, {std::size_t{1}, 1}}) {
      std::optional<ReportFile> file;
      if (world.rank() == 0) file.emplace(trace_, "report.trace");
      EXPECT_EQ(write_trace(file ? &*file : nullptr, recorder, plans_of(job), *job.model, world, most), ranks);
      if (!file) continue;
      file->close();
      const TraceEvents trace = tests::read_trace(text_of_file(trace_));
      EXPECT_EQ(trace.processes.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(trace.ranks, 3);
      EXPECT_EQ(trace.tasks_of(ranks - 1).size(), 2 * tasks_with_rows(job.plan));
    }
  });
}

// Stages have different tasks, and messages between them.
TEST_F(TracedRun, ContainsRanksOfAllPipelineStages) {
  for (const char* keys : {"parallel.schedule=1f1b", "parallel.schedule=interleaved"}) {
    const Recipe recipe = load_recipe({}, sets({"parallel.stages=2", "model.config.n_layer=4", keys,
                                                std::string("parallel.chunks=") + (keys[18] == '1' ? "1" : "2")}));
    const Capacity capacity = capacity_of(recipe.memory, 1);
    const std::vector<Job> jobs = jobs_of_stages(open_workload(recipe), 4, capacity);
    const std::vector<const StepPlan*> plans = {&jobs[0].plan, &jobs[1].plan};
    const auto spans = simulate(plans, nominal_profile(jobs[0].plan));
    std::size_t messages = 0, waits = 0;
    for (const StepPlan* const plan : plans) {
      waits += waits_between_rows(*plan, false);
      messages += static_cast<std::size_t>(std::ranges::count(plan->tasks, TaskKind::send, &Task::kind));
    }
    ASSERT_GT(messages, 0u);
    comm::run_threads(4, [&](comm::World& world) {
      const auto stage = static_cast<std::size_t>(world.rank() / 2);
      TraceRecorder recorder(*plans[stage], {{1, 1}}, 0, 4);
      recorder.record(1, spans[stage]);
      for (const int ranks : {2, 1}) {
        std::optional<ReportFile> file;
        if (world.rank() == 0) file.emplace(trace_, "report.trace");
        const std::size_t most = static_cast<std::size_t>(ranks) * (plans[0]->tasks.size() + plans[1]->tasks.size());
        const std::vector<const StepPlan*> own = {plans[stage]};
        EXPECT_EQ(write_trace(file ? &*file : nullptr, recorder, file ? plans : own, *jobs[0].model, world, most),
                  ranks);
        if (!file) continue;
        file->close();
        const TraceEvents trace = tests::read_trace(text_of_file(trace_));
        EXPECT_EQ(trace.processes.size(), 2 * static_cast<std::size_t>(ranks));
        EXPECT_EQ(trace.processes.at(2), "rank 2 (stage 1)");
        for (const int rank : {0, ranks - 1, 2, 1 + ranks})
          EXPECT_EQ(trace.tasks_of(rank).size(), tasks_with_rows(*plans[static_cast<std::size_t>(rank / 2)])) << rank;
        EXPECT_EQ(trace.arrows.size(), static_cast<std::size_t>(ranks) * (waits + messages));
        const auto crosses = [](const TraceEvents::Arrow& arrow) { return arrow.from.first != arrow.to.first; };
        EXPECT_EQ(static_cast<std::size_t>(std::ranges::count_if(trace.arrows, crosses)),
                  static_cast<std::size_t>(ranks) * messages);
        for (const TraceEvents::Arrow& arrow : trace.arrows) {
          if (!crosses(arrow)) continue;
          EXPECT_EQ(arrow.from.first % 2, arrow.to.first % 2) << "to the rank at the same place";
        }
      }
    });
    const TraceEvents trace = tests::read_trace(planned_trace(plans, *jobs[0].model, spans));
    EXPECT_EQ(trace.processes.at(0), "stage 0: rank 0, planned: all 2 ranks of the stage alike");
    EXPECT_EQ(trace.processes.at(2), "stage 1: rank 2, planned: all 2 ranks of the stage alike");
    EXPECT_EQ(trace.arrows.size(), waits + messages);
  }
}

// The first step has no earlier update to do, and neither has a step after a skipped one.
TEST_F(TracedRun, OmittedTasksHaveNoTimes) {
  const Recipe recipe = load_recipe(
      {}, sets({"training.precision=fp16", "zero.optimizer=nvme", "fp16.growth_interval=1", "training.max_steps=40"}));
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
    ASSERT_TRUE(job.plan.cyclic);
    Trainer trainer(job, world, 1);
    trainer.load_initial_weights(1);
    bool has_update = false, seen = false;
    while (!trainer.done()) {
      trainer.executor().time_next_step();  // to its last task
      const StepReport report = trainer.step(false);
      for (std::size_t t = 0; t < job.plan.tasks.size(); ++t)
        EXPECT_EQ(trainer.executor().spans()[t].end != 0,
                  (has_update || job.plan.tasks[t].when != When::pending) && has_row(job.plan.tasks[t]))
            << report.step;
      seen = seen || (report.step > 1 && !has_update);
      has_update = !report.skipped;
    }
    EXPECT_TRUE(seen) << "no step was skipped";
  });
}

}  // namespace
}  // namespace strata::runtime
