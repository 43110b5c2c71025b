#pragma once
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"

namespace strata::runtime {

// The parameters' part of a plan: how they come to the device before a visit needs them, from their home through the
// tiers to this rank's shard, and from all ranks' shards to the unit or part; and when they are let go. Where whole
// parameters live on the device nothing has to come.
class Fetches {
 public:
  // The homes are those of the draft's plan.
  explicit Fetches(Draft& draft);

  // Which units and parts are fetched before each visit and which end after it: a unit is held as long as it is needed
  // within the next `prefetch` visits, so that at most prefetch + 1 are; a part no longer than to the next visit, so
  // that at most two are. Of a unit whose shard lies in another tier that shard comes once for all the parts of visits
  // that follow each other. What other units share is held from the first visit of any of them to the last, if it is
  // fetched whole. Each tier looks one visit further ahead.
  void find(const std::vector<Visit>& visits, const Tiling& tiling);

  // Adds what is fetched before a visit; lets go what it was the last to need.
  void before(int visit);
  void after(int visit);

  // The highest unit that is fetched before the visit; -1: none.
  int last_unit(int visit) const;
  // Where the parameters of a unit or part lie now, those of the pool, as stored; -1: it has none.
  int buffer(const UnitPart& which) const;

 private:
  struct Fetch {
    UnitPart which;
    int needed;  // visit
    std::vector<Slice> slices;
    int shard = -1;  // of a part of a sharded unit in another tier: the fetch of its shard; -1: it has its own slices
  };
  // The fetch of a shard, by the first of the visits that follow each other, and the first that it is gathered before.
  struct Shard {
    std::size_t fetch;
    int visit;
  };
  struct Hop {
    std::size_t fetch;
    TaskKind kind;  // read, upload or gather
  };

  // Of the whole unit or the part, whether it has some of the pool.
  bool has(const UnitPart& which) const { return d_.range_of(which).size() > 0; }
  bool resident() const { return !d_.plan.sharded_parameters() && d_.plan.placement.parameters.tier == Tier::device; }
  std::size_t index(const UnitPart& which) const;
  void add(const UnitPart& which, int needed, int visit);
  void add_shards();
  int home_of(const UnitPart& which) const;
  // Where the unit's or part's bytes lie in its home.
  std::vector<Slice> at_home(const UnitPart& which) const;
  void run(const Hop& hop);
  void gather(const Fetch& fetch);

  Draft& d_;
  std::vector<std::size_t> first_piece_;  // by unit: the whole unit, then its parts, all pools of each
  std::vector<int> present_;              // by unit, part and pool: its buffer; -1: not there
  std::vector<Fetch> all_;
  std::vector<int> pass_;  // by visit: the first of those about the same unit's parts that follow each other
  std::map<std::pair<int, PoolKind>, Shard> shards_;   // by that, and pool
  std::vector<std::vector<Hop>> hops_before_;          // by visit
  std::vector<std::vector<UnitPart>> releases_after_;  // by visit
};

}  // namespace strata::runtime
