#pragma once
#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Of a plan with chunks (RankChunks), between two steps: a rank fills its own, and has every rank's. On a GPU they go
// through its memory, which is what collectives reach.
class ChunkGather {
 public:
  // The parts outlive it. `gather`: nothing else is queued in its lane while all() runs.
  ChunkGather(const StepPlan& plan, Storage& storage, comm::Communicator& gather)
      : plan_(plan), storage_(storage), gather_(gather) {}

  // This rank's bytes, in host memory, to be filled.
  std::span<std::byte> own() const;
  // Collective. Every rank's, in rank order, valid until the next call. Throws Aborted.
  std::span<const std::byte> all();

 private:
  std::span<std::byte> on_host() const;
  std::size_t place() const { return static_cast<std::size_t>(gather_.rank()) * plan_.chunks.bytes; }

  const StepPlan& plan_;
  Storage& storage_;
  comm::Communicator& gather_;
};

}  // namespace strata::runtime
