#pragma once
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"

namespace strata::runtime {

// The part of a plan that provides parameters: how they reach the device before a visit needs them (this rank's shard
// through the tiers, then the unit or part by an all-gather), and when they are released. Unsharded parameters on the
// device need no fetch.
class Fetches {
 public:
  // The draft must have all StateBuffers.
  explicit Fetches(Draft& draft);

  // Decides which units and parts are fetched before each visit and which are released after it.
  // - A unit is held while it is needed within the next `prefetch` visits, so at most prefetch + 1 are present.
  // - A part is held at most until the next visit, so at most two are present.
  // - Consecutive visits to parts of a unit whose shard is in another tier share one fetch of that shard.
  // - Parameters that other units share are held from the first to the last visit that needs them, unless tiled.
  // - A fetch begins one visit earlier for each tier that it passes.
  void find(const std::vector<Visit>& visits, const Tiling& tiling);

  // before() adds the fetches for a visit. after() adds the releases that follow it.
  void before(int visit);
  void after(int visit);

  // The highest unit that the fetches before the visit concern; -1: none.
  int last_unit(int visit) const;
  // The buffer that now holds the parameters of a unit or part in its pool, as stored; -1: none.
  int buffer(const UnitPart& which) const;

 private:
  struct Fetch {
    UnitPart which;
    int needed;  // the visit that needs it
    std::vector<Slice> slices;
    int shard = -1;  // part of a sharded unit in another tier: the fetch of its shard; -1: `slices` hold the bytes
  };
  // The fetch of a shard, and the first visit that a part of it is gathered for.
  struct Shard {
    std::size_t fetch;
    int visit;
  };
  struct Hop {
    std::size_t fetch;
    TaskKind kind;  // read, upload or gather
  };

  // True if the unit or part has elements in its pool.
  bool has(const UnitPart& which) const { return d_.range_of(which).size() > 0; }
  bool resident() const { return !d_.plan.sharded_parameters() && d_.plan.placement.parameters.tier == Tier::device; }
  std::size_t place(const UnitPart& which) const;
  void add(const UnitPart& which, int needed, int visit);
  void add_shards();
  int stored_buffer(const UnitPart& which) const;
  // Where the bytes of the unit or part are stored.
  std::vector<Slice> stored_slices(const UnitPart& which) const;
  void run(const Hop& hop);
  void gather(const Fetch& fetch);

  Draft& d_;
  std::vector<std::size_t> first_piece_;  // per unit: the whole unit, then its parts, all pools of each
  std::vector<int> present_;              // per unit, part and pool: its buffer; -1: not on the device
  std::vector<Fetch> all_;
  std::vector<int> pass_;  // per visit: the first of the consecutive visits to parts of the same unit
  std::map<std::pair<int, PoolKind>, Shard> shards_;   // the key: pass_ and pool
  std::vector<std::vector<Hop>> hops_before_;          // per visit: the hops before it
  std::vector<std::vector<UnitPart>> releases_after_;  // per visit: the parts released after it
};

// Copies between tiers, added to a plan being written. A copy between device and NVMe passes through the host. `what`
// names the new buffers, and `kind` is their kind.

// Adds one task that copies the slices in tier `from` to the neighbouring tier `to`, and replaces them with their
// copies. Slices in other tiers stay as they are.
void hop(Draft& draft, std::vector<Slice>& slices, Tier from, Tier to, int unit, std::string_view what, Kind kind);
// Returns the slices in tier `to` (device or host): copies of those that are elsewhere, the others unchanged.
std::vector<Slice> copy_to_tier(Draft& draft, std::vector<Slice> slices, Tier to, int unit, std::string_view what,
                                Kind kind = Kind::staging);
// Copies the contents of each slice to its destination, unless it is the same buffer.
void copy_slices(Draft& draft, std::vector<Slice> from, std::vector<Slice> to, int unit, std::string_view what);

}  // namespace strata::runtime
