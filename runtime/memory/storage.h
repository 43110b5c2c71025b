#pragma once
// runtime/memory/ holds the memory of one rank's plan: Storage (here) owns arenas and drives, knows the place of every
// buffer, and reads and writes state in any tier; MemoryMeter measures memory as buffers begin and end.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "device/memory.h"
#include "device/view.h"
#include "offload/swap.h"
#include "runtime/plan/layout/placement.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// All memory of one rank's plan: an arena each for device and host, and the swap files of the nvme tier. The plan must
// outlive it.
class Storage {
 public:
  // Collective, because collectives must reach the device's arena. Throws Error if memory or drives are not available.
  Storage(const StepPlan& plan, comm::World& world, const offload::IoOptions& io);
  // Shares the memory of another Storage, which must outlive it. The plan was made for that (PlanRequest::memory_of).
  Storage(const StepPlan& plan, const Storage& other);

  // Views of memory of device or host: a whole buffer; the part of it that a task uses; the part that the task uses in
  // a role (empty: none).
  device::View view(int buffer, device::DType dtype) const;
  device::View view(const Task& task, const Use& use, device::DType dtype) const;
  device::View view(const Task& task, Role role, device::DType dtype) const;
  // The offset, in its tier, of the part of a buffer that a task uses.
  std::size_t place_of(const Task& task, const Use& use) const;
  // Writes a buffer of device or host from byte `at` on, or reads it from its start. Both block.
  void write(int buffer, std::span<const std::byte> in, std::size_t at = 0);
  void read(int buffer, std::span<std::byte> out) const;
  // Null if the plan has nothing on NVMe.
  offload::Swap* swap() const { return memory_.swap.get(); }

  // The elements of a unit's flat buffer for which this rank holds a kind of state: all of them, or a shard.
  models::ElementRange held(std::size_t unit, StateKind kind) const;
  // True if the run has this kind of state: some optimizers have one moment, and a forward-only plan has only
  // parameters.
  bool has_state(StateKind kind) const;
  // Read and write the held elements as bytes in their format, from byte `begin` on. Both block. Several threads may
  // call them as long as no task writes the state: after Executor::drain, or in Saver::save.
  void read_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<std::byte> out) const;
  void write_state(std::size_t unit, StateKind kind, std::size_t begin, std::span<const std::byte> in);

 private:
  // The place of contiguous bytes of state.
  struct Place {
    Tier tier;
    std::size_t offset, bytes;
  };
  Place place_of_state(std::size_t unit, StateKind kind, std::size_t begin, std::size_t bytes) const;

  struct Tiers {
    std::array<device::Arena, kTiers> arenas;  // the device's and the host's
    std::unique_ptr<offload::Swap> swap;       // after the arenas, because it may have registered the host's
    std::mutex pages;                          // held while a page is read, changed and written
  };

  const StepPlan& plan_;
  Coordinates rank_;
  std::unique_ptr<Tiers> own_;  // null: memory_ is another Storage's
  Tiers& memory_;
};

// Measures memory as buffers begin and end, in the same form as the plan's prediction.
class MemoryMeter {
 public:
  explicit MemoryMeter(const StepPlan& plan);
  // Counts the issue of a task: its buffers that are not alive yet begin, and those that no later task uses end.
  void issue(std::size_t task);
  const Memory& peak() const { return peak_; }

 private:
  void begin(std::size_t buffer);
  const StepPlan& plan_;
  std::vector<bool> alive_;
  std::vector<std::size_t> uses_left_, uses_;
  std::array<std::array<std::size_t, kKinds>, kTiers> now_{};
  Memory peak_{};
};

}  // namespace strata::runtime
