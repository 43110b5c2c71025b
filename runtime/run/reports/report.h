#pragma once
// runtime/run/reports/ writes what a run tells of itself: lines of steps and the summary (here), CSV, TensorBoard's
// event files, traces.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
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

// How a model goes on from a prompt of evaluation.prompts.
struct Answer {
  std::string prompt, completion;
};
// What an evaluation during a run says: a line of its own in report.jsonl, {"step":100,"eval_loss":2.31,...}.
struct EvaluationReport {
  std::int64_t step;  // after which it was made; 0: before the first
  double loss;
  std::uint64_t tokens, sequences;  // tokens: labels
  double tokens_per_s;
  bool best;                                                 // the best one so far, by evaluation.metric
  double time;                                               // seconds since the epoch
  std::vector<std::pair<std::string, double>> metrics = {};  // others, by name: "eval_accuracy"
  std::vector<Answer> answers = {};
  std::vector<std::string> notes = {};  // why a metric is missing, for the user
};
// A line of report.jsonl for an answer.
std::string answer_line(std::int64_t step, const Answer& answer);
std::string evaluation_line(const EvaluationReport& report);

// {"device": {"planned_peak_bytes": ..., ...}}: predicted memory, and what was measured if there is any.
std::string memory_json(const Memory& planned, const Memory* measured);
std::string comm_json(const comm::CommBytes& bytes);
// {"data":8,"tensor":1,"stages":1,"node":4}; node: the ranks of each, null if nodes are not alike.
std::string mesh_json(const Mesh& mesh);
std::string exposed_json(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin = -1);
// Moved by a step to and from each tier below the device; nothing is there yet.
std::string io_json(const IoBytes& bytes);

// What report.summary adds to the last steps.
struct Summary {
  std::int64_t steps;
  std::int64_t skipped_steps;  // of these; fp16: gradients or the forward were not finite
  std::uint64_t tokens;
  double tokens_per_s;  // of the median step, the first two left out
  double flops_per_token;
  std::size_t trained_parameters;
  std::string weights_hash;
  std::string base_hash;  // of an adapter's base; else empty
  Memory measured;
  comm::CommBytes comm_bytes;           // a step, this rank
  IoBytes io_bytes;                     // a step, this rank
  std::vector<std::uint64_t> peak_rss;  // by rank
  std::vector<double> compute_ms;       // of a step, the median, by rank; empty: nobody looked (control.* is off)
  // Of rank 0's GPU, if it has one: before the run's memory was taken, and when its last step was done.
  std::optional<device::GpuMemory> gpu_before, gpu_at_end;
  std::vector<Span> spans;  // of step `timed_step`, the newest that was issued task by task
  BoundSeconds path;        // what that step's time went to, along its critical path
  std::int64_t timed_step;
  std::optional<double> timed_ms;                // that step took; none: it was stopped before it was done
  std::int64_t graph_steps;                      // launched as a graph
  double validate_ms;                            // that the proof of the plan took
  std::optional<CheckpointFigures> checkpoints;  // where the run writes them
  std::string data;                              // data_json(); empty: the run has none
  std::optional<Best> best;                      // where the run evaluates between steps
  std::string metric;                            // that says so
  int exit;
};
// Of step `timed_step`, what is in no task of its critical path, in ms: the host's work before and behind the tasks,
// and waiting for cores that others have.
double in_no_task_ms(const Summary& summary);
std::string summary_json(const StepPlan& plan, const Summary& summary);

}  // namespace strata::runtime
