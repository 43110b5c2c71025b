// The numerics contract under a real mpirun: the same bits on any number of ranks, over both transports, at ZeRO-0 and
// ZeRO-3, with the memory and traffic that `strata plan` predicts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <fstream>
#include <iterator>
#include <map>

#include "tests/dist/tiny_run.h"
#include "tests/trace_events.h"

namespace strata::tests {
namespace {

using simdjson::dom::element;

// The figures of a run or a plan as text, by tier and kind of memory and by kind of collective.
using Figures = std::map<std::string, std::string>;

Figures figures(const element& report, const char* peak, const char* by_kind) {
  Figures all;
  for (const auto tier : simdjson::dom::object(report["memory"])) {
    all[std::string(tier.key)] = simdjson::minify(tier.value[peak]);
    for (const auto kind : simdjson::dom::object(tier.value[by_kind]))
      all[fmt::format("{} {}", tier.key, kind.key)] = simdjson::minify(kind.value);
  }
  for (const auto kind : simdjson::dom::object(report["comm_bytes"]))
    all[fmt::format("{} bytes", kind.key)] = simdjson::minify(kind.value);
  return all;
}

struct Result {
  std::vector<std::string> losses;
  std::string weights;
  Figures planned, measured;
};

class Train : public testing::Test {
 protected:
  std::vector<std::string> sets(int ranks, int stage, int pipeline = 1) const {
    return {fmt::format("zero.stage={}", stage),
            fmt::format("training.gradient_accumulation_steps={}", 4 * pipeline / ranks),
            fmt::format("parallel.stages={}", pipeline), "training.recompute=sqrt", "model.config.attn_pdrop=0.1"};
  }

  Result train(int ranks, const std::string& transport, int stage, int pipeline = 1,
               const std::vector<std::string>& more = {}) {
    auto all = sets(ranks, stage, pipeline);
    all.insert(all.end(), more.begin(), more.end());
    for (const std::string& set : {"comm.transport=" + transport, "report.summary=" + run_.file("summary.json"),
                                   "report.jsonl=" + run_.file("steps.jsonl")})
      all.push_back(set);
    const Outcome outcome = run(under_mpirun(ranks, run_.train(all)));
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.complaints(), testing::IsEmpty());
    Result result;
    simdjson::dom::parser parser;
    for (const element line : parser.load_many(run_.file("steps.jsonl")))
      result.losses.emplace_back(std::string_view(line["loss_hex"]));
    const element summary = parser.load(run_.file("summary.json"));
    result.weights = std::string_view(summary["weights_hash"]);
    result.planned = figures(summary, "planned_peak_bytes", "planned_by_kind");
    result.measured = figures(summary, "measured_peak_bytes", "by_kind");
    EXPECT_EQ(std::int64_t(summary["exit"]), 0);
    EXPECT_EQ(simdjson::dom::array(summary["process_peak_rss_bytes"]).size(), static_cast<std::size_t>(ranks));
    return result;
  }

  Figures plan(int ranks, int stage, int pipeline = 1, const std::vector<std::string>& more = {}) {
    auto all = sets(ranks, stage, pipeline);
    all.insert(all.end(), more.begin(), more.end());
    auto command = run_.command("plan", all);
    for (const std::string& word : {std::string("--ranks"), std::to_string(ranks), std::string("--ranks-per-node"),
                                    std::to_string(ranks), std::string("--json"), run_.file("plan.json")})
      command.push_back(word);
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    simdjson::dom::parser parser;
    return figures(parser.load(run_.file("plan.json")), "planned_peak_bytes", "by_kind");
  }

  TinyRun run_;
};

TEST_F(Train, SameBitsAsPlannedOnAnyNumberOfRanks) {
  std::optional<Result> first;
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 3}) {
      const Figures predicted = plan(ranks, stage);
      for (const char* transport : {"shared", "messages"}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, {}", ranks, stage, transport));
        const Result result = train(ranks, transport, stage);
        if (!first) first = result;
        ASSERT_EQ(result.losses.size(), 3u);
        EXPECT_EQ(result.losses, first->losses);
        EXPECT_EQ(result.weights, first->weights);
        EXPECT_EQ(result.measured, predicted);
        EXPECT_EQ(result.planned, predicted);
        EXPECT_EQ(predicted.at("total bytes") == "0", ranks == 1);
      }
    }
  EXPECT_NE(first->losses[1], first->losses[2]) << "the weights must change";
}

