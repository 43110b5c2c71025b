#include "runtime/memory/storage.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/index.h"
#include "comm/exchange_values.h"

namespace strata::runtime {

using device::DType;
using device::View;

Storage::Storage(const StepPlan& plan, comm::World& world, const offload::IoOptions& io)
    : plan_(plan), rank_(plan.mesh().at(world.rank())), own_(std::make_unique<Tiers>()), memory_(*own_) {
  const auto peak = [&](Tier tier) { return plan.memory[index(tier)].peak; };
  // Ranks read each other's arenas, which must therefore have one size; pipeline stages need different ones.
  std::size_t most = peak(Tier::device);
  if (plan.mesh().stages > 1) most = std::ranges::max(comm::exchange_value(world, most));
  memory_.arenas[index(Tier::device)] = world.allocate(most, plan.device);
  if (peak(Tier::host)) memory_.arenas[index(Tier::host)] = device::Arena::host(peak(Tier::host), plan.device);
  if (peak(Tier::nvme)) {
    memory_.swap = std::make_unique<offload::Swap>(io, peak(Tier::nvme), world.rank(), world.abort_token());
    const device::Arena& host = memory_.arenas[index(Tier::host)];
    if (host.size()) memory_.swap->register_memory({host.data(), host.size()});
  }
}

Storage::Storage(const StepPlan& plan, const Storage& other) : plan_(plan), rank_(other.rank_), memory_(other.memory_) {
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    STRATA_CHECK_LE(plan.memory[tier].peak, other.plan_.memory[tier].peak);
}

View Storage::view(int buffer, DType dtype) const {
  const Buffer& b = plan_.buffers[index(buffer)];
  return {memory_.arenas[static_cast<std::size_t>(b.tier)].at(b.offset), b.bytes / size_of(dtype), dtype};
}

View Storage::view(const Task& task, const Use& use, DType dtype) const {
  if (use.bytes == 0) return view(use.buffer, dtype);
  const Buffer& b = plan_.buffers[index(use.buffer)];
  return {memory_.arenas[index(b.tier)].at(place_of(task, use)), use.bytes / size_of(dtype), dtype};
}

void Storage::write(int buffer, std::span<const std::byte> in, std::size_t at) {
  const Buffer& b = plan_.buffers[index(buffer)];
  STRATA_CHECK_LE(at + in.size(), b.bytes);
  memory_.arenas[index(b.tier)].write(b.offset + at, in);
}

void Storage::read(int buffer, std::span<std::byte> out) const {
  const Buffer& b = plan_.buffers[index(buffer)];
  STRATA_CHECK_LE(out.size(), b.bytes);
  memory_.arenas[index(b.tier)].read(b.offset, out);
}

std::size_t Storage::place_of(const Task& task, const Use& use) const {
  const Buffer& b = plan_.buffers[index(use.buffer)];
  std::size_t own = 0;
  if (use.own) {
    const std::size_t unit = index(task.unit);
    const bool of_sums = b.kind == Kind::gradients;
    const Cut held = of_sums ? plan_.sums_of(unit) : plan_.parameters_of(unit);
    own = plan_.parts_of(unit).piece(rank_).begin - held.piece(rank_).begin;
    own = of_sums ? device::fp32_bytes(own) : stored_bytes(format_of(plan_.dtype), own);
  }
  STRATA_CHECK_LE(own + use.offset + use.bytes, b.bytes);
  return b.offset + own + use.offset;
}

View Storage::view(const Task& task, Role role, DType dtype) const {
  for (const Use& use : task.uses)
    if (use.role == role) return view(task, use, dtype);
  return {};
}

models::ElementRange Storage::held(std::size_t unit, StateKind kind) const {
  if (is_frozen(kind)) return plan_.parameters_of(unit, pool_of(kind)).piece(rank_);
  const Cut cut = kind == StateKind::parameters ? plan_.parameters_of(unit) : plan_.parts_of(unit);
  return cut.piece(rank_);
}

bool Storage::has_state(StateKind kind) const {
  const auto any = [&](int StateBuffers::*buffer) {
    return std::ranges::any_of(plan_.state_buffers, [&](const StateBuffers& buffers) { return buffers.*buffer >= 0; });
  };
  switch (kind) {
    case StateKind::master:
      return any(&StateBuffers::master) || plan_.dtype == DType::fp32;
    case StateKind::moment1:
      return any(&StateBuffers::moment1);
    case StateKind::moment2:
      return any(&StateBuffers::moment2);
    case StateKind::parameters:
      return true;
    case StateKind::frozen:
      return any(&StateBuffers::frozen);
    case StateKind::quantised:
      return any(&StateBuffers::quantised);
  }
  return false;
}

// The place of bytes [begin, begin + bytes) of the held state, or of their first part if they are not contiguous.
Storage::Place Storage::place_of_state(std::size_t unit, StateKind kind, std::size_t begin, std::size_t bytes) const {
  const StateBuffers& buffers = plan_.state_buffers[unit];
  const auto place = [&](int buffer, std::size_t offset, std::size_t there) -> Place {
    const Buffer& b = plan_.buffers[index(buffer)];
    STRATA_CHECK_LE(offset + there, b.bytes);
    return {b.tier, b.offset + offset, there};
  };
  if (kind == StateKind::parameters || is_frozen(kind)) return place(buffers.of(pool_of(kind)), begin, bytes);
  const std::size_t part = held(unit, kind).begin;
  if (kind == StateKind::master) {
    if (buffers.master >= 0) return place(buffers.master, begin, bytes);
    const std::size_t first = held(unit, StateKind::parameters).begin;  // fp32: the parameters are the master
    return place(buffers.parameters, device::fp32_bytes(part - first) + begin, bytes);
  }
  const UnitLayout& u = plan_.layout.units[unit];
  for (std::size_t chunk = 0;; ++chunk) {
    STRATA_CHECK_LE(chunk + 2, buffers.slots.size());
    const std::size_t from = chunk * buffers.chunk, to = std::min(from + buffers.chunk, plan_.parts_of(unit).size());
    const std::size_t first = u.moment_bytes(part, part + from), last = u.moment_bytes(part, part + to);
    if (begin < last)
      return place(kind == StateKind::moment1 ? buffers.moment1 : buffers.moment2, buffers.slots[chunk] + begin - first,
                   std::min(bytes, last - begin));
  }
}

void Storage::read_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<std::byte> out) const {
  while (!out.empty()) {
    const Place p = place_of_state(unit, kind, begin, out.size());
    if (p.tier == Tier::nvme) {
      const std::size_t before = p.offset % device::kBufferAlignment;  // direct I/O requires whole pages
      const device::Arena pages(aligned(before + p.bytes));
      memory_.swap->read(p.offset - before, {pages.data(), pages.size()});
      std::memcpy(out.data(), pages.at(before), p.bytes);
    } else {
      memory_.arenas[index(p.tier)].read(p.offset, out.first(p.bytes));
    }
    out = out.subspan(p.bytes);
    begin += p.bytes;
  }
}

