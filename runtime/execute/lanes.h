#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/graph.h"
#include "device/lane.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Indexed by LaneId; null if the plan does not use the lane.
using Lanes = std::vector<std::unique_ptr<device::Lane>>;

// A rank's lanes, and the communicators that connect the lanes of collectives (gather, reduce, exchange, and the two
// between stages) to other ranks. Compute, gather and reduce exist for every plan.
struct Queues {
  // Collective. `threads`: the number of threads of each lane that computes. The world must outlive it.
  Queues(const StepPlan& plan, comm::World& world, int threads);

  device::Lane& of(LaneId lane) const { return *lanes[static_cast<std::size_t>(lane)]; }
  // Waits for all queued work except a checkpoint's. Throws Aborted.
  void synchronize() const;
  // Bytes sent by this rank so far; exact after synchronize().
  comm::CommBytes sent() const;

  Lanes lanes;
  comm::Communicator* gather = nullptr;  // over all ranks, in their order
  // The tasks' communicators. A group of this rank alone exchanges nothing, so the group of all ranks stands in for it
  // (group_of).
  Communicators communicators() const {
    return {*parameters_, *updates_, *gradients_, *sums_, *node_, *all_, *tensor_, *stage_forward_, *stage_backward_};
  }

 private:
  struct Opened {
    LaneId lane;
    comm::Group group;
    std::unique_ptr<comm::Communicator> communicator;
  };
  // Returns the lane's communicator over the group; opens it if there is none. Collective.
  comm::Communicator* open(LaneId lane, const comm::Group& group, comm::World& world);

  std::vector<Opened> opened_;
  comm::Communicator *parameters_, *updates_, *gradients_, *sums_, *node_, *all_, *tensor_, *stage_forward_,
      *stage_backward_;
};

// How each lane behaves between two steps.
struct LaneBoundaries {
  // True if the next step may begin before the lane's last task has ended, because the boundary tasks (the host's reads
  // and writes, and their copies on a GPU) do not wait for it, directly or indirectly. False for lanes that wait for
  // host lanes: their flags are recycled when the lane is waited for (device/cuda/flags.h).
  std::array<bool, kLanes> continues{};
  // True if some of the lane's tasks come before the host writes, and so overlap with the previous step's end.
  std::array<bool, kLanes> begins_early{};
};
LaneBoundaries lane_boundaries(const StepPlan& plan);

// The device's work of a step, between host_write and host_read, recorded once and launched in one call per step. Work
// that crosses the step's boundary is ordered by the launches: one begins when the previous one has ended.
class StepGraph {
 public:
  // True if every step consists of the same device work, with host tasks only before and after it.
  static bool possible(const StepPlan& plan);

  // The lanes must outlive it.
  StepGraph(const StepPlan& plan, const Lanes& lanes);

  // Records the work that issue() queues, without running it. Returns false if the device refuses, now or earlier.
  bool record(const std::function<void()>& issue);
  bool recorded() const { return graph_.has_value(); }
  // The device's message if it refused; otherwise empty.
  const std::string& refusal() const { return refusal_; }
  void launch();
  void reset() { graph_.reset(); }

 private:
  device::Lane& first_;
  std::vector<device::Lane*> others_;
  device::Event begun_;
  std::vector<device::Event> ended_;  // one per lane of others_
  std::optional<device::Graph> graph_;
  std::string refusal_;
};

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
