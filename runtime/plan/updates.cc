#include "runtime/plan/updates.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/memory.h"

namespace strata::runtime {
namespace {

// Chunks on their way in while one is updated.
constexpr std::size_t kAhead = 2;

}  // namespace

Updates::Updates(Draft& draft, const Gradients& gradients)
    : d_(draft),
      gradients_(gradients),
      where_(draft.plan.cyclic ? Tier::host : Tier::device),
      assembled_(static_cast<std::size_t>(draft.units()), -1) {
  const Placement& placement = d_.plan.placement;
  const bool apart =
      d_.plan.cyclic || placement.parameters.tier != Tier::device || placement.gradients.tier != Tier::device;
  for (int unit = 0; unit < d_.units(); ++unit) {
    const std::size_t part = d_.part_size(unit);
    const auto add = [&](const char* what, Kind kind, Tier tier, std::size_t bytes) {
      const int buffer = d_.add_buffer(d_.text_of(what, {unit, -1}), kind, tier, bytes, true);
      d_.plan.buffers[static_cast<std::size_t>(buffer)].filled = true;
      return buffer;
    };
    Home& h = d_.plan.homes.emplace_back();
    const bool sharded = d_.plan.sharded_parameters();
    h.parameters = add(sharded ? "shard of" : "parameters of", Kind::parameters, placement.parameters.tier,
                       (sharded ? d_.layout(unit).shard : d_.layout(unit).padded) * d_.element);
    if (d_.request.forward_only) continue;
    h.chunk = apart ? d_.request.update_chunk : part;
    h.slots = {0};
    for (std::size_t begin = 0; begin < part; begin += h.chunk) {
      const std::size_t end = std::min(part, begin + h.chunk);
      chunks_.push_back({unit, begin, end, end == part});
      h.slots.push_back(h.slots.back() + aligned(d_.plan.moment_bytes(static_cast<std::size_t>(unit), begin, end)));
    }
    const Tier tier = placement.optimizer.tier;
    if (!d_.fp32()) h.master = add("master of", Kind::optimizer, tier, part * sizeof(float));
    h.moment1 = add("moment 1 of", Kind::optimizer, tier, h.slots.back());
    if (moment_count(d_.request.algorithm) > 1) h.moment2 = add("moment 2 of", Kind::optimizer, tier, h.slots.back());
  }
  if (!d_.request.read_ahead || !d_.plan.cyclic) return;
  for (const Chunk& c : chunks_) {
    if (c.unit > 0) break;
    ++next_;
    for (Stretch& s : ahead_.emplace_back(homes_of(c)))
      if (d_.tier_of(s.buffer) == Tier::nvme)
        s = {d_.add_buffer(d_.text_of("next state of", {c.unit, -1}), Kind::staging, Tier::host, s.bytes, true), 0,
             s.bytes};
  }
}

void Updates::set_scalars(int buffer, Role role) {
  scalars_ = buffer;
  scalars_role_ = role;
}

void Updates::advance(int unit) {
  if (!std::exchange(begun_, true)) update_what_was_read_ahead();
  for (;;) {
    // What is fetched ahead may belong to a later unit.
    const bool left = next_ < chunks_.size() && chunks_[next_].unit <= unit;
    if (!left && (fetched_.empty() || fetched_.front().chunk.unit > unit)) break;
    if (next_ < chunks_.size() && fetched_.size() <= kAhead) {
      fetched_.push_back(fetch(next_++));
      continue;
    }
    update(std::move(fetched_.front()));
    fetched_.pop_front();
  }
  if (next_ < chunks_.size() || !fetched_.empty()) return;
  for (Late& late : late_) d_.put(std::move(late.from), std::move(late.to), 0, d_.text_of("updated", {0, -1}));
  late_.clear();
}

// The drive is kept busy with the chunks that follow while those that were read ahead are updated.
void Updates::update_what_was_read_ahead() {
  if (ahead_.empty()) return;
  while (next_ < chunks_.size() && fetched_.size() <= kAhead) fetched_.push_back(fetch(next_++));
  std::deque<Fetched> fetched;
  for (std::size_t i = 0; i < ahead_.size() || !fetched.empty();) {
    if (i < ahead_.size() && fetched.size() <= kAhead) {
      fetched.push_back(fetch(i++));
      continue;
    }
    update(std::move(fetched.front()));
    fetched.pop_front();
  }
}

Stretch Updates::part_of(int buffer, const Chunk& c, std::size_t size) const {
  return {buffer, c.begin * size, (c.end - c.begin) * size};
}

Stretch Updates::parameters_of(const Chunk& c) const {
  Stretch s = part_of(home(c.unit).parameters, c, d_.element);
  s.own = d_.plan.sharded_optimizer() && !d_.plan.sharded_parameters();
  return s;
}

bool Updates::spreads() const {
  return d_.plan.sharded_optimizer() && !d_.plan.sharded_parameters() &&
         d_.plan.placement.parameters.tier != Tier::device;
}

Stretch Updates::assembled(const Chunk& c) {
  int& whole = assembled_[static_cast<std::size_t>(c.unit)];
  if (whole < 0)
    whole = d_.add_buffer(d_.text_of("updated", {c.unit, -1}), Kind::parameters, Tier::device,
                          d_.layout(c.unit).padded * d_.element, false);
  Stretch s = parameters_of(c);
  s.buffer = whole;
  return s;
}

std::vector<Stretch> Updates::homes_of(const Chunk& c) const {
  const Home& h = home(c.unit);
  std::vector<Stretch> homes = {d_.fp32() ? parameters_of(c) : part_of(h.master, c, sizeof(float))};
  const std::size_t slot = c.begin / h.chunk, bytes = h.slots[slot + 1] - h.slots[slot];
  for (const int moment : {h.moment1, h.moment2})
    if (moment >= 0) homes.push_back({moment, h.slots[slot], bytes});
  return homes;
}

void Updates::read_ahead() {
  for (std::size_t i = 0; i < ahead_.size(); ++i)
    d_.put(homes_of(chunks_[i]), ahead_[i], chunks_[i].unit, d_.text_of("next state of", {chunks_[i].unit, -1}));
}

Updates::Fetched Updates::fetch(std::size_t index) {
  const Chunk& c = chunks_[index];
  const std::string what = d_.text_of("state of", {c.unit, -1});
  Fetched f{c, gradients_.of(c.unit, c.begin, c.end), homes_of(c), {}};
  std::vector<Stretch> all;
  for (const Gradients::Source& g : f.gradient) all.push_back(g.stretch);
  const std::vector<Stretch>& state = index < ahead_.size() ? ahead_[index] : f.homes;
  all.insert(all.end(), state.begin(), state.end());
  // On the device fp32 parameters that are put together there are updated in their place.
  const bool in_place = d_.fp32() && spreads() && where_ == Tier::device;
  if (in_place) {
    const auto master = static_cast<std::ptrdiff_t>(f.gradient.size());
    const Stretch place = assembled(c);
    d_.put(d_.bring({f.homes[0]}, Tier::host, c.unit, what), {place}, c.unit, what);
    all[static_cast<std::size_t>(master)] = place;
  }
  all = d_.bring(std::move(all), where_, c.unit, what);
  for (std::size_t i = 0; i < f.gradient.size(); ++i) f.gradient[i].stretch = all[i];
  f.state.assign(all.begin() + static_cast<std::ptrdiff_t>(f.gradient.size()), all.end());
  return f;
}

void Updates::update(Fetched f) {
  const Chunk& c = f.chunk;
  const Stretch parameters = spreads() ? assembled(c) : parameters_of(c);
  const std::string what = d_.text_of("updated", {c.unit, -1});
  // The update's own copy of the parameters: their place, if that is where it runs.
  Stretch out = parameters;
  if (!d_.fp32() && d_.tier_of(parameters.buffer) != where_)
    out = {d_.add_buffer(what, Kind::staging, where_, parameters.bytes, false), 0, parameters.bytes};

  Task& task =
      d_.add_task(TaskKind::update, where_ == Tier::device ? LaneId::compute : LaneId::host_compute, c.unit, -1);
  task.begin = c.begin;
  task.end = c.end;
  Draft::use(task, scalars_, scalars_role_, Access::read);
  for (const Gradients::Source& g : f.gradient) Draft::use(task, g.stretch, g.role, Access::read);
  Draft::use(task, f.state[0], Role::master, Access::update);
  Draft::use(task, f.state[1], Role::moment1, Access::update);
  if (f.state.size() > 2) Draft::use(task, f.state[2], Role::moment2, Access::update);
  if (!d_.fp32()) Draft::use(task, out, Role::parameters, Access::write);
  std::size_t moments = 0;
  for (std::size_t i = 1; i < f.state.size(); ++i) moments += f.state[i].bytes;
  task.cost.bytes = static_cast<double>((c.end - c.begin) * (8 + 2 * d_.element) + 2 * moments);

  std::vector<Stretch> from = f.state, to = f.homes;
  if (d_.fp32()) {
    to[0] = parameters;
  } else {
    from.push_back(out);
    to.push_back(parameters);
  }
  if (c.unit == 0 && !ahead_.empty()) write_late(from, to);
  d_.put(std::move(from), std::move(to), c.unit, what);
  if (c.last && d_.plan.sharded_optimizer() && !d_.plan.sharded_parameters()) spread(c.unit);
}

// The memory of what was read ahead is wanted by nothing else: it goes home when no unit waits for the drive any more.
// Parameters do not, which may be read again before.
void Updates::write_late(std::vector<Stretch>& from, std::vector<Stretch>& to) {
  Late& late = late_.emplace_back();
  for (std::size_t i = from.size(); i-- > 0;) {
    if (d_.tier_of(to[i].buffer) != Tier::nvme || to[i].buffer == home(0).parameters) continue;
    late.from.push_back(from[i]);
    late.to.push_back(to[i]);
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Every rank's updated part to all. If the update ends the step, this goes on beside the next one's forward.
void Updates::spread(int unit) {
  const int assembled = assembled_[static_cast<std::size_t>(unit)];
  const int buffer = assembled < 0 ? home(unit).parameters : assembled;
  Task& task = d_.add_task(TaskKind::gather, LaneId::gather, unit, -1);
  Draft::use(task, buffer, Role::parameters, Access::update);
  task.end = d_.layout(unit).padded;
  d_.count_all_gather(task, d_.element);
  if (assembled >= 0)
    d_.put({d_.whole(assembled)}, {d_.whole(home(unit).parameters)}, unit, d_.text_of("updated", {unit, -1}));
}

}  // namespace strata::runtime
