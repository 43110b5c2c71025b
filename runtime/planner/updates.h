#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/gradients.h"

namespace strata::runtime {

// The part of a plan that runs the optimizer: the state that lives from step to step, and its update, unit by unit. If
// state or gradient is in another tier than the update runs in, chunks go through a pipeline: while one is updated, the
// next ones are fetched and the previous ones written back (ZeRO-Infinity, Rajbhandari et al. 2021).
class Updates {
 public:
  // Adds all StateBuffers: parameters, master and moments.
  Updates(Draft& draft, const Gradients& gradients);

  // Adds the remaining updates of `unit` and of every unit before it.
  void advance(int unit);

  // Adds the receives of updated parameters that units of this stage share with units of other stages, which send them
  // after their update. Call it before the updates: all stages take these messages in the order of holders.
  void receive_copies();
  // The last unit of this stage that another stage has a copy of; -1: none.
  int last_copied() const;

  // Adds the reads of state for the next step's updates (PlanRequest::read_ahead).
  void read_ahead();

 private:
  // Elements [begin, end) of the rank's part of a unit.
  struct Chunk {
    int unit;
    std::size_t begin, end;
    bool last;  // true for the last chunk of its unit
  };
  // A chunk that has been fetched: where its state is stored, and where the update finds it (state).
  struct Fetched {
    Chunk chunk;
    std::vector<GradientSource> gradient;
    std::vector<Slice> stored, state;  // master and moments
  };

  // The unit that is updated first. No work of the step precedes it, so the fetch of its state has nothing to overlap
  // with.
  int first_updated() const { return chunks_.front().unit; }
  Slice part_of(int buffer, const Chunk& chunk, device::StorageFormat format) const;
  Slice parameters_of(const Chunk& chunk) const;
  // True if parameters live in another tier and a rank updates only a part of those it holds. They are then assembled
  // on the device, for the all-gather.
  bool gathers_updated() const;
  Slice assembled(const Chunk& chunk);
  // Where a chunk's master and moments are stored.
  std::vector<Slice> stored_slices(const Chunk& chunk) const;
  void update_read_ahead();
  Fetched fetch(std::size_t index);
  void update(Fetched f);
  void write_late(std::vector<Slice>& from, std::vector<Slice>& to);
  void gather_updated(int unit);
  void send_copies(int unit);

  Draft& d_;
  const Gradients& gradients_;
  const Tier where_;  // the tier in which the update runs
  std::vector<Chunk> chunks_;
  std::size_t next_ = 0;         // the next chunk to fetch; chunks that are read ahead are skipped
  std::deque<Fetched> fetched_;  // chunks not yet updated
  // Per chunk that is read ahead: its stored_slices(), with slices on NVMe replaced by the buffers they are read into.
  std::vector<std::vector<Slice>> ahead_;
  bool begun_ = false;  // the chunks that were read ahead have been updated
  // Writes of first_updated()'s state that come after all others.
  struct Late {
    std::vector<Slice> from, to;
  };
  std::vector<Late> late_;
  std::vector<int> assembled_;  // per unit: the buffer on the device in which parameters are assembled; -1: none
};

}  // namespace strata::runtime
