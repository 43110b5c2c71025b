#include "runtime/planner/gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/index.h"
#include "runtime/planner/fetches.h"
#include "runtime/tasks/collectives/gather.h"
#include "runtime/tasks/collectives/reduce.h"
#include "runtime/tasks/norm.h"
#include "runtime/tasks/stage_link.h"

namespace strata::runtime {
Gradients::Gradients(Draft& draft, const Tiling& tiling)
    : d_(draft),
      tiling_(tiling),
      has_sums_(draft.plan.has_sums()),
      sums_(2 * index(draft.units())),
      local_sums_(sums_.size()),
      full_(index(draft.units()), -1) {
  if (d_.request.forward_only) return;
  for (int unit = 0; unit < d_.units(); ++unit) {
    if (!d_.owns(unit) || !d_.layout(unit).trains()) continue;
    if (holds_full())
      full_[index(unit)] = d_.add_buffer(d_.text_of("gradients of", {unit, -1}), Kind::gradients, Tier::device,
                                         d_.bytes_of(d_.layout(unit).padded()), true);
    if (d_.plan.cyclic) add_stored({unit});
  }
  for (int unit = 0; unit < d_.units(); ++unit)
    if (d_.owns(unit) && d_.plan.cyclic && d_.layout(unit).trains_shared() && !has_sums_) add_stored({unit, true});
}

// ZeRO-1 keeps the whole gradient in the compute dtype from step to step. It does not if sharding frees less than the
// gradient takes (because the optimizer's state is in another tier, or is smaller than two gradients): stage 1 would
// then take more device memory than stage 0.
bool Gradients::holds_full() const {
  if (!d_.plan.sharded_optimizer() || d_.request.placement.gradients.sharded() || away() || d_.plan.cyclic)
    return false;
  constexpr std::size_t kElements = device::kMomentBlock;
  const std::size_t moments =
      index(moment_count(d_.request.algorithm)) * device::stored_bytes(d_.request.moments, kElements);
  return (d_.fp32() ? 0 : device::fp32_bytes(kElements)) + moments >= 2 * d_.bytes_of(kElements);
}

// True if the owner's sum is brought to the device tile by tile. A sum that lives on the device is not. With several
// ranks this is impossible, because shards do not end where tiles do.
bool Gradients::by_tiles(const Owner& owner) const {
  if (!sums_in_tiles(d_.plan, owner.unit) || !has_sums_) return false;
  return owner.shared ? owner.unit == d_.last() && tiling_.table_tiled() : tiling_.tiled(owner.unit);
}

const UnitLayout& Gradients::layout_of(const Owner& owner) const {
  return d_.layout(owner.shared ? d_.layout(owner.unit).shared->unit : owner.unit);
}

std::size_t Gradients::sum_bytes(const Owner& owner) const {
  if (has_sums_) return device::fp32_bytes(owner.shared ? shared_part(owner.unit) : d_.sums_size(owner.unit));
  return d_.bytes_of(owner.shared ? d_.layout(owner.unit).shared->elements.size() : d_.layout(owner.unit).padded());
}

// On every rank, buffers have the size of the largest piece.
std::size_t Gradients::shared_part(int unit) const {
  return portions_of(d_.layout(unit).shared->elements, layout_of({unit, true}).shards).most;
}

std::size_t Gradients::run_bytes(const Owner& owner) const {
  return (owner.shared ? shared_part(owner.unit) : d_.layout(owner.unit).shards.size()) * sizeof(float);
}

bool Gradients::inside_run(int micro_batches) const {
  return (std::int64_t{micro_batches} * d_.request.mesh.data()) % d_.plan.reduce_group != 0;
}

std::string Gradients::name_of(const Owner& owner) const {
  return fmt::format("{} of {}{}", has_sums_ ? "sum" : "gradients", owner.shared ? "what is shared by " : "",
                     d_.unit(owner.unit).name());
}

int Gradients::add_stored(const Owner& owner) {
  Sum& sum = sum_of(owner);
  const bool persistent =
      d_.plan.cyclic && !(owner.shared && has_sums_);  // a shared sum is added to the holder's in the same step
  sum.stored =
      d_.add_buffer(name_of(owner), Kind::gradients, d_.plan.placement.gradients.tier, sum_bytes(owner), persistent);
  if (!away()) sum.on_device = sum.stored;
  return sum.stored;
}

int Gradients::add(const UnitPart& which, const ElementRange& range, int micro_batch) {
  return add({which, micro_batch, range, false, full_[index(which.unit)]});
}

int Gradients::add_shared(const UnitPart& which, const ElementRange& range, int micro_batch) {
  return add({which, micro_batch, range, true, -1});
}

int Gradients::add(CallGradient g) {
  if (g.buffer < 0 && !has_sums_) g.buffer = sum_of({g.which.unit, g.shared}).on_device;
  if (g.buffer < 0) {
    const std::string& unit = d_.unit(g.which.unit).name();
    g.buffer = d_.add_buffer(g.shared ? "gradients of what is shared by " + unit : d_.text_of("gradients of", g.which),
                             Kind::gradients, Tier::device, d_.bytes_of(g.range.size()), false);
  }
  produced_.push_back({g});
  return g.buffer;
}

void Gradients::before_call(int unit) {
  // A gradient buffer that lives from step to step must be reduced before the next micro-batch overwrites it.
  const auto in_it = [&](const Produced& p) { return p.gradient.buffer == full_[index(unit)]; };
  if (std::any_of(pending_.begin(), pending_.end(), in_it)) reduce_pending();
  if (!away() || !has_sums_) return;
  if (!by_tiles({unit})) open({unit});
  if (d_.layout(unit).trains_shared() && !by_tiles({unit, true})) open({unit, true});
}

void Gradients::after_call(bool last) {
  // A unit's last part may train nothing; an earlier gradient is then its last.
  std::vector<Produced>& newest = produced_.empty() ? pending_ : produced_;
  if (last && !newest.empty()) newest.back().last = true;
  reduce_pending();
  if (last && produced_.empty()) close_all();
  std::swap(pending_, produced_);
}

void Gradients::finish() {
  reduce_pending();
  if (!d_.request.forward_only) send_shared();
  for (int unit = 0; unit < d_.units(); ++unit)
    STRATA_CHECK_EQ(sum_of({unit}).complete, d_.owns(unit) && d_.layout(unit).trains());
}

void Gradients::reduce_pending() {
  for (const Produced& p : pending_) {
    if (has_sums_) {
      reduce(p);
    } else {
      Sum& sum = sum_of(p.owner());
      sum.on_device = p.gradient.buffer;
      sum.newest = 0;
      open_.push_back(p.owner());
    }
    if (p.last || !has_sums_) close_all();
  }
  pending_.clear();
}

void Gradients::close_all() {
  for (const Owner& owner : open_) close(owner);
  open_.clear();
}

void Gradients::open(const Owner& owner) {
  Sum& sum = sum_of(owner);
  if (sum.on_device >= 0 || sum.stored < 0 || sum.newest < 0) return;
  sum.on_device =
      copy_to_tier(d_, {d_.whole(sum.stored)}, Tier::device, owner.unit, name_of(owner), Kind::gradients)[0].buffer;
  if (sum.run_stored >= 0 && inside_run(sum.newest + 1))
    sum.run_on_device = copy_to_tier(d_, {d_.whole(sum.run_stored)}, Tier::device, owner.unit,
                                     "run of " + name_of(owner), Kind::gradients)[0]
                            .buffer;
}

void Gradients::close(const Owner& owner) {
  Sum& sum = sum_of(owner);
  if (sum.on_device < 0) return;  // `fast`: nothing has been reduced yet
  if (sum.newest == d_.request.accumulation - 1 && !owner.shared) complete(owner.unit);
  const bool run_goes_on = inside_run(sum.newest + 1);
  if (!run_goes_on) sum.run_on_device = -1;  // the memory is free until the next run
  if (!away()) return;
  if (sum.stored < 0) add_stored(owner);
  copy_slices(d_, {d_.whole(sum.on_device)}, {d_.whole(sum.stored)}, owner.unit, name_of(owner));
  sum.on_device = -1;
  if (!run_goes_on) return;
  const std::string name = "run of " + name_of(owner);
  if (sum.run_stored < 0)
    sum.run_stored = d_.add_buffer(name, Kind::gradients, d_.plan.placement.gradients.tier, run_bytes(owner), false);
  copy_slices(d_, {d_.whole(sum.run_on_device)}, {d_.whole(sum.run_stored)}, owner.unit, name);
  sum.run_on_device = -1;
}

// Adds the tasks on a sum that will get no further micro-batch. The sums of its sharers are already complete, because
// sharers come after the holder in forward and so before it in backward.
void Gradients::complete(int unit) {
  Sum& sum = sum_of({unit});
  sum.complete = true;
  receive_shared(unit);
  std::vector<int> shared;
  for (const int sharer : d_.layout(unit).sharers) {
    shared.push_back(shared_sum_on_device({sharer, true}, unit));
    if (has_sums_) Combine{.holder = unit, .sharer = sharer, .shared_sum = shared.back(), .sum = sum.on_device}.add(d_);
  }
  if (!has_sums_) return Norm{.unit = unit, .gradients = sum.on_device, .shared_gradients = shared}.add(d_);
  Norm{.unit = unit, .sum = sum.on_device}.add(d_);
  if (d_.plan.gathers_sums()) GatherSums{.unit = unit, .sum = sum.on_device}.add(d_);
}

// The owner's gradient of shared parameters, brought to the device for a task of the holder.
int Gradients::shared_sum_on_device(const Owner& owner, int holder) {
  const Sum& sum = sum_of(owner);
  if (sum.on_device >= 0) return sum.on_device;
  return copy_to_tier(d_, {d_.whole(sum.stored)}, Tier::device, holder, name_of(owner), Kind::gradients)[0].buffer;
}

// Sends come at the end of the step, after the gradients of activations: stages in between wait for those, and the
// holder's stage receives them first. Holders complete their sums in the order of backward, the last holder first.
void Gradients::send_shared() {
  for (int holder = d_.last(); holder >= 0; --holder)
    for (const int sharer : d_.layout(holder).sharers) {
      if (d_.owns(holder) || !d_.owns(sharer)) continue;
      SendToStage{{sharer, -1, d_.stage_of(holder), true, shared_sum_on_device({sharer, true}, holder)}}.add(d_);
    }
}

void Gradients::receive_shared(int holder) {
  for (const int sharer : d_.layout(holder).sharers) {
    if (d_.owns(sharer)) continue;
    const Owner owner{sharer, true};
    Sum& sum = sum_of(owner);
    const int buffer = d_.add_buffer(name_of(owner), Kind::gradients, Tier::device, sum_bytes(owner), false);
    ReceiveFromStage{{sharer, -1, d_.stage_of(sharer), true, buffer}}.add(d_);
    sum.on_device = buffer;
    if (!away()) continue;
    add_stored(owner);
    copy_slices(d_, {d_.whole(buffer)}, {d_.whole(sum.stored)}, holder, name_of(owner));
  }
}

bool Gradients::accumulate(const Produced& p) {
  const CallGradient& g = p.gradient;
  auto& locals = local_sums_[place(p.owner())];
  const auto place = index(g.which.part + 1);
  if (locals.size() <= place) locals.resize(place + 1, -1);
  OutputBuffer sum{locals[place], locals[place] < 0};
  if (sum.starts)
    sum.buffer = locals[place] = d_.add_buffer(d_.text_of("local sum of", g.which), Kind::gradients, Tier::device,
                                               device::fp32_bytes(g.range.size()), false);
  Accumulate{.gradient = g, .sum = sum}.add(d_);
  const bool last = g.micro_batch == d_.request.accumulation - 1;
  if (last) Round{.gradient = g, .sum = sum}.add(d_);
  return last;
}

// The buffer of the owner's incomplete run of micro-batches while a call's gradient is added; none (-1) if every run
// ends with its call.
OutputBuffer Gradients::run_of(const Owner& owner) {
  const auto length = index(d_.plan.reduce_group), pieces = index(d_.request.mesh.data());
  if (d_.plan.sums_in_nodes() || !device::GradientRuns::needs_partial(length, pieces)) return {};
  int& on_device = sum_of(owner).run_on_device;
  const bool starts = on_device < 0;
  if (starts)
    on_device = d_.add_buffer("run of " + name_of(owner), Kind::gradients, Tier::device, run_bytes(owner), false);
  return {on_device, starts};
}

void Gradients::reduce(const Produced& p) {
  const Owner owner = p.owner();
  if (by_tiles(owner)) return reduce_tile(p);
  if (std::find(open_.begin(), open_.end(), owner) == open_.end()) open_.push_back(owner);
  Sum& sum = sum_of(owner);
  if (d_.plan.fast && !accumulate(p)) return;
  const bool starts = sum.newest < 0;
  sum.newest = p.gradient.micro_batch;
  if (sum.on_device < 0)
    sum.on_device = d_.add_buffer(name_of(owner), Kind::gradients, Tier::device, sum_bytes(owner), false);
  CallGradient gradient = p.gradient;
  if (d_.plan.sums_in_nodes()) gradient.buffer = NodeSum{gradient}.add(d_);
  ReduceGradient{.gradient = gradient,
                 .sum = {.buffer = sum.on_device, .starts = starts},
                 .first = d_.plan.fast || p.gradient.micro_batch == 0,
                 .run_sum = run_of(owner)}
      .add(d_);
}

void Gradients::reduce_tile(const Produced& p) {
  const CallGradient& g = p.gradient;
  const Owner owner = p.owner();
  if (sum_of(owner).stored < 0) add_stored(owner);
  Sum& sum = sum_of(owner);
  const std::size_t origin = owner.shared ? d_.layout(owner.unit).shared->elements.begin : 0;
  const Slice stored{sum.stored, device::fp32_bytes(g.range.begin - origin), device::fp32_bytes(g.range.size())};
  const std::string name = fmt::format("{}, tile {}", name_of(owner), g.which.part);
  const bool first = g.micro_batch == 0;
  const Slice on_device =
      first ? Slice{d_.add_buffer(name, Kind::gradients, Tier::device, stored.bytes, false), 0, stored.bytes}
            : copy_to_tier(d_, {stored}, Tier::device, owner.unit, name, Kind::gradients)[0];
  ReduceGradient{.gradient = g, .sum = {on_device.buffer, first}, .first = first}.add(d_);
  copy_slices(d_, {on_device}, {stored}, owner.unit, name);
  if (g.micro_batch < d_.request.accumulation - 1) return;
  sum.summed += g.range.size();
  if (!owner.shared && sum.summed == d_.layout(owner.unit).padded()) complete_by_chunks(owner.unit);
}

// Completes a sum that was added by tiles. Tiles need not end where the norm's blocks do, so the norm goes over
// separate chunks. Chunks are cut at the ends of shared ranges as well, and the sharers' sums are added to the chunks
// inside.
void Gradients::complete_by_chunks(int unit) {
  Sum& sum = sum_of({unit});
  sum.complete = true;
  receive_shared(unit);
  const auto slice = [](int buffer, std::size_t begin, std::size_t end) {
    return Slice{buffer, device::fp32_bytes(begin), device::fp32_bytes(end - begin)};
  };
  std::vector<std::size_t> boundaries;
  for (std::size_t at = 0; at < d_.layout(unit).padded(); at += d_.request.update_chunk) boundaries.push_back(at);
  boundaries.push_back(d_.layout(unit).padded());
  for (const int sharer : d_.layout(unit).sharers)
    for (const std::size_t boundary :
         {d_.layout(sharer).shared->elements.begin, d_.layout(sharer).shared->elements.end})
      boundaries.push_back(boundary);
  std::sort(boundaries.begin(), boundaries.end());
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const ElementRange range{boundaries[i], boundaries[i + 1]};
    const std::string name = fmt::format("{}, complete", name_of({unit}));
    const Slice stored = slice(sum.stored, range.begin, range.end);
    const Slice own = copy_to_tier(d_, {stored}, Tier::device, unit, name, Kind::gradients)[0];
    bool combined = false;
    for (const int sharer : d_.layout(unit).sharers) {
      const ElementRange& shared = d_.layout(sharer).shared->elements;
      if (range.begin < shared.begin || range.end > shared.end) continue;
      const Slice other = slice(sum_of({sharer, true}).stored, range.begin - shared.begin, range.end - shared.begin);
      const int shared_sum =
          copy_to_tier(d_, {other}, Tier::device, unit, name_of({sharer, true}), Kind::gradients)[0].buffer;
      Combine{.holder = unit,
              .sharer = sharer,
              .shared_sum = shared_sum,
              .sum = own.buffer,
              .range = range,
              .chunk = static_cast<int>(i)}
          .add(d_);
      combined = true;
    }
    Norm{.unit = unit, .sum = own.buffer, .range = range, .chunk = static_cast<int>(i)}.add(d_);
    if (combined) copy_slices(d_, {own}, {stored}, unit, name);
  }
}

std::vector<GradientSource> Gradients::of(int unit, std::size_t begin, std::size_t end) const {
  const auto holder = [&](const Owner& owner) {
    const Sum& sum = sums_[place(owner)];
    return sum.stored >= 0 ? sum.stored : sum.on_device;
  };
  if (has_sums_) {
    Slice sum{holder({unit}), device::fp32_bytes(begin), device::fp32_bytes(end - begin)};
    sum.own = d_.plan.copies_sums();
    return {{Role::sum, sum}};
  }
  std::vector<GradientSource> sources{
      {Role::gradients, {holder({unit}), d_.bytes_of(begin), d_.bytes_of(end - begin)}}};
  for (const int sharer : d_.layout(unit).sharers) {
    const ElementRange& shared = d_.layout(sharer).shared->elements;
    const std::size_t from = std::max(begin, shared.begin), to = std::min(end, shared.end);
    if (from < to)
      sources.push_back(
          {Role::shared_gradients, {holder({sharer, true}), d_.bytes_of(from - shared.begin), d_.bytes_of(to - from)}});
  }
  return sources;
}

}  // namespace strata::runtime
