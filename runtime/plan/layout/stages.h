#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/model.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Consecutive units [first, last] that run forward again together in backward. If `recompute` is false, their saved
// activations are kept instead.
struct Segment {
  int first, last;
  bool recompute;
};
// Cuts the units with an input and an output, the model's blocks and in some encoders the norm of the embedding, into
// segments, as training.recompute says; a list names blocks, and block 0 is the first layer of config.json. Units below
// the lowest trained unit have no backward, so they are in no segment. Throws Error{usage} for a block that does not
// exist.
std::vector<Segment> segments_of(const Recompute& recompute, const models::Model& model);

// Consecutive units [first, last].
struct UnitRange {
  int first = 0, last = -1;

  bool has(int unit) const { return unit >= first && unit <= last; }
  bool operator==(const UnitRange&) const = default;
};

// A pipeline of `stages` stages cuts the model into pieces of consecutive units, `chunks` times as many as stages:
// stage s has pieces s, s + stages, s + 2 stages, ... (Narayanan et al. 2021). These are the units of one stage, a
// range for each of its pieces.
struct StageUnits {
  std::vector<UnitRange> ranges;

  int first() const { return ranges.front().first; }
  int last() const { return ranges.back().last; }
  bool has(int unit) const;
  std::vector<int> all() const;
};
StageUnits units_of_stage(std::span<const UnitRange> pieces, int stages, int stage);

// Throws Error{usage} if the model has fewer units than pieces.
void require_units(const models::Model& model, int stages, int chunks = 1);

// The pieces of the model. `blocks` (parallel.split) has the number of blocks per piece; the first piece also has the
// embedding with its norm, the last one the head. Throws Error{usage} if there are more pieces than units, or if
// `blocks` does not have the model's blocks.
std::vector<UnitRange> split_into_pieces(const models::Model& model, int stages, int chunks,
                                         std::span<const std::int64_t> blocks);
// The list that gives these pieces; empty if the first piece lacks the embedding's norm, because no list gives that.
std::vector<std::int64_t> blocks_of_pieces(const models::Model& model, std::span<const UnitRange> pieces);

// The time of a piece with these units; true if a piece may have them.
using PieceTime = std::function<double(const UnitRange&)>;
using MayHave = std::function<bool(int piece, const UnitRange&)>;
// Cuts `units` units into pieces so that the slowest stage is as fast as possible; of equal results, takes the split
// with the earliest cuts. With several chunks, stages are balanced once by the total time of their pieces and once by
// the time of each chunk's slowest piece. The split with the lower schedule_time() is taken. No shift of neighbouring
// cuts by a unit improves the criterion by which it was balanced. Empty if `may_have` allows none. There must be at
// least as many units as pieces, because every piece has a unit.
std::vector<UnitRange> fastest_split(int units, int stages, int chunks, const PieceTime& time,
                                     const MayHave& may_have = {});
double slowest_stage(std::span<const UnitRange> pieces, int stages, const PieceTime& time);
// The time of a few micro-batches per stage in the order of steps_of_stage (not all forwards first), if backward takes
// twice as long as forward and messages take no time.
double schedule_time(std::span<const UnitRange> pieces, int stages, const PieceTime& time);

// Cuts segments at the stage's ranges: returns the parts inside of them, each within one range.
std::vector<Segment> within(std::span<const Segment> segments, const StageUnits& stage);

// A step of a stage for a micro-batch: a pass through the units of a piece, or a message at one of its boundaries.
struct StageStep {
  enum class Action : std::uint8_t {
    forward,
    backward,
    receive_input,     // from the stage of the previous piece
    send_output,       // to the stage of the next piece
    receive_gradient,  // the gradient of the output, from the stage of the next piece
    send_gradient,     // the gradient of the input, to the stage of the previous piece
  };
  Action action;
  int micro_batch;
  int piece = 0;
  bool operator==(const StageStep&) const = default;
};

// The pipeline that a stage's steps belong to.
struct Pipeline {
  int stages = 1, chunks = 1;
  Schedule schedule = Schedule::one_forward_one_backward;

  int pieces() const { return stages * chunks; }
};

// A stage's steps in their order. One forward, one backward (Narayanan et al. 2019, PipeDream-Flush): the stage starts
// one forward for each stage after it and then alternates, so it keeps no more activations than that. With several
// chunks (interleaved), it takes a group of as many micro-batches as there are stages through one of its pieces, then
// through the next; the number of micro-batches is a multiple of the number of stages. Otherwise all forwards come
// before all backwards (GPipe). The backwards of a piece always come in the order of micro-batches. All stages list the
// messages between them in one common order, so that no two stages wait for each other forever, even if a send ends
// only with its receive and tasks wait for all tasks that are listed before them.
std::vector<StageStep> steps_of_stage(int stage, const Pipeline& pipeline, int micro_batches);

}  // namespace strata::runtime
