#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"
#include "runtime/tasks/reduce.h"

namespace strata::runtime {

// The gradients' part of a plan: what becomes of the gradient that a task wrote, until the update reads it. With more
// than one micro-batch in the step it is added onto the unit's fp32 sum; else it is the sum. A sum that does not live
// on the device is there while a unit's backward runs (its window), and complete sums give their squares to the norm
// before they leave. Of a unit in tiles, on a rank alone, only a tile's sum is there, while the tile's gradient is
// added; complete sums then come once more for the norm, chunk by chunk.
class Gradients {
 public:
  Gradients(Draft& draft, const Tiling& tiling);

  // The buffer for the gradient that the call which is added next writes: of a unit or part; or of what the unit shares
  // with another, whole or a tile of it (which.part), whose elements lie in the holder's buffer.
  int add(const UnitPart& which, const ElementRange& range, int micro_batch);
  int add_shared(const UnitPart& which, const ElementRange& range, int micro_batch);

  // Before a call that writes gradients of the unit is added.
  void before_call(int unit);
  // After a call was added: the one before it is reduced now, so that backward runs on while gradients travel. `last`:
  // the next call is about another unit.
  void after_call(bool last);
  // After the last call of the step.
  void finish();

  // Elements [begin, end) of the rank's part of a complete gradient, as the update reads them.
  std::vector<GradientSource> of(int unit, std::size_t begin, std::size_t end) const;

 private:
  // Whose gradient: of a unit's own parameters, or of those that it shares.
  struct Owner {
    int unit;
    bool shared = false;
    bool operator==(const Owner&) const = default;
  };
  struct Produced {
    CallGradient gradient;
    bool last = false;  // of its unit's visits for now

    Owner owner() const { return {gradient.which.unit, gradient.shared}; }
  };
  // An accumulated gradient: the sum, or the rounded gradient itself.
  struct Sum {
    int window = -1;  // where it lies on the device; -1: it does not
    int home = -1;    // where it lives otherwise; -1: nowhere yet
    int newest = -1;  // micro-batch
    bool complete = false;
    std::size_t summed = 0;  // by tiles: elements that have the last micro-batch's gradient
  };

  bool holds_whole() const;
  bool by_tiles(const Owner& owner) const;
  bool away() const { return d_.plan.placement.gradients.tier != Tier::device; }
  static std::size_t index(const Owner& o) { return 2 * static_cast<std::size_t>(o.unit) + (o.shared ? 1 : 0); }
  Sum& sum_of(const Owner& owner) { return sums_[index(owner)]; }
  // Of the flat buffer that the gradient's elements lie in, which is the holder's of what is shared.
  const UnitLayout& layout_of(const Owner& owner) const;
  std::size_t sum_bytes(const Owner& owner) const;
  // Elements of the shared range that a rank owns, at most.
  std::size_t shared_part(int unit) const;
  std::string name_of(const Owner& owner) const;
  int add(CallGradient gradient);
  int make_home(const Owner& owner);
  void open(const Owner& owner);
  void close(const Owner& owner);
  void complete(int unit);
  void complete_by_chunks(int unit);
  int brought(const Owner& owner, int holder);
  void reduce_pending();
  void reduce(const Produced& p);
  void reduce_tile(const Produced& p);
  // `fast`: onto the local sum; true where that is complete and lies, rounded, in p's buffer.
  bool accumulate(const Produced& p);

  Draft& d_;
  const Tiling& tiling_;
  const bool has_sums_;
  std::vector<Sum> sums_;                     // by owner
  std::vector<std::vector<int>> local_sums_;  // by owner: whole, then by part or tile
  std::vector<int> whole_;                    // by unit: ZeRO-1's whole wire gradient; -1: none
  std::vector<Produced> pending_, produced_;  // of the call before, of this one
  std::vector<Owner> open_;                   // whose sums' windows are open
};

}  // namespace strata::runtime
