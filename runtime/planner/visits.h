#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// One call of a unit, or of one of its parts, for one micro-batch. The parts of a call are consecutive.
struct Call {
  TaskKind kind;
  int unit, micro_batch;
  bool wants_output = true;  // recompute: whether the next unit of the segment needs y
  int part = -1;             // -1: the whole unit; in a step of the loss: the tile of the table
  bool starts = true, ends = true;
  std::optional<models::LossStep> step = {};  // the step of a loss whose table is gathered by tiles
  bool unit_gathered = false;                 // a part of a unit that is gathered as a whole
  int stretch = -1, stretches = 1;            // the stretch of a call with seams, and their number
  double share = 1;                           // the stretch's share of the call's products
  bool leaves_work = false;                   // the stretch leaves work to run during the exchange
  bool overlaps_exchange = false;             // this is that work
};

// Consecutive calls of one unit or part, for which its parameters are gathered once.
struct Visit {
  int unit, part;  // the gathered unit and part; part -1: the whole unit
  bool needs_parameters;
  std::vector<Call> calls;
  std::vector<StageStep> messages = {};  // the pipeline's messages that are listed before the calls
  std::vector<StageStep> after = {};     // steps that the stage lists after its calls
};

// The units that are gathered part by part (tiled). Such a unit has several parts, its gathered bytes exceed the
// request's tile_bytes, and no other unit needs all its parameters together. Tiling also requires that parameters are
// sharded or not on the device; and, if the step trains, that gradients are sharded or there is one rank.
class Tiling {
 public:
  Tiling(const PlanRequest& request, const Layout& layout);

  bool any() const { return std::find(tiled_.begin(), tiled_.end(), true) != tiled_.end(); }
  bool tiled(int unit) const { return tiled_[static_cast<std::size_t>(unit)]; }
  // The unit that holds the loss's table (LossUnit::table_tiles). Tiles are its parts from table_first() on.
  int table_unit() const { return table_unit_; }
  bool table_tiled() const { return tiles_ > 0 && tiled(table_unit_); }
  int table_first() const { return table_first_; }
  int tiles() const { return tiles_; }

 private:
  std::vector<bool> tiled_;
  int table_unit_, table_first_, tiles_;
};

// The step's visits: all units for one micro-batch after another (horizontal), or all micro-batches at each unit
// (vertical). At a tiled unit, each part is visited once per micro-batch.
std::vector<Visit> make_visits(const PlanRequest& request, const Tiling& tiling);

}  // namespace strata::runtime
