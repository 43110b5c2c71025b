#pragma once
#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// An all-gather between two steps of a plan with chunks (RankChunks): each rank fills its own chunk and receives every
// rank's. On a GPU chunks pass through device memory, because collectives reach no other.
class ChunkGather {
 public:
  // All arguments must outlive it; `gather` is over all ranks. Nothing else may be queued in the lane of `gather` while
  // all() runs.
  ChunkGather(const StepPlan& plan, Storage& storage, comm::Communicator& gather)
      : plan_(plan), storage_(storage), gather_(gather) {}

  // This rank's chunk, in host memory, for the caller to fill.
  std::span<std::byte> own() const { return on_host().subspan(place(), plan_.chunks.bytes); }
  // Collective. Returns every rank's chunk, in rank order, valid until the next call. Throws Aborted.
  std::span<const std::byte> all() {
    const RankChunks& chunks = plan_.chunks;
    const std::span<std::byte> all = on_host();
    if (plan_.ranks() == 1) return all;
    const bool apart = chunks.buffer != chunks.host_buffer;
    if (apart) storage_.write(chunks.buffer, own(), place());
    auto* const there = reinterpret_cast<std::byte*>(storage_.view(chunks.buffer, device::DType::fp32).data);
    gather_.all_gather({chunks.bytes, 0, all.size()}, there + place(), there);
    gather_.lane().synchronize();
    if (apart) storage_.read(chunks.buffer, all);
    return all;
  }

 private:
  std::span<std::byte> on_host() const {
    const device::View all = storage_.view(plan_.chunks.host_buffer, device::DType::fp32);
    return {reinterpret_cast<std::byte*>(all.data), static_cast<std::size_t>(plan_.ranks()) * plan_.chunks.bytes};
  }
  std::size_t place() const { return static_cast<std::size_t>(gather_.rank()) * plan_.chunks.bytes; }

  const StepPlan& plan_;
  Storage& storage_;
  comm::Communicator& gather_;
};

}  // namespace strata::runtime