// A tied model, whose last stage has a copy of the table. The summary lists the stages; its memory is that of the stage
// with the largest planned peak.
TEST_F(Train, SameBitsInStagesOfAPipeline) {
  const Result alone = train(1, "shared", 0);
  for (const auto& [ranks, chunks] : {std::pair{2, 1}, {4, 1}, {2, 2}, {4, 2}})
    for (const char* transport : {"shared", "messages"}) {
      SCOPED_TRACE(fmt::format("{} ranks in 2 stages of {}, {}", ranks, chunks, transport));
      const std::vector<std::string> more = {fmt::format("parallel.chunks={}", chunks),
                                             "report.trace=" + run_.file("trace.json"),
                                             fmt::format("parallel.schedule={}", chunks > 1 ? "interleaved" : "1f1b")};
      const Result result = train(ranks, transport, 3, 2, more);
      EXPECT_EQ(result.losses, alone.losses);
      EXPECT_EQ(result.weights, alone.weights);
      std::ifstream file(run_.file("trace.json"));
      const auto trace = tests::read_trace({std::istreambuf_iterator<char>(file), {}});
      EXPECT_EQ(trace.processes.size(), static_cast<std::size_t>(ranks));
      EXPECT_FALSE(trace.tasks_of(ranks - 1).empty());
      simdjson::dom::parser parser;
      const element summary = parser.load(run_.file("summary.json"));
      EXPECT_EQ(std::int64_t(summary["mesh"]["stages"]), 2);
      const auto stages = simdjson::dom::array(summary["stages"]);
      ASSERT_EQ(stages.size(), 2u);
      std::size_t largest = 0, units = 0;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        const element stage = stages.at(s);
        EXPECT_EQ(std::int64_t(stage["planned_peak_bytes"]), std::int64_t(stage["measured_peak_bytes"]));
        if (std::int64_t(stage["planned_peak_bytes"]) > std::int64_t(stages.at(largest)["planned_peak_bytes"]))
          largest = s;
        units += simdjson::dom::array(stage["units"]).size();
      }
      EXPECT_GE(units, 4u) << "embedding, blocks, head";
      EXPECT_EQ(std::int64_t(summary["memory_rank"]), static_cast<std::int64_t>(largest) * ranks / 2);
      EXPECT_EQ(result.measured.at("device"), result.planned.at("device"));
      EXPECT_EQ(result.measured.at("device"), simdjson::minify(stages.at(largest)["planned_peak_bytes"]));
      const Figures predicted = plan(ranks, 3, 2, more);
      EXPECT_EQ(result.measured.at("device"), predicted.at("device"));
      for (const auto& [name, bytes] : predicted)
        if (name.ends_with(" bytes")) {
          EXPECT_EQ(result.measured.at(name), bytes) << name;
        }
    }
}

// Ranks share each block. Their partial sums are read in place or sent as messages. The last rank has fewer words.
TEST_F(Train, SameBitsOverRanksThatShareBlocks) {
  const std::vector<std::string> shards = {"parallel.tensor_shards=4", "model.config.n_head=4",
                                           "model.config.vocab_size=261"};
  const Result alone = train(1, "shared", 0, 1, shards);
  for (const int tensor : {2, 4})
    for (const int data : {1, 2})
      for (const char* transport : {"shared", "messages"}) {
        SCOPED_TRACE(fmt::format("{} data ranks of {}, {}", data, tensor, transport));
        const Result result =
            // `tensor` stands for stages in the number of micro-batches.
            train(data * tensor, transport, data == 1 ? 0 : 3, tensor,
                  {shards[0], shards[1], shards[2], fmt::format("parallel.tensor={}", tensor), "parallel.stages=1",
                   fmt::format("parallel.sequence={}", tensor == 4)});
        EXPECT_EQ(result.losses, alone.losses);
        EXPECT_EQ(result.weights, alone.weights);
        EXPECT_EQ(result.measured, result.planned);
      }
}

TEST_F(Train, SameBitsRunToRun) {
  const Result first = train(2, "shared", 3), again = train(2, "shared", 3);
  EXPECT_EQ(first.losses, again.losses);
  EXPECT_EQ(first.weights, again.weights);
}

