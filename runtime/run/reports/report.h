#pragma once
// runtime/run/reports/ writes a run's reports: step lines and the summary (here), CSV, TensorBoard's event files,
// traces.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_writer.h"
#include "comm/communicator.h"
#include "device/gpu.h"
#include "models/model.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/execute/executor.h"
#include "runtime/forecast/simulator.h"
#include "runtime/plan/plan.h"
#include "runtime/run/reports/report_file.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// A line of report.jsonl.
std::string step_line(const StepReport& report);

// A prompt of evaluation.prompts and the model's answer.
struct Answer {
  std::string prompt, completion;
};
// The result of an evaluation during a run, on its own line of report.jsonl: {"step":100,"eval_loss":2.31,...}.
struct EvaluationReport {
  std::int64_t step;  // steps done by then; 0: before the first
  double loss;
  std::uint64_t tokens, sequences;  // tokens: labels
  double tokens_per_s;
  bool best;                                                 // the best evaluation so far, by evaluation.metric
  double time;                                               // seconds since the epoch
  std::vector<std::pair<std::string, double>> metrics = {};  // further metrics, by name: "eval_accuracy"
  std::vector<Answer> answers = {};
  std::vector<std::string> notes = {};  // why a metric is missing, for the user
};
// Lines of report.jsonl: an answer; an evaluation.
std::string answer_line(std::int64_t step, const Answer& answer);
std::string evaluation_line(const EvaluationReport& report);

// {"device": {"planned_peak_bytes": ..., ...}}: planned memory, and measured memory if there is any.
std::string memory_json(const Memory& planned, const Memory* measured);
std::string comm_json(const comm::CommBytes& bytes);
// {"data":8,"tensor":1,"stages":1,"node":4}. node: the ranks per node, null if nodes differ.
std::string mesh_json(const Mesh& mesh);
std::string exposed_json(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin = -1);
// Bytes that a step moves to and from each tier below the device.
std::string io_json(const IoBytes& bytes);

// A pipeline stage's memory, traffic and idle share, on its first rank.
struct StageFigures {
  int rank = 0;  // the stage's first
  Memory planned, measured;
  double idle_share = 0;            // share of the timed step in which the compute lane ran nothing
  comm::CommBytes comm_bytes = {};  // sent per step
  IoBytes io_bytes = {};            // per step
};
// The figures of each stage. Collective.
std::vector<StageFigures> figures_of_stages(const StageFigures& mine, const Mesh& mesh, comm::World& world);
// The stage with the largest planned peak on the device; of equal ones, the first.
const StageFigures& largest_of(std::span<const StageFigures> stages);

// The content of report.summary.
struct Summary {
  std::int64_t steps;
  std::int64_t skipped_steps;  // how many of `steps` were skipped; fp16: gradients or the forward were not finite
  std::uint64_t tokens;
  double tokens_per_s;  // the median step's speed, without the first two
  double flops_per_token;
  std::size_t trained_parameters;
  std::string weights_hash;
  std::string base_hash;                                            // hash of an adapter's base; otherwise empty
  std::vector<StageFigures> stages = std::vector<StageFigures>(1);  // at least one
  std::vector<std::uint64_t> peak_rss;                              // one per rank
  std::vector<double> compute_ms;  // median per step, by rank; empty if control.* is off
  // Rank 0's GPU, if it has one: before the run's memory was allocated, and after the run's last step.
  std::optional<device::GpuMemory> gpu_before, gpu_at_end;
  std::vector<Span> spans;  // the spans of step `timed_step`, the newest one issued task by task
  BoundSeconds path;        // that step's time by resource, along its critical path
  std::int64_t timed_step;
  std::optional<double> timed_ms;                // duration of that step; nullopt if it was stopped before its end
  std::int64_t graph_steps;                      // steps launched as a graph
  double validate_ms;                            // time that the proof of the plan took
  std::optional<CheckpointFigures> checkpoints;  // if the run writes checkpoints
  std::string data;                              // data_json(); empty if the run has no data
  std::optional<Best> best;                      // if the run evaluates between steps
  std::string metric;                            // the metric by which `best` is chosen
  int exit;
};
// The time of step `timed_step`, in ms, that is in no task of its critical path: the host's work before and after the
// tasks, and waiting for cores that other processes use.
double in_no_task_ms(const Summary& summary);
std::string summary_json(const StepPlan& plan, const models::Model& model, const Summary& summary);

}  // namespace strata::runtime
