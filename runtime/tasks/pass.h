#pragma once
#include <utility>

#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// The operands that all calls of a unit have: one micro-batch, on the whole unit or one part of it. They are buffers,
// in addition to the step's batch, scalars and constants; -1: not needed.
struct UnitCall {
  UnitPart which;
  int micro_batch;
  // The unit's own parameters: trained, frozen, and quantised ones that were unpacked.
  int parameters = -1, frozen = -1, unpacked = -1;
  int shared_parameters = -1;   // the pool, of another unit, that holds what this one shares
  int x = -1;                   // the unit's input
  OutputBuffer workspace = {};  // shared by all parts of a call
  bool unit_gathered = false;   // a part, but the unit's own buffers except `unpacked` hold the whole unit
  // For a call with seams: its stretch, and their number; whether it leaves work for the time of the exchange, or is
  // that work; its partial sums, and the total of the partial sums that the previous stretch left.
  int stretch = -1, stretches = 1;
  double share = 1;  // the stretch's share of the call's products
  bool leaves_work = false, overlaps_exchange = false;
  int partial = -1, total = -1;

  // Adds the task and its uses of these operands.
  Task& add(Draft& draft, TaskKind kind) const;
  // use_control adds uses of the batch, scalars and constants; set_work adds the cost that the unit reports.
  static void use_control(const Draft& draft, Task& task);
  static void set_work(const Draft& draft, Task& task, const models::Work& work);
  // The share of a call's work that belongs to its stretch. Work left for the time of an exchange counts as half of it.
  models::Work share_of(models::Work work) const;
  // The operands in the form that the unit's functions take.
  static models::Context unit_context(const TaskContext& context, const Task& task);
  static device::ConstView input(const TaskContext& context, const Task& task);
  // Elements of the unit's input and output: of a micro-batch's rows, of this rank's if ranks divide them, or of one
  // row if the run generates token by token.
  static std::size_t activations(const TaskContext& context, const Task& task);
  // The parts of its unit that a task runs: [first, last).
  static std::pair<std::size_t, std::size_t> parts(const TaskContext& context, const Task& task);
  // Writes zeros to the gaps between parameters in the task's gradients, because units write only parameters'
  // gradients.
  static void zero_gaps(const TaskContext& context, const Task& task, device::Lane& lane,
                        const device::View& gradients);
  // Counts the non-finite elements of the activations or gradients that the call returns.
  static void count_nonfinite(const TaskContext& context, const Task& task, device::Lane& lane,
                              const device::View& values);
};

// A unit's forward, or its recomputation in backward for the activations it saves (`again`).
struct Forward {
  UnitCall call;
  bool again = false;
  OutputBuffer saved = {};  // activations kept for backward
  int cache = -1;           // what the unit keeps of earlier rows, if the run generates
  OutputBuffer y = {};      // the unit's output; none: not needed

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// A unit's backward.
struct Backward {
  UnitCall call;
  int saved = -1;  // activations kept by its forward
  int residual;    // gradient of the residual stream: dy on entry, dx on exit
  // Gradients of its own parameters, and of those it shares; none: not trained.
  OutputBuffer gradients = {};
  int shared_gradients = -1;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
