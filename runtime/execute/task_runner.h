#pragma once
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "device/ops/optimizer.h"
#include "models/model.h"
#include "runtime/execute/saver.h"
#include "runtime/execute/storage.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// By LaneId; null where the plan does not use it.
using Lanes = std::vector<std::unique_ptr<device::Lane>>;

// The plan's buffers that a step's tasks share, one each; -1: it has none.
struct ControlBuffers {
  int batch = -1, state = -1, losses = -1, squares = -1, constants = -1, pending = -1, logits = -1;
  explicit ControlBuffers(const StepPlan& plan);
};

// What each kind of task does: queues it in the task's lane, over the buffers that the plan gives it; those of the lane
// host are the Border's. Knows nothing of the order of tasks. All that it is made of outlives it.
class TaskRunner {
 public:
  TaskRunner(const StepPlan& plan, const models::Model& model, const device::Optimizer& optimizer, int rank,
             Storage& storage, const Lanes& lanes, comm::Communicator& gather, comm::Communicator& reduce);

  // `index` is the task's place in the plan.
  void run(const Task& task, std::size_t index);
  // From now on a forward is of `rows` rows of a generation, at positions from `first` on.
  void generate(std::size_t first, std::size_t rows) {
    first_ = first;
    rows_ = rows;
  }
  // What a checkpoint's tasks do from now on; outlives their work.
  void use_saver(Saver& saver) { saver_ = &saver; }
  // Read from and written to the other tiers so far.
  IoBytes& moved() { return moved_; }

 private:
  // The buffer as T where its tier's lanes see it.
  template <typename T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(storage_.view(buffer, device::DType::fp32).data);
  }
  // Where the parameters lie whose gradient the task is about: its unit's or, if they are shared, their holder's.
  const UnitLayout& layout_of(const Task& task) const;
  // This rank's own part of a sum buffer, whole or shard.
  device::View own_part(const Task& task) const;
  // What it owns of the elements that the unit shares with another.
  comm::ShardedRange::Owned shared_piece(const models::ElementRange& shared, const UnitLayout& holder) const;
  // Of which the task reads the gradient that another unit has.
  models::ElementRange shared_of(const Task& task) const;
  void gather(const Task& task);
  void forward(const Task& task);
  void loss(const Task& task);
  void loss_step(const Task& task);
  std::pair<std::size_t, std::size_t> parts_of(const Task& task) const;
  // What lies between the parameters that the task's gradients cover.
  void zero_gaps(const Task& task, device::View gradients);
  void backward(const Task& task);
  void reduce(const Task& task, std::size_t index);
  void combine(const Task& task);
  void norm(const Task& task);
  void consensus(const Task& task);
  void update(const Task& task);
  void move(const Task& task);
  models::Context context(const Task& task) const;
  // Elements of a unit's input and output: of all rows of a micro-batch, or of the one row of a generation.
  std::size_t activations() const { return (rows_ == 1 ? 1 : plan_.tokens) * model_.hidden; }

  const StepPlan& plan_;
  const models::Model& model_;
  device::Optimizer optimizer_;
  int rank_;
  Storage& storage_;
  const Lanes& lanes_;
  comm::Communicator &gather_, &reduce_;
  ControlBuffers buffers_;
  std::vector<std::vector<const std::byte*>> pieces_;  // by task: where a reduce finds the ranks' pieces
  struct Gap {
    std::size_t begin, size;
  };
  std::vector<std::vector<Gap>> gaps_;  // by unit: elements between parameters, kept at zero
  IoBytes moved_{};
  Saver* saver_ = nullptr;
  std::size_t first_ = 0, rows_ = 0;  // of a step that generates; else 0
};

}  // namespace strata::runtime
