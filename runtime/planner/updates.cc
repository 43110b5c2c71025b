#include "runtime/planner/updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/memory.h"
#include "runtime/planner/fetches.h"
#include "runtime/tasks/collectives/gather.h"
#include "runtime/tasks/stage_link.h"
#include "runtime/tasks/update.h"

namespace strata::runtime {
namespace {

// The number of chunks that are being fetched while one is updated.
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
    StateBuffers& h = d_.plan.state_buffers.emplace_back();
    const auto add_parameters = [&](PoolKind pool, const char* kind) {
      const Cut cut = d_.plan.parameters_of(static_cast<std::size_t>(unit), pool);
      if (cut.elements == 0) return -1;
      const std::string what = fmt::format("{}{} of", kind, d_.plan.sharded_parameters() ? "shard" : "parameters");
      return add(what.c_str(), Kind::parameters, placement.parameters.tier, d_.bytes_of(pool, cut.size()));
    };
    if (!d_.owns(unit)) {
      if (d_.copies(unit, PoolKind::trained)) h.parameters = add_parameters(PoolKind::trained, "copied ");
      if (d_.copies(unit, PoolKind::frozen)) h.frozen = add_parameters(PoolKind::frozen, "copied frozen ");
      continue;
    }
    h.parameters = add_parameters(PoolKind::trained, "");
    h.frozen = add_parameters(PoolKind::frozen, "frozen ");
    h.quantised = add_parameters(PoolKind::quantised, "quantised ");
    if (d_.request.forward_only || !d_.layout(unit).trains()) continue;
    h.chunk = apart ? d_.request.update_chunk : part;
    h.slots = {0};
    for (std::size_t begin = 0; begin < part; begin += h.chunk) {
      const std::size_t end = std::min(part, begin + h.chunk);
      chunks_.push_back({unit, begin, end, end == part});
      h.slots.push_back(h.slots.back() + aligned(d_.plan.moment_bytes(static_cast<std::size_t>(unit), begin, end)));
    }
    const Tier tier = placement.optimizer.tier;
    if (!d_.fp32()) h.master = add("master of", Kind::optimizer, tier, device::fp32_bytes(part));
    h.moment1 = add("moment 1 of", Kind::optimizer, tier, h.slots.back());
    if (moment_count(d_.request.algorithm) > 1) h.moment2 = add("moment 2 of", Kind::optimizer, tier, h.slots.back());
  }
  if (!d_.request.read_ahead || !d_.plan.cyclic) return;
  for (const Chunk& c : chunks_) {
    if (c.unit != first_updated()) break;
    ++next_;
    for (Slice& s : ahead_.emplace_back(stored_slices(c)))
      if (d_.tier_of(s.buffer) == Tier::nvme)
        s = {d_.add_buffer(d_.text_of("next state of", {c.unit, -1}), Kind::staging, Tier::host, s.bytes, true), 0,
             s.bytes};
  }
}