// The command reads, plans, checks, and reports the results.
TEST_F(Train, ZeroStepsOnlyCheckTheRecipe) {
  for (const int ranks : {1, 2}) {
    const Outcome outcome = run(under_mpirun(
        ranks, run_.train({"training.max_steps=0", "report.summary=" + run_.file("summary.json"), "zero.stage=2"})));
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.complaints(), testing::IsEmpty());
    simdjson::dom::parser parser;
    const element summary = parser.load(run_.file("summary.json"));
    EXPECT_EQ(std::int64_t(summary["steps"]), 0);
    EXPECT_EQ(std::int64_t(summary["exit"]), 0);
    EXPECT_EQ(std::int64_t(summary["comm_bytes"]["total"]), 0);
  }
}

// The user's binding of mpirun itself applies to its ranks, even through a shell. mpirun's binding of a rank does not.
TEST_F(Train, KeepsToTheProcessorsOfMpirunItself) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two processors";
  std::vector<std::string> bound = under_mpirun(1, run_.train({"training.max_steps=0"}));
  EXPECT_THAT(run(bound).errors, testing::Not(testing::HasSubstr("1 thread per rank")));
  bound.insert(bound.begin(), {"taskset", "-c", "1"});
  EXPECT_THAT(run(bound).errors, testing::HasSubstr("1 thread per rank (1 core that its starter may use)"));
}

TEST_F(Train, AnUnknownInterfaceIsNotedOnOneNode) {
  const Outcome outcome = run(run_.train({"control.interface=nope0", "training.max_steps=0"}));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              testing::AllOf(testing::HasSubstr("control.interface = \"nope0\": this machine has no such"),
                             testing::HasSubstr("; a run on one node needs none")));
}

// This includes checkpoints of an evaluation before the first step, and after a step that is not saved otherwise.
TEST_F(Train, EveryStartedCheckpointIsAnEvent) {
  run_.write_tokens("validation.bin", 200);
  const Outcome outcome = run(run_.train({"data.validation=" + run_.file("validation.bin"), "training.max_steps=3",
                                          "evaluation.every=2", "evaluation.at_start=true", "checkpoint.keep_best=true",
                                          "checkpoint.dir=" + run_.file("ck"), "report.dir=" + run_.file("reports")}));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  std::vector<std::string> steps;
  simdjson::dom::parser parser;
  for (const element line : parser.load_many(run_.file("reports/events.jsonl")))
    if (line["event"].get_string().value() == "checkpoint") steps.push_back(simdjson::minify(line["step"]));
  EXPECT_THAT(steps, testing::ElementsAre("0", "2", "3"));
}

TEST_F(Train, ExhaustedPatienceEndsAResumedRunAtOnce) {
  run_.write_tokens("validation.bin", 200);
  const auto command =
      run_.train({"data.validation=" + run_.file("validation.bin"), "training.max_steps=50", "evaluation.every=2",
                  "evaluation.at_start=true", "evaluation.greater_is_better=true", "evaluation.patience=2",
                  "checkpoint.dir=" + run_.file("ck")});
  const Outcome first = run(command), second = run(command);
  EXPECT_EQ(first.code, 0) << first.all();
  EXPECT_THAT(first.errors, testing::HasSubstr("ends after step 4: 2 evaluations in a row"));
  EXPECT_EQ(second.code, 0) << second.all();
  EXPECT_THAT(second.errors, testing::HasSubstr("no steps remain: evaluation.patience = 2 was used up after step 4"));
  EXPECT_THAT(second.errors, testing::Not(testing::HasSubstr("step 5/")));
}

// The run would overwrite the report, or remove it with the checkpoint.
TEST_F(Train, RefusesAReportPathThatTheRunWrites) {
  for (const char* set : {"report.jsonl=ck/control.json", "report.trace=ck/control.json", "report.summary=ck/lock",
                          "report.dir=ck/step-00000002", "report.tensorboard=ck/step-00000002/events"}) {
    const std::string text = set;
    const std::size_t at = text.find("ck/");
    EXPECT_COMPLAINT(
        run(run_.train({text.substr(0, at) + run_.file(text.substr(at)), "checkpoint.dir=" + run_.file("ck")})), 2,
        testing::AllOf(testing::HasSubstr(text.substr(0, at - 1)),
                       testing::HasSubstr("the run itself writes or removes"), testing::HasSubstr("checkpoint.dir")));
    EXPECT_FALSE(std::filesystem::exists(run_.file("ck"))) << set;
  }
  const Outcome outside =
      run(run_.train({"report.dir=" + run_.file("ck/reports"), "checkpoint.dir=" + run_.file("ck")}));
  EXPECT_EQ(outside.code, 0) << outside.all();
  EXPECT_TRUE(std::filesystem::exists(run_.file("ck/reports/summary.json")));
}

