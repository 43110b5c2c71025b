#pragma once
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The gradients' part of a plan: what becomes of the gradient that a task wrote, until the update reads it. With more
// than one micro-batch in the step it is added onto the unit's fp32 sum; else it is the sum. A sum that does not live
// on the device is there while a unit's backward runs (its window), and complete sums give their squares to the norm
// before they leave.
class Gradients {
 public:
  explicit Gradients(Draft& draft, int table_tiles);

  // A buffer for the gradient that the task writes: of a unit or part, or of the tied weight or a tile of it.
  void write(Task& task, const Piece& piece, const ElementRange& range);
  void write_tied(Task& task, int tile, const ElementRange& range);

  // Before a call that writes gradients of the unit is added.
  void before_call(int unit);
  // After a call was added: the one before it is reduced now, so that backward runs on while gradients travel. `last`:
  // the next call is about another unit.
  void after_call(bool last);
  // After the last call of the step.
  void finish();

  // Elements [begin, end) of the rank's part of a complete gradient, as the update reads them.
  struct Source {
    Role role;
    Stretch stretch;
  };
  std::vector<Source> of(int unit, std::size_t begin, std::size_t end) const;

 private:
  struct Produced {
    Piece piece;  // of the head, by tiles of the table, where tied
    ElementRange range;
    int micro_batch, gradients;
    bool tied, last = false;  // last: of its unit's visits for now
  };
  // The accumulated gradient of a unit, or the head's of the tied weight: the sum, or the rounded gradient itself.
  struct Sum {
    int window = -1;  // where it lies on the device; -1: it does not
    int home = -1;    // where it lives otherwise; -1: nowhere yet
    int newest = -1;  // micro-batch
    bool complete = false;
  };

  bool away() const { return d_.plan.placement.gradients.tier != Tier::device; }
  Sum& sum_of(int unit, bool tied) { return tied ? tied_sum_ : sums_[static_cast<std::size_t>(unit)]; }
  std::size_t sum_bytes(int unit, bool tied) const;
  std::size_t tied_part() const;
  std::string name_of(int unit, bool tied) const;
  int make_home(int unit, bool tied);
  void open(int unit, bool tied);
  void close(int unit, bool tied);
  void complete(int unit);
  void reduce_pending();
  void reduce(const Produced& p);
  // `fast`: onto the local sum; true where that is complete and lies, rounded, in p's buffer.
  bool accumulate(const Produced& p);

  Draft& d_;
  const bool has_sums_;
  std::vector<Sum> sums_;  // by unit
  Sum tied_sum_;
  std::vector<int> whole_;                     // by unit: ZeRO-1's whole wire gradient; -1: none
  std::vector<int> first_piece_, local_sums_;  // by unit; by piece
  std::vector<int> tied_local_sums_;           // whole, then by tile
  std::vector<Produced> pending_, produced_;   // of the call before, of this one
  std::vector<std::pair<int, bool>> open_;     // sums whose windows are open: unit, tied
};

}  // namespace strata::runtime