void Storage::write_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<const std::byte> in) {
  while (!in.empty()) {
    const Place p = place_of_state(unit, kind, begin, in.size());
    if (p.tier == Tier::nvme) {
      const std::size_t before = p.offset % device::kBufferAlignment;
      const device::Arena pages(aligned(before + p.bytes));
      std::unique_lock<std::mutex> lock;
      if (pages.size() != p.bytes) {  // other state on the same pages must be preserved
        lock = std::unique_lock(memory_.pages);
        memory_.swap->read(p.offset - before, {pages.data(), pages.size()});
      }
      std::memcpy(pages.at(before), in.data(), p.bytes);
      memory_.swap->write(p.offset - before, {pages.data(), pages.size()});
    } else {
      memory_.arenas[index(p.tier)].write(p.offset, in.first(p.bytes));
    }
    in = in.subspan(p.bytes);
    begin += p.bytes;
  }
}

MemoryMeter::MemoryMeter(const StepPlan& plan)
    : plan_(plan), alive_(plan.buffers.size()), uses_left_(plan.buffers.size()), uses_(plan.buffers.size()) {
  for (const Task& task : plan.tasks)
    for (const Use& use : task.uses) ++uses_[static_cast<std::size_t>(use.buffer)];
  uses_left_ = uses_;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].persistent) begin(b);
}

void MemoryMeter::begin(std::size_t b) {
  const Buffer& buffer = plan_.buffers[b];
  const auto tier = static_cast<std::size_t>(buffer.tier), kind = static_cast<std::size_t>(buffer.kind);
  alive_[b] = true;
  now_[tier][kind] += buffer.bytes;
  peak_[tier].by_kind[kind] = std::max(peak_[tier].by_kind[kind], now_[tier][kind]);
  peak_[tier].peak = std::max(peak_[tier].peak, buffer.offset + buffer.bytes);
}

void MemoryMeter::issue(std::size_t task) {
  const auto& uses = plan_.tasks[task].uses;
  for (const Use& use : uses)
    if (const auto b = static_cast<std::size_t>(use.buffer); !alive_[b]) begin(b);
  for (const Use& use : uses) {
    const auto b = static_cast<std::size_t>(use.buffer);
    if (--uses_left_[b] > 0) continue;
    uses_left_[b] = uses_[b];  // for the next step
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.persistent) continue;
    alive_[b] = false;
    now_[static_cast<std::size_t>(buffer.tier)][static_cast<std::size_t>(buffer.kind)] -= buffer.bytes;
  }
}

}  // namespace strata::runtime
