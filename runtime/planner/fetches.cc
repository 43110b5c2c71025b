#include "runtime/planner/fetches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/index.h"
#include "runtime/tasks/collectives/gather.h"
#include "runtime/tasks/copy.h"

namespace strata::runtime {

Fetches::Fetches(Draft& draft) : d_(draft) {
  std::size_t pieces = 0;
  for (const auto& unit : d_.model.units) {
    first_piece_.push_back(pieces);
    pieces += kPools.size() * (unit->parts().size() + 1);
  }
  present_.assign(pieces, -1);
}

std::size_t Fetches::place(const UnitPart& which) const {
  return first_piece_[index(which.unit)] + kPools.size() * index(which.part + 1) + static_cast<std::size_t>(which.pool);
}

void Fetches::find(const std::vector<Visit>& visits, const Tiling& tiling) {
  const int n = static_cast<int>(visits.size());
  hops_before_.resize(visits.size());
  releases_after_.resize(visits.size());
  if (resident()) return;
  for (int v = 0; v < n; ++v) {
    const bool goes_on = v > 0 && visits[index(v)].part >= 0 && visits[index(v - 1)].part >= 0 &&
                         visits[index(v)].unit == visits[index(v - 1)].unit;
    pass_.push_back(goes_on ? pass_.back() : v);
  }
  std::vector<std::vector<int>> needs(present_.size());
  for (int v = 0; v < n; ++v) {
    const Visit& visit = visits[index(v)];
    if (!visit.needs_parameters) continue;
    for (const PoolKind pool : kPools)
      if (const UnitPart which{visit.unit, visit.part, pool}; has(which)) needs[place(which)].push_back(v);
    const auto& shared = d_.layout(visit.unit).shared;
    if (shared && !tiling.tiled(shared->unit)) needs[place({shared->unit, -1, shared->pool()})].push_back(v);
  }
  const auto fetch = [&](const UnitPart& which) {
    const auto& when = needs[place(which)];
    const UnitLayout& layout = d_.layout(which.unit);
    const int ahead = which.part < 0 ? d_.request.prefetch : std::min(d_.request.prefetch, 1);
    const bool stays = !layout.sharers_of(which.pool).empty() && !tiling.tiled(which.unit);
    for (std::size_t i = 0; i < when.size(); ++i) {
      const bool held = i > 0 && (stays || when[i] - ahead <= when[i - 1] + 1);
      if (!held) add(which, when[i], when[i] - ahead);
      const bool holds = i + 1 < when.size() && (stays || when[i + 1] - ahead <= when[i] + 1);
      if (!holds) releases_after_[index(when[i])].push_back(which);
    }
  };
  for (int unit = 0; unit < d_.units(); ++unit)
    for (int part = -1; part < static_cast<int>(d_.unit(unit).parts().size()); ++part)
      for (const PoolKind pool : kPools) fetch({unit, part, pool});
  add_shards();
  // Lanes run in order, so data that is needed first is fetched first.
  for (auto& hops : hops_before_)
    std::stable_sort(hops.begin(), hops.end(),
                     [&](const Hop& a, const Hop& b) { return all_[a.fetch].needed < all_[b.fetch].needed; });
}

void Fetches::add(const UnitPart& which, int needed, int visit) {
  const auto before = [&](TaskKind kind, int v) { hops_before_[index(std::max(0, v))].push_back({all_.size(), kind}); };
  const Tier tier = d_.plan.placement.parameters.tier;
  const int gather = d_.plan.sharded_parameters() ? 1 : 0;
  if (gather && which.part >= 0 && tier != Tier::device) {
    const auto [found, is_new] = shards_.try_emplace({pass_[index(needed)], which.pool}, Shard{all_.size(), visit});
    Shard& shard = found->second;
    const UnitPart unit{which.unit, -1, which.pool};
    if (is_new) all_.push_back({unit, needed, stored_slices(unit)});
    shard.visit = std::min(shard.visit, visit);
    all_[shard.fetch].needed = std::min(all_[shard.fetch].needed, needed);
    before(TaskKind::gather, visit);
    all_.push_back({which, needed, {}, static_cast<int>(shard.fetch)});
    return;
  }
  if (tier == Tier::nvme) before(TaskKind::read, visit - gather - 1);
  if (tier != Tier::device) before(TaskKind::upload, visit - gather);
  if (gather) before(TaskKind::gather, visit);
  all_.push_back({which, needed, stored_slices(which)});
}

// Uploads and reads are inserted before the gathers of the same visit, which need them.
void Fetches::add_shards() {
  for (const auto& [pass, shard] : shards_) {
    const auto before = [&](TaskKind kind, int visit) {
      auto& hops = hops_before_[index(std::max(0, visit))];
      hops.insert(hops.begin(), {shard.fetch, kind});
    };
    before(TaskKind::upload, shard.visit - 1);
    if (d_.plan.placement.parameters.tier == Tier::nvme) before(TaskKind::read, shard.visit - 2);
  }
}

int Fetches::stored_buffer(const UnitPart& which) const {
  return d_.state_buffers(which.unit).of(which.pool);
}

std::vector<Slice> Fetches::stored_slices(const UnitPart& which) const {
  const int stored = stored_buffer(which);
  if (which.part < 0 || d_.plan.sharded_parameters()) return {d_.whole(stored)};
  const ElementRange range = d_.range_of(which);
  return {{stored, d_.bytes_of(which.pool, range.begin), d_.bytes_of(which.pool, range.size())}};
}

namespace {

// The slice extended to whole pages, because drives are read in pages.
Slice paged(const Slice& slice) {
  constexpr std::size_t kPage = device::kBufferAlignment;
  const std::size_t begin = slice.offset / kPage * kPage;
  return {slice.buffer, begin, aligned(slice.offset + slice.bytes - begin)};
}

}  // namespace

void Fetches::run(const Hop& next) {
  Fetch& f = all_[next.fetch];
  const std::string what = d_.text_of("parameters of", f.which);
  if (next.kind == TaskKind::read) {
    const Slice wanted = f.slices[0], pages = paged(wanted);
    f.slices[0] = pages;
    hop(d_, f.slices, Tier::nvme, Tier::host, f.which.unit, what, Kind::staging);
    f.slices[0].offset = wanted.offset - pages.offset;
    f.slices[0].bytes = wanted.bytes;
    return;
  }
  const bool sharded = d_.plan.sharded_parameters();
  if (next.kind == TaskKind::upload)
    hop(d_, f.slices, Tier::host, Tier::device, f.which.unit, what, sharded ? Kind::staging : Kind::parameters);
  else
    gather(f);
  if (!sharded) present_[place(f.which)] = f.slices[0].buffer;
}

void Fetches::gather(const Fetch& f) {
  const ElementRange range = d_.range_of(f.which);
  const int buffer = d_.add_buffer(d_.text_of("gathered", f.which), Kind::parameters, Tier::device,
                                   d_.bytes_of(f.which.pool, range.size()), false);
  const Fetch& source = f.shard < 0 ? f : all_[index(f.shard)];
  Gather{.which = f.which, .shard = source.slices[0], .parameters = buffer}.add(d_);
  present_[place(f.which)] = buffer;
}

void Fetches::before(int visit) {
  for (const Hop& hop : hops_before_[index(visit)]) run(hop);
}

void Fetches::after(int visit) {
  for (const UnitPart& which : releases_after_[index(visit)]) present_[place(which)] = -1;
}

int Fetches::last_unit(int visit) const {
  int unit = -1;
  for (const Hop& hop : hops_before_[index(visit)]) unit = std::max(unit, all_[hop.fetch].which.unit);
  return unit;
}

int Fetches::buffer(const UnitPart& which) const {
  return resident() ? stored_buffer(which) : present_[place(which)];
}

void hop(Draft& draft, std::vector<Slice>& slices, Tier from, Tier to, int unit, std::string_view what, Kind kind) {
  Copy copy{unit, {}};
  for (Slice& s : slices) {
    if (draft.tier_of(s.buffer) != from) continue;
    const std::string name = fmt::format("{} in {}", what, kTierNames[static_cast<std::size_t>(to)]);
    const Slice target{draft.add_buffer(name, kind, to, s.bytes, false), 0, s.bytes};
    copy.pairs.push_back({s, target});
    s = target;
  }
  if (!copy.pairs.empty()) copy.add(draft);
}

std::vector<Slice> copy_to_tier(Draft& draft, std::vector<Slice> slices, Tier to, int unit, std::string_view what,
                                Kind kind) {
  STRATA_CHECK(to != Tier::nvme);
  hop(draft, slices, Tier::nvme, Tier::host, unit, what, to == Tier::host ? kind : Kind::staging);
  if (to == Tier::device)
    hop(draft, slices, Tier::host, Tier::device, unit, what, kind);
  else
    hop(draft, slices, Tier::device, Tier::host, unit, what, kind);
  return slices;
}

void copy_slices(Draft& draft, std::vector<Slice> from, std::vector<Slice> to, int unit, std::string_view what) {
  // A slice with two hops (device to NVMe) goes to the host in the same task as the slices that end there.
  for (const auto& [source, target] : {std::pair{Tier::nvme, Tier::host}, std::pair{Tier::device, Tier::host},
                                       std::pair{Tier::host, Tier::device}, std::pair{Tier::host, Tier::nvme}}) {
    Copy copy{unit, {}};
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].buffer == to[i].buffer || draft.tier_of(from[i].buffer) != source) continue;
      const Tier end = draft.tier_of(to[i].buffer);
      const bool passes = source == Tier::device && end == Tier::nvme;
      if (end != target && !passes) continue;
      Slice next = to[i];
      if (passes) {
        const std::string name = fmt::format("{} in host", what);
        next = {draft.add_buffer(name, Kind::staging, Tier::host, from[i].bytes, false), 0, from[i].bytes};
      }
      copy.pairs.push_back({from[i], next});
      from[i] = next;
    }
    if (!copy.pairs.empty()) copy.add(draft);
  }
  for (std::size_t i = 0; i < from.size(); ++i) STRATA_CHECK_EQ(from[i].buffer, to[i].buffer);
}

}  // namespace strata::runtime
