#include "runtime/plan/border_tasks.h"

#include <fmt/format.h>

namespace strata::runtime {

BorderTasks::BorderTasks(Draft& draft, const Buffers& buffers) : d_(draft), b_(buffers) {
  if (d_.plan.device.kind != device::Kind::cpu)
    for (const int buffer : {b_.batch, b_.state, b_.losses, b_.squares, b_.logits}) {
      if (buffer < 0) continue;
      const Buffer& b = d_.plan.buffers[static_cast<std::size_t>(buffer)];
      const std::size_t bytes = b.bytes;
      mirrors_.emplace_back(
          buffer, d_.add_buffer(fmt::format("{} of the host", b.name), Kind::staging, Tier::host, bytes, true));
    }
  if (const std::size_t bytes = d_.request.checkpoint_staging)
    checkpoint_ = d_.add_buffer("checkpoint", Kind::staging, Tier::host, bytes, true);
}

// A buffer of the device as the host writes and reads it: itself, or one of the host beside it on a GPU.
int BorderTasks::of_host(int buffer) const {
  for (const auto& [device, host] : mirrors_)
    if (device == buffer) return host;
  return buffer;
}

// No part of what the step moves between tiers: the figures of a step do not count it.
void BorderTasks::copy(TaskKind kind, LaneId lane, std::initializer_list<int> buffers) {
  if (mirrors_.empty()) return;
  Task& task = d_.add_task(kind, lane, -1, -1);
  for (const int buffer : buffers) {
    if (buffer < 0) continue;
    const bool up = kind == TaskKind::upload;
    Draft::use(task, up ? of_host(buffer) : buffer, Role::source, Access::read);
    Draft::use(task, up ? buffer : of_host(buffer), Role::target, Access::write);
  }
}

// They have the whole step's forward and backward, as the first updates come behind them, or, in a cycle, are left out
// behind the drain that a checkpoint begins with.
void BorderTasks::save_state() {
  if (checkpoint_ < 0) return;
  d_.when = When::checkpoint;
  for (int unit = 0; unit < d_.units(); ++unit) {
    const Home& home = d_.plan.homes[static_cast<std::size_t>(unit)];
    Task& task = d_.add_task(TaskKind::save, LaneId::checkpoint, unit, -1);
    Draft::use(task, checkpoint_, Role::staging, unit == 0 ? Access::write : Access::update);
    Draft::use(task, d_.fp32() ? home.parameters : home.master, Role::master, Access::read);
    Draft::use(task, home.moment1, Role::moment1, Access::read);
    if (home.moment2 >= 0) Draft::use(task, home.moment2, Role::moment2, Access::read);
  }
  Draft::use(d_.add_task(TaskKind::publish, LaneId::checkpoint, -1, -1), checkpoint_, Role::staging, Access::update);
  d_.when = When::always;
}

void BorderTasks::begin() {
  if (b_.pending >= 0) {
    d_.when = When::pending;
    Task& carry = d_.add_task(TaskKind::carry, LaneId::host, -1, -1);
    Draft::use(carry, of_host(b_.state), Role::state, Access::read);
    Draft::use(carry, b_.pending, Role::pending, Access::write);
    d_.when = When::always;
  }
  Task& write = d_.add_task(TaskKind::host_write, LaneId::host, -1, -1);
  Draft::use(write, of_host(b_.batch), Role::batch, Access::write);
  Draft::use(write, of_host(b_.state), Role::state, Access::write);
  Draft::use(write, of_host(b_.losses), Role::losses, Access::write);
  if (b_.squares >= 0) Draft::use(write, of_host(b_.squares), Role::squares, Access::write);
  copy(TaskKind::upload, LaneId::upload, {b_.batch, b_.state, b_.losses, b_.squares});
}

// The batch is the caller's from here on: whatever reads it has ended.
void BorderTasks::end() {
  copy(TaskKind::download, LaneId::download, {b_.state, b_.losses, b_.logits});
  Task& read = d_.add_task(TaskKind::host_read, LaneId::host, -1, -1);
  Draft::use(read, of_host(b_.batch), Role::batch, Access::update);
  Draft::use(read, of_host(b_.state), Role::state, Access::read);
  Draft::use(read, of_host(b_.losses), Role::losses, Access::read);
  if (b_.logits >= 0) Draft::use(read, of_host(b_.logits), Role::logits, Access::read);
}

}  // namespace strata::runtime
