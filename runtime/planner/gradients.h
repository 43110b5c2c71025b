#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"
#include "runtime/tasks/collectives/reduce.h"

namespace strata::runtime {

// The part of a plan that handles gradients: the path of a gradient from the task that writes it to the update that
// reads it. If the step has more than one micro-batch, the gradient is added to the unit's fp32 sum; otherwise it is
// the sum. A sum that lives in another tier is on the device while the unit's backward runs, and a complete sum adds
// its squares to the norm before it leaves. On a single rank, a tiled unit has only one tile's sum on the device, while
// that tile's gradient is added; the complete sum then returns once more for the norm, chunk by chunk.
class Gradients {
 public:
  Gradients(Draft& draft, const Tiling& tiling);

  // The buffer for a gradient that the next call will write. add(): of a unit or part. add_shared(): of the tensor that
  // the unit shares with another, or of one tile of it (which.part); `range` then counts in the holder's flat buffer.
  int add(const UnitPart& which, const ElementRange& range, int micro_batch);
  int add_shared(const UnitPart& which, const ElementRange& range, int micro_batch);

  // Call it before adding a call that writes the unit's gradients.
  void before_call(int unit);
  // Call it after adding each call. Reduces the gradients of the previous call, so that communication overlaps with
  // backward. `last`: the next call belongs to another unit.
  void after_call(bool last);
  // Call it after the last call of the step.
  void finish();

  // The operands of the update that hold elements [begin, end) of the rank's part of a complete gradient.
  std::vector<GradientSource> of(int unit, std::size_t begin, std::size_t end) const;

 private:
  // The parameters of a gradient: the unit's own, or another unit's that it shares.
  struct Owner {
    int unit;
    bool shared = false;
    bool operator==(const Owner&) const = default;
  };
  struct Produced {
    CallGradient gradient;
    bool last = false;  // the last gradient of this visit to its unit

    Owner owner() const { return {gradient.which.unit, gradient.shared}; }
  };
  // An accumulated gradient: the fp32 sum, or the rounded gradient if there are no sums.
  struct Sum {
    int on_device = -1;  // the sum's buffer on the device; -1: none
    int stored = -1;     // the sum's buffer between calls; -1: none yet
    int newest = -1;     // the newest micro-batch that was added; -1: none
    bool complete = false;
    std::size_t summed = 0;  // if tiled: elements to which the last micro-batch has been added
    // The buffers of an incomplete run of micro-batches (training.reduce_group), until the next call continues it.
    int run_on_device = -1, run_stored = -1;
  };

  bool holds_full() const;
  bool by_tiles(const Owner& owner) const;
  bool away() const { return d_.plan.placement.gradients.tier != Tier::device; }
  static std::size_t place(const Owner& o) { return 2 * static_cast<std::size_t>(o.unit) + (o.shared ? 1 : 0); }
  Sum& sum_of(const Owner& owner) { return sums_[place(owner)]; }
  // The layout of the flat buffer that the gradient's elements refer to: the holder's for shared parameters.
  const UnitLayout& layout_of(const Owner& owner) const;
  std::size_t sum_bytes(const Owner& owner) const;
  // Bytes of the elements that this rank reduces, in fp32.
  std::size_t run_bytes(const Owner& owner) const;
  // True if a run is incomplete after the rank's first `micro_batches`.
  bool inside_run(int micro_batches) const;
  // The maximum number of elements of the shared range that any rank owns.
  std::size_t shared_part(int unit) const;
  std::string name_of(const Owner& owner) const;
  int add(CallGradient gradient);
  int add_stored(const Owner& owner);
  void open(const Owner& owner);
  void close(const Owner& owner);
  void close_all();
  void complete(int unit);
  void complete_by_chunks(int unit);
  int shared_sum_on_device(const Owner& owner, int holder);
  // If a unit shares parameters with a unit of another pipeline stage, the complete gradient goes to the holder's stage
  // at the end of the step, and completes the holder's sum.
  void send_shared();
  void receive_shared(int holder);
  void reduce_pending();
  void reduce(const Produced& p);
  void reduce_tile(const Produced& p);
  OutputBuffer run_of(const Owner& owner);
  // `fast`: adds the gradient to the local sum. Returns true if the local sum is now complete and its rounded value is
  // in p's buffer.
  bool accumulate(const Produced& p);

  Draft& d_;
  const Tiling& tiling_;
  const bool has_sums_;
  std::vector<Sum> sums_;                     // one per owner
  std::vector<std::vector<int>> local_sums_;  // per owner: the whole unit's, then each part's or tile's
  std::vector<int> full_;                     // per unit: the full gradient that ZeRO-1 keeps (holds_full); -1: none
  std::vector<Produced> pending_, produced_;  // gradients of the previous call, and of this one
  std::vector<Owner> open_;                   // owners whose sums are on the device
};

}  // namespace strata::runtime
