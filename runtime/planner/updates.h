#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/gradients.h"

namespace strata::runtime {

// The optimizer's part of a plan: the state that lives from step to step, and its update, unit by unit. Where state or
// gradient lie in another tier than the update runs in, it is done chunk by chunk as a pipeline: while one chunk is
// updated, those behind it are on their way in and those before it on their way home (Rajbhandari et al. 2021).
class Updates {
 public:
  // Adds the homes of every unit's parameters, master and moments.
  Updates(Draft& draft, const Gradients& gradients);

  // Adds what is left to do until `unit`, and every unit before it, is updated.
  void advance(int unit);

  // Adds the reads of state for the next step's updates (PlanRequest::read_ahead).
  void read_ahead();

 private:
  // Elements [begin, end) of the rank's part of a unit.
  struct Chunk {
    int unit;
    std::size_t begin, end;
    bool last;  // of its unit
  };
  // A chunk on its way: where its operands lie (homes) and where the update finds them.
  struct Fetched {
    Chunk chunk;
    std::vector<GradientSource> gradient;
    std::vector<Slice> homes, state;  // master and moments
  };

  // The unit whose update comes first: nothing of the step runs by then behind which its way to the state could hide.
  int first_updated() const { return chunks_.front().unit; }
  Slice part_of(int buffer, const Chunk& chunk, device::StorageFormat format) const;
  Slice parameters_of(const Chunk& chunk) const;
  // Parameters on the host, of which a rank updates a part of what it holds: they are put together on the device.
  bool spreads() const;
  Slice assembled(const Chunk& chunk);
  // Where a chunk's master and moments lie.
  std::vector<Slice> homes_of(const Chunk& chunk) const;
  void update_what_was_read_ahead();
  Fetched fetch(std::size_t index);
  void update(Fetched f);
  void write_late(std::vector<Slice>& from, std::vector<Slice>& to);
  void spread(int unit);

  Draft& d_;
  const Gradients& gradients_;
  const Tier where_;  // the update runs
  std::vector<Chunk> chunks_;
  std::size_t next_ = 0;         // chunk to fetch, those left out that are read ahead
  std::deque<Fetched> fetched_;  // and not yet updated
  // Of the first chunks: where homes_of() lie that were read ahead; what was not is itself.
  std::vector<std::vector<Slice>> ahead_;
  bool begun_ = false;  // those chunks are updated
  // Of first_updated(): what goes home after all else.
  struct Late {
    std::vector<Slice> from, to;
  };
  std::vector<Late> late_;
  std::vector<int> assembled_;  // by unit: whole parameters on the device, where they are put together; -1: none
};

}  // namespace strata::runtime
