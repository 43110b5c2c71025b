#pragma once
// launcher/commands/plan/ is `strata plan`: the plan of one recipe as a table, trace or page (plan.cc), or as JSON
// (plan_json.cc). This header has the stages of a pipeline, the prediction from a machine file, and comparisons with
// the ZeRO stages, with other settings, and with other micro-batches.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_writer.h"
#include "launcher/commands/commands.h"
#include "launcher/forecast.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"
#include "runtime/job/search/micro_batch.h"
#include "runtime/job/search/suggestion.h"
#include "runtime/plan/task_kind.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// The input of a plan: a workload on a number of ranks, each with `capacity`, on machines with ranks_per_node ranks
// each. `machine` predicts times if there is a machine file.
struct PlanSetup {
  const runtime::Workload& workload;
  int ranks;
  const runtime::Capacity& capacity;
  const std::optional<runtime::Machine>& machine;
  int ranks_per_node;
};

// One stage of a pipeline in a step, from a simulation of all stages together.
struct PlannedStage {
  runtime::Job job;                       // the job of the stage's first rank
  std::optional<double> step_ms;          // only with a machine file
  double idle_share;                      // the share of the step in which the compute lane is idle
  std::vector<runtime::Span> spans = {};  // when its tasks run
};

// Plans every stage. Without a machine, idle shares are based on nominal speeds. Throws what make_job throws.
std::vector<PlannedStage> plan_pipeline(const PlanSetup& setup);
// A setup as one row of a table: the job of the stage with the largest device peak, whether all stages fit, and, with a
// machine file, the time of the slowest stage.
struct PlannedStep {
  runtime::Job job;
  bool fits;
  std::optional<double> step_ms, tokens_per_s;
};
PlannedStep plan_step(const PlanSetup& setup);
// The stage of a rank. Without a rank, the stage with the largest device peak.
std::size_t stage_of(const std::vector<PlannedStage>& stages, std::optional<int> rank);
// The rank whose memory is shown: the requested rank, otherwise the first rank of the job's stage.
int rank_shown(const runtime::Job& job, std::optional<int> asked);
// "rank 2's (stage 1)", or "a rank's" if all need the same and no rank was requested.
std::string whose_text(const runtime::Job& job, std::optional<int> asked);
// The stage that ends the step last; the stage of `rank` if it is given. Only with a machine file.
std::size_t slowest_of(const std::vector<PlannedStage>& stages, std::optional<int> rank);
// The stages in the form that forecast() takes, pointing into `stages`.
std::vector<runtime::SimulatedStage> simulated(const std::vector<PlannedStage>& stages);
// The job's split as a list for parallel.split; empty if no list describes it.
std::vector<std::int64_t> split_of(const runtime::Job& job);
// One row per stage, and the split that parallel.split = "auto" chose, or whether it would be faster than a list.
std::string pipeline_text(const PlanSetup& setup, const std::vector<PlannedStage>& stages);
// The step of all stages (docs/formats.md, "Traces").
std::string pipeline_trace(const std::vector<PlannedStage>& stages);
// The table as a member of plan --json.
JsonArray pipeline_json(const std::vector<PlannedStage>& stages);

// The prediction that `plan --machine` adds.
struct Prediction {
  Forecast forecast;
  std::vector<Speedup> speedups;
  std::vector<std::string> untried;  // of Speedups
  std::string advice;                // what would help apart from `speedups`
  int measured_ranks;                // the number of ranks when the machine file was measured
  bool measured;                     // false: derived from data sheets
  std::optional<double> spread;      // between the measurements
  std::string scaling;               // how speeds were scaled to the job's ranks; empty: they were not
};
// Looks for speedups in the recipe as the user wrote it. `job`, `stages`: as for forecast().
Prediction predict(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                   const runtime::Machine& machine, const runtime::Job& job, const runtime::Capacity& capacity,
                   int ranks_per_node, std::span<const runtime::SimulatedStage> stages);
// The step of a job without pipeline stages (docs/formats.md, "Traces"), at nominal speeds if there is no prediction.
std::string step_trace(const runtime::Job& job, const std::optional<Prediction>& prediction);
// Prints the prediction to stdout in human-readable form.
void print_prediction(const Prediction& p);
// Members of plan --json.
JsonObject prediction_json(const Prediction& p, const runtime::StepPlan& plan);

