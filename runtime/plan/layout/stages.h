#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/model.h"
#include "runtime/plan/layout/segments.h"

namespace strata::runtime {

// Consecutive units [first, last]: those of one pipeline stage.
struct UnitRange {
  int first = 0, last = -1;

  bool has(int unit) const { return unit >= first && unit <= last; }
  bool operator==(const UnitRange&) const = default;
};

// Throws Error{usage} if there are more pipeline stages than units.
void require_units(const models::Model& model, int stages);

// The units of each of `stages` pipeline stages. `blocks` (parallel.split) has the number of blocks per stage; the
// first stage also has the embedding, the last one the head. Throws Error{usage} if there are more stages than units,
// or if `blocks` does not have the model's blocks.
std::vector<UnitRange> split_into_stages(const models::Model& model, int stages, std::span<const std::int64_t> blocks);

// The time that a stage of these units takes, and whether a stage may have them.
using StageTime = std::function<double(const UnitRange&)>;
using MayHave = std::function<bool(int stage, const UnitRange&)>;
// The split of `units` units whose slowest stage is the fastest; of equal ones, that with the earliest cuts. Empty if
// `may_have` allows none. Every stage has a unit: there are no fewer units than stages.
std::vector<UnitRange> fastest_split(int units, int stages, const StageTime& time, const MayHave& may_have = {});
double slowest_stage(std::span<const UnitRange> stages, const StageTime& time);

// The parts of segments that lie in a stage.
std::vector<Segment> within(std::vector<Segment> segments, const UnitRange& stage);

// What a stage does for a micro-batch: a pass through its units, or a message at one of its borders.
struct StageStep {
  enum class What : std::uint8_t {
    forward,
    backward,
    receive_input,     // from the stage before
    send_output,       // to the next stage
    receive_gradient,  // of the output, from the next stage
    send_gradient,     // of the input, to the stage before
  };
  What what;
  int micro_batch;
  bool operator==(const StageStep&) const = default;
};

// A stage's steps in their order. One forward, one backward (Narayanan et al. 2019, PipeDream-Flush): the stage starts
// as many forwards as stages follow it and then alternates, so that it keeps no more activations than that. Otherwise
// all forwards come before all backwards (GPipe). Backwards always come in the order of micro-batches. All stages list
// the messages between them in one common order, so that none waits for another for ever, even if a send ends only with
// its receive and tasks wait for all that are listed before them.
std::vector<StageStep> steps_of_stage(int stage, int stages, int micro_batches, bool all_forward_first);

}  // namespace strata::runtime
