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
  std::span<std::byte> own() const;
  // Collective. Returns every rank's chunk, in rank order, valid until the next call. Throws Aborted.
  std::span<const std::byte> all();

 private:
  std::span<std::byte> on_host() const;
  std::size_t place() const { return static_cast<std::size_t>(gather_.rank()) * plan_.chunks.bytes; }

  const StepPlan& plan_;
  Storage& storage_;
  comm::Communicator& gather_;
};

}  // namespace strata::runtime