// The memory and time that the recipe needs at one ZeRO stage.
struct ZeroStage {
  runtime::Job job;
  bool fits;
  std::optional<double> step_ms;  // only with a machine file
  std::string groups = {};  // the key of zero.*_group that is "node" here, without "zero."; empty: the recipe's groups
};

// Plans stages 0 to 3 for this number of ranks. Throws what make_job throws.
std::vector<ZeroStage> plan_stages(const PlanSetup& setup);
// Adds stages with state in groups if there are several nodes with several ranks each: the ranks of a node together
// hold the parameters, or everything that the stage shards. Adds nothing if the recipe sets groups itself.
void add_group_stages(std::vector<ZeroStage>& stages, const PlanSetup& setup);
// Prints one row per stage next to the figures of the ZeRO paper (Rajbhandari et al. 2020), with footnotes, to stdout.
void print_stages(const std::vector<ZeroStage>& stages);
// The same as a member of plan --json.
JsonArray stages_json(const std::vector<ZeroStage>& stages);

// A row of `plan --table`: one setting of a recipe, the memory of its plan, and with a machine file its step time.
struct PlannedSetting {
  int stage;
  device::DType precision;
  runtime::Recompute recompute;
  bool vertical, fits;
  runtime::Memory memory;
  std::optional<double> step_ms, tokens_per_s;
};

// Plans the recipe in each precision, with each recomputation (including the blocks that the recipe lists), and for
// several ranks at each ZeRO stage. Skips settings that the recipe's other keys exclude. Runs nothing.
std::vector<PlannedSetting> plan_settings(const PlanSetup& setup);
std::string settings_text(const std::vector<PlannedSetting>& settings);
// ,"table":[{"stage":0,"precision":"bf16",...}]
JsonArray settings_json(const std::vector<PlannedSetting>& settings);

// The predicted speed of a step with a micro-batch of this size. path_per_token: where its time goes.
struct BatchSpeed {
  std::int64_t size;
  std::string_view order;  // planned order of micro-batches and units
  runtime::Memory memory;
  double step_ms, tokens_per_s;
  runtime::BoundSeconds path_per_token;
};

// The result of `plan --max-batch`: the largest micro-batch that fits and, with a machine, the speeds of this and of
// smaller micro-batches in ascending order, whose sizes are powers of two, or divisors of training.global_batch_size.
struct MaxBatch {
  runtime::LargestBatch largest;
  std::vector<BatchSpeed> speeds;
  std::int64_t part = 0;     // a rank's sequences of training.global_batch_size, a multiple of each size; 0: not set
  int multiple = 1;          // a divisor that the number of micro-batches must have
  bool interleaved = false;  // the multiple comes from the pipeline's schedule

  // The size with the most tokens per second; null without a machine, or if nothing fits.
  const BatchSpeed* fastest() const;
};
// Throws what largest_micro_batch() and forecast() throw.
MaxBatch find_max_batch(const PlanSetup& setup);

// Human-readable lines: the largest size, what the next larger size would need, and which size is fastest and why.
std::string max_batch_text(const MaxBatch& found);
// {"size":8,"too_large":{...},"fastest":4,"speeds":[...]}; size is null if nothing fits.
std::string max_batch_json(const MaxBatch& found);

// The number of training tasks of each kind. The host's tasks between steps and tasks for checkpoints do not count.
using TaskCounts = std::array<std::size_t, runtime::kTaskKinds>;
TaskCounts count_tasks(const runtime::StepPlan& plan);

// The results of `strata plan`: the job that the table shows, and the other plans that were made for it.
struct PlanFindings {
  const runtime::Job& job;
  bool fits;                                        // of all stages
  const std::vector<runtime::Suggestion>& nearest;  // empty if it fits
  const std::optional<Prediction>& prediction;      // only with a machine file
  const runtime::StepPlan& slowest;                 // of the stage that was predicted
  const std::vector<PlannedStage>& pipeline;        // empty without pipeline stages
  const std::vector<ZeroStage>& stages;             // with --stages or --html
  const std::vector<PlannedSetting>& settings;      // with --table
  const std::optional<MaxBatch>& largest;           // with --max-batch
};
// Writes the file of --json, which must be set (docs/formats.md).
void write_plan_json(const PlanOptions& options, const PlanSetup& setup, const PlanFindings& found);

}  // namespace strata::launcher
