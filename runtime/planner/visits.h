#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// One call of a unit, or of one part of it, for one micro-batch. The parts of a call follow each other.
struct Call {
  TaskKind kind;
  int unit, micro_batch;
  bool wants_output = true;  // recompute: whether the next unit of the segment needs y
  int part = -1;             // -1: the whole unit; with a step of the loss, the tile of the table
  bool starts = true, ends = true;
  std::optional<models::LossStep> step = {};  // of a loss whose table is gathered by tiles
  bool of_whole = false;                      // a part of a unit that is gathered whole
};

// Consecutive work on one unit, or one part, for which its parameters are gathered once.
struct Visit {
  int unit, part;  // what is gathered; part -1: the whole unit
  bool needs_parameters;
  std::vector<Call> calls;
};

// Which units of a step are gathered part by part: those whose gathered bytes exceed the request's tile_bytes, that
// have parts, and whose parameters nobody needs whole; if parameters are sharded or not on the device, and gradients
// sharded or the rank alone.
class Tiling {
 public:
  Tiling(const PlanRequest& request, const Layout& layout);

  bool any() const { return std::find(tiled_.begin(), tiled_.end(), true) != tiled_.end(); }
  bool tiled(int unit) const { return tiled_[static_cast<std::size_t>(unit)]; }
  // The unit that holds the table of the loss (LossUnit::table_tiles); its tiles are parts [first, first + tiles).
  int table_unit() const { return table_unit_; }
  bool table_tiled() const { return tiles_ > 0 && tiled(table_unit_); }
  int table_first() const { return table_first_; }
  int tiles() const { return tiles_; }

 private:
  std::vector<bool> tiled_;
  int table_unit_, table_first_, tiles_;
};

// The step's visits: per micro-batch (horizontal), or every micro-batch at each unit (vertical). At a unit that is
// gathered part by part each part of each micro-batch is a visit of its own.
std::vector<Visit> make_visits(const PlanRequest& request, const Tiling& tiling);

}  // namespace strata::runtime