void Updates::advance(int unit) {
  if (!std::exchange(begun_, true)) update_read_ahead();
  for (;;) {
    // Chunks fetched ahead may belong to a later unit.
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
  for (Late& late : late_)
    copy_slices(d_, std::move(late.from), std::move(late.to), first_updated(),
                d_.text_of("updated", {first_updated()}));
  late_.clear();
}

// The following chunks are fetched first, so that the drive is busy while those that were read ahead are updated.
void Updates::update_read_ahead() {
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

Slice Updates::part_of(int buffer, const Chunk& c, device::StorageFormat format) const {
  return {buffer, stored_bytes(format, c.begin), stored_bytes(format, c.end - c.begin)};
}

Slice Updates::parameters_of(const Chunk& c) const {
  Slice s = part_of(d_.state_buffers(c.unit).parameters, c, d_.computed);
  s.own = d_.plan.gathers_updated();
  return s;
}

bool Updates::gathers_updated() const {
  return d_.plan.gathers_updated() && d_.plan.placement.parameters.tier != Tier::device;
}

Slice Updates::assembled(const Chunk& c) {
  int& whole = assembled_[static_cast<std::size_t>(c.unit)];
  if (whole < 0)
    whole = d_.add_buffer(d_.text_of("updated", {c.unit, -1}), Kind::parameters, Tier::device,
                          d_.bytes_of(d_.plan.parameters_of(static_cast<std::size_t>(c.unit)).size()), false);
  Slice s = parameters_of(c);
  s.buffer = whole;
  return s;
}

std::vector<Slice> Updates::stored_slices(const Chunk& c) const {
  const StateBuffers& h = d_.state_buffers(c.unit);
  std::vector<Slice> stored = {d_.fp32() ? parameters_of(c) : part_of(h.master, c, device::StorageFormat::fp32)};
  const std::size_t slot = c.begin / h.chunk, bytes = h.slots[slot + 1] - h.slots[slot];
  for (const int moment : {h.moment1, h.moment2})
    if (moment >= 0) stored.push_back({moment, h.slots[slot], bytes});
  return stored;
}

void Updates::read_ahead() {
  for (std::size_t i = 0; i < ahead_.size(); ++i)
    copy_slices(d_, stored_slices(chunks_[i]), ahead_[i], chunks_[i].unit,
                d_.text_of("next state of", {chunks_[i].unit, -1}));
}

Updates::Fetched Updates::fetch(std::size_t index) {
  const Chunk& c = chunks_[index];
  const std::string what = d_.text_of("state of", {c.unit, -1});
  Fetched f{c, gradients_.of(c.unit, c.begin, c.end), stored_slices(c), {}};
  std::vector<Slice> all;
  for (const GradientSource& g : f.gradient) all.push_back(g.slice);
  const std::vector<Slice>& state = index < ahead_.size() ? ahead_[index] : f.stored;
  all.insert(all.end(), state.begin(), state.end());
  // fp32 parameters that are assembled on the device are updated in place, if the update runs there.
  const bool in_place = d_.fp32() && gathers_updated() && where_ == Tier::device;
  if (in_place) {
    const auto master = static_cast<std::ptrdiff_t>(f.gradient.size());
    const Slice place = assembled(c);
    copy_slices(d_, copy_to_tier(d_, {f.stored[0]}, Tier::host, c.unit, what), {place}, c.unit, what);
    all[static_cast<std::size_t>(master)] = place;
  }
  all = copy_to_tier(d_, std::move(all), where_, c.unit, what);
  for (std::size_t i = 0; i < f.gradient.size(); ++i) f.gradient[i].slice = all[i];
  f.state.assign(all.begin() + static_cast<std::ptrdiff_t>(f.gradient.size()), all.end());
  return f;
}

void Updates::update(Fetched f) {
  const Chunk& c = f.chunk;
  const Slice parameters = gathers_updated() ? assembled(c) : parameters_of(c);
  const std::string what = d_.text_of("updated", {c.unit, -1});
  // The update writes the parameters to their own place, if that is in the tier in which it runs.
  Slice out = parameters;
  if (!d_.fp32() && d_.tier_of(parameters.buffer) != where_)
    out = {d_.add_buffer(what, Kind::staging, where_, parameters.bytes, false), 0, parameters.bytes};

  Update{.unit = c.unit,
         .elements = {c.begin, c.end},
         .gradient = f.gradient,
         .master = f.state[0],
         .moment1 = f.state[1],
         .moment2 = f.state.size() > 2 ? f.state[2] : Slice{},
         .parameters = d_.fp32() ? Slice{} : out}
      .add(d_);

  std::vector<Slice> from = f.state, to = f.stored;
  if (d_.fp32()) {
    to[0] = parameters;
  } else {
    from.push_back(out);
    to.push_back(parameters);
  }
  if (c.unit == first_updated() && !ahead_.empty()) write_late(from, to);
  copy_slices(d_, std::move(from), std::move(to), c.unit, what);
  if (c.last && d_.plan.gathers_updated()) gather_updated(c.unit);
  if (c.last) send_copies(c.unit);
}

// Each rank sends the part that it holds, so stages in which ranks hold complete parameters need no extra all-gather.
void Updates::send_copies(int unit) {
  const std::vector<int> stages = d_.copying_stages(unit, PoolKind::trained);
  if (stages.empty()) return;
  const std::string what = d_.text_of("updated", {unit, -1});
  const Slice sent = copy_to_tier(d_, {d_.whole(d_.state_buffers(unit).parameters)}, Tier::device, unit, what)[0];
  for (const int stage : stages) SendToStage{{unit, -1, stage, false, sent.buffer}}.add(d_);
}

int Updates::last_copied() const {
  int last = -1;
  for (const int unit : d_.plan.own.all())
    if (!d_.copying_stages(unit, PoolKind::trained).empty()) last = unit;
  return last;
}

void Updates::receive_copies() {
  for (int unit = 0; unit < d_.units(); ++unit) {
    const int stored = d_.state_buffers(unit).parameters;
    if (!d_.copies(unit, PoolKind::trained)) continue;
    const std::string what = d_.text_of("updated", {unit, -1});
    const bool direct = d_.tier_of(stored) == Tier::device;
    const std::size_t bytes = d_.whole(stored).bytes;
    const int received = direct ? stored : d_.add_buffer(what, Kind::staging, Tier::device, bytes, false);
    ReceiveFromStage{{unit, -1, d_.stage_of(unit), false, received}}.add(d_);
    copy_slices(d_, {d_.whole(received)}, {d_.whole(stored)}, unit, what);
  }
}

// State that was read ahead has its own memory, so it is written back last, when no unit waits for the drive any more.
// Parameters are written earlier, because they may be read again before that.
void Updates::write_late(std::vector<Slice>& from, std::vector<Slice>& to) {
  Late& late = late_.emplace_back();
  for (std::size_t i = from.size(); i-- > 0;) {
    if (d_.tier_of(to[i].buffer) != Tier::nvme || to[i].buffer == d_.state_buffers(first_updated()).parameters)
      continue;
    late.from.push_back(from[i]);
    late.to.push_back(to[i]);
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// All-gathers the updated parts among the ranks that hold them. If the update ends the step, this overlaps with the
// forward of the next one.
void Updates::gather_updated(int unit) {
  const int assembled = assembled_[static_cast<std::size_t>(unit)];
  const int buffer = assembled < 0 ? d_.state_buffers(unit).parameters : assembled;
  GatherUpdated{.unit = unit, .parameters = buffer}.add(d_);
  if (assembled >= 0)
    copy_slices(d_, {d_.whole(assembled)}, {d_.whole(d_.state_buffers(unit).parameters)}, unit,
                d_.text_of("updated", {unit, -1}));
}

}  // namespace strata::runtime
