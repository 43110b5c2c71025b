#include "runtime/memory/memory_meter.h"

#include <algorithm>

#include "base/error.h"

namespace strata::runtime {

MemoryMeter::MemoryMeter(const StepPlan& plan)
    : plan_(plan), alive_(plan.buffers.size()), uses_left_(plan.buffers.size()), uses_(plan.buffers.size()) {
  for (const Task& task : plan.tasks)
    for (const Use& use : task.uses) ++uses_[static_cast<std::size_t>(use.buffer)];
  uses_left_ = uses_;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].whole_cycle) begin(b);
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
    if (buffer.whole_cycle) continue;
    alive_[b] = false;
    now_[static_cast<std::size_t>(buffer.tier)][static_cast<std::size_t>(buffer.kind)] -= buffer.bytes;
  }
}

}  // namespace strata::runtime
