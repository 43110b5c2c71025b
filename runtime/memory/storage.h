#pragma once
// runtime/memory/ is the memory of one rank's plan: its arenas and its drives, where a buffer lies, and state read or
// written wherever it is (Storage, here); memory_meter.h counts buffers as they come and go.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "comm/communicator.h"
#include "device/memory.h"
#include "device/view.h"
#include "offload/swap.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/state.h"

namespace strata::runtime {

// All memory of one rank's plan: an arena each for device and host, and the swap of the nvme tier. Says where buffers
// lie, and reads and writes state wherever that is. The plan outlives it.
class Storage {
 public:
  // Collective: the device's arena is memory that collectives reach. Throws what its parts throw.
  Storage(const StepPlan& plan, comm::World& world, const offload::IoOptions& io);
  // In the memory of another, which outlives it: the plan was made beside that one's (PlanRequest::beside).
  Storage(const StepPlan& plan, const Storage& beside);

  // Of device or host: a whole buffer; what a task uses of it; its buffer in that role (empty: none).
  device::View view(int buffer, device::DType dtype) const;
  device::View view(const Task& task, const Use& use, device::DType dtype) const;
  device::View view(const Task& task, Role role, device::DType dtype) const;
  // The first byte, in its tier, of what a task uses of a buffer.
  std::size_t place_of(const Task& task, const Use& use) const;
  // Writes a buffer of device or host from its byte `at` on, or reads it from its first; blocking.
  void write(int buffer, std::span<const std::byte> in, std::size_t at = 0);
  void read(int buffer, std::span<std::byte> out) const;
  // Null where the plan has nothing on NVMe.
  offload::Swap* swap() const { return memory_.swap.get(); }

  // Elements of a unit's flat buffer that this rank holds of a kind of state: all, or its shard.
  models::ElementRange held(std::size_t unit, StateKind kind) const;
  // Whether the run has it: not every optimizer has two moments, and a plan of forwards alone has only parameters.
  bool has_state(StateKind kind) const;
  // What is held, as bytes of its format from `begin` bytes on. Both block, and several threads may call them while no
  // task writes it: after Executor::drain, and in Saver::save.
  void read_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<std::byte> out) const;
  void write_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<const std::byte> in);

 private:
  // Bytes of state that lie in one piece: where.
  struct Place {
    Tier tier;
    std::size_t offset, bytes;
  };
  Place place_of_state(std::size_t unit, StateKind kind, std::size_t begin, std::size_t bytes) const;

  struct Tiers {
    std::array<device::Arena, kTiers> arenas;  // of device and host
    std::unique_ptr<offload::Swap> swap;       // after the arenas: it may have registered the host's
    std::mutex pages;                          // while a page is read to be written with other bytes in it
  };

  const StepPlan& plan_;
  Coordinates rank_;
  std::unique_ptr<Tiers> own_;  // null: another's
  Tiers& memory_;
};

}  // namespace strata::runtime
