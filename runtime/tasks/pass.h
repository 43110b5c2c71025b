#pragma once
#include <utility>

#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// The operands of every call of a unit for one micro-batch, on the whole unit or one part of it, in addition to the
// step's batch, scalars and constants. These are buffers; -1: not needed.
struct UnitCall {
  UnitPart which;
  int micro_batch;
  // Its own: what it trains, what of it is frozen, and what of that was unpacked.
  int parameters = -1, frozen = -1, unpacked = -1;
  int shared_parameters = -1;  // the pool of the unit that holds what it shares
  int x = -1;                  // its input
  Written workspace = {};      // one for all parts of a call
  bool of_whole = false;       // its own buffers but `unpacked` hold the whole unit, of which this is a part

  // Adds the task and its uses of these.
  Task& add(Draft& draft, TaskKind kind) const;
  // Adds the batch, scalars and constants, and the cost that the unit reports.
  static void use_control(const Draft& draft, Task& task);
  static void set_work(const Draft& draft, Task& task, const models::Work& work);
  // The form that the unit takes.
  static models::Context context(const Site& site, const Task& task);
  static device::ConstView input(const Site& site, const Task& task);
  // Elements of its input and output: for all rows of a micro-batch, or for the one row of a generation.
  static std::size_t activations(const Site& site);
  // The parts of its unit that a task runs: [first, last).
  static std::pair<std::size_t, std::size_t> parts(const Site& site, const Task& task);
  // Writes zeros where nothing else writes: between the parameters that the task's gradients cover.
  static void zero_gaps(const Site& site, const Task& task, device::Lane& lane, const device::View& gradients);
  // Counts elements that are not finite in the activations or gradients that the call returns.
  static void count_nonfinite(const Site& site, const Task& task, device::Lane& lane, const device::View& values);
};

// A unit's forward, or its recomputation in backward for what it saves.
struct Forward {
  UnitCall call;
  bool again = false;
  Written saved = {};  // what it keeps for backward
  int cache = -1;      // keys and values of the earlier rows, if the run generates
  Written y = {};      // its output; none: nobody needs it

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// A unit's backward.
struct Backward {
  UnitCall call;
  int saved = -1;  // by its forward
  int residual;    // gradient of the residual stream: dy on entry, dx on exit
  int gradients = -1,
      shared_gradients = -1;  // of its own parameters; of what it shares; -1: nothing of them is trained

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