TEST_F(Train, ReportsThatTheBestIsForgottenWithoutEvaluations) {
  run_.write_tokens("validation.bin", 200);
  const auto command = [&](std::vector<std::string> more) {
    more.push_back("checkpoint.dir=" + run_.file("ck"));
    return run(run_.train(more));
  };
  ASSERT_EQ(command({"data.validation=" + run_.file("validation.bin"), "evaluation.every=1"}).code, 0);
  const Outcome off = command({"training.max_steps=4", "evaluation.every=0"});
  EXPECT_EQ(off.code, 0) << off.all();
  EXPECT_THAT(off.errors, testing::AllOf(testing::HasSubstr("does not evaluate, although the one that it resumes"),
                                         testing::Not(testing::HasSubstr("the search for the best"))));
}

// A batch script's processes are not ranks. A job step of several tasks without MPI between them is a mistake.
TEST_F(Train, UnderSlurmWithoutMpi) {
  auto command = run_.train();
  const auto under = [&](std::vector<std::string> environment) {
    environment.insert(environment.begin(), "env");
    environment.insert(environment.end(), command.begin(), command.end());
    return run(environment);
  };
  EXPECT_EQ(under({"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=2"}).code, 0);
  EXPECT_COMPLAINT(under({"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}), 2,
                   testing::HasSubstr("srun --mpi=pmix"));
  // Rank 0 reports the error, and this is another rank.
  std::filesystem::copy("/bin/sh", run_.file("srun"));
  const Outcome other = under(
      {"SLURM_JOB_ID=1", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", run_.file("srun"), "-c", "\"$@\"; exit $?", "sh"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.complaints(), testing::IsEmpty()) << other.all();
}

TEST_F(Train, PrintsHelpInEveryForm) {
  const std::string all = run({kStrata, "--help"}).output, plan = run({kStrata, "plan", "--help"}).output;
  EXPECT_THAT(all, testing::HasSubstr("calibrate"));
  EXPECT_THAT(plan, testing::HasSubstr("--ranks"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help"}, {"help", "help"}}) {
    std::vector<std::string> command = words;
    command.insert(command.begin(), kStrata);
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_EQ(outcome.output, all);
  }
  EXPECT_EQ(run({kStrata, "help", "plan"}).output, plan);
}

// The environment is left over from a run that has ended: this process is not rank 3 of anything.
TEST_F(Train, AStaleEnvironmentDoesNotSilenceMessages) {
  const auto under = [&](std::vector<std::string> environment, std::vector<std::string> command) {
    environment.insert(environment.begin(), "env");
    environment.insert(environment.end(), command.begin(), command.end());
    return run(environment);
  };
  const std::vector<std::string> stale = {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8"};
  EXPECT_COMPLAINT(
      under(stale, run_.train()), 2,
      testing::AllOf(testing::HasSubstr("MPI sees only this one"),
                     testing::HasSubstr("unset variables that another run has left in the environment, such as "
                                        "OMPI_COMM_WORLD_RANK=3")));
  const Outcome wrong = under(stale, run_.train({"training.max_step=3"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.errors, testing::HasSubstr("strata: ")) << wrong.all();
  for (const char* rank : {"OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=1", "PMI_RANK=1"}) {
    const Outcome plan = under({rank}, run_.command("plan"));
    EXPECT_EQ(plan.code, 0) << plan.all();
    EXPECT_THAT(plan.output, testing::HasSubstr("parameters")) << rank;
    EXPECT_THAT(under({rank}, {kStrata, "plan", "--help"}).output, testing::HasSubstr("--ranks"));
    EXPECT_THAT(under({rank}, {kStrata, "inspect", run_.file("nowhere")}).errors, testing::HasSubstr("nowhere"));
    // Under a program that starts ranks, rank 0 does the work for all ranks.
    std::filesystem::copy("/bin/sh", run_.file("mpiexec.hydra"), std::filesystem::copy_options::overwrite_existing);
    const Outcome one = under({rank, run_.file("mpiexec.hydra"), "-c", "\"$@\"; exit $?", "sh"}, run_.command("plan"));
    EXPECT_EQ(one.code, 0) << one.all();
    EXPECT_EQ(one.output + one.errors, "") << one.all();
  }
}

}  // namespace
}  // namespace strata::tests
