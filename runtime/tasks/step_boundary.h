#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/draft.h"
#include "runtime/plan/step_state.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// The tasks of the host's lane, between two steps. They work on the plan's host_control, which is host memory on every
// device, and the issuing thread runs them. The constructor's arguments must outlive it.
class StepBoundary {
 public:
  StepBoundary(const StepPlan& plan, const models::Model& model, const Storage& storage);

  // copy_scalars: copies the scalars of the previous step, if it left an update, before this step's overwrite them.
  static void add_copy_scalars(Draft& draft);
  // host_write: the batch, the scalars, and counters set to zero.
  static void add_write(Draft& draft);
  // host_read: the results of the step. From here on the caller owns the batch, as all tasks that read it have ended.
  static void add_read(Draft& draft);
  void run(const Task& task);

  // Micro-batch g of the next step. The caller may write it between the end of a step and the next one.
  models::BatchRows batch(int micro_batch) const;
  // Sets the values that the next host_write writes in addition to the batch.
  void set(const device::StepScalars& scalars, std::uint64_t requests);

  // The results of the newest step, valid from its host_read to the next host_write.
  const StepState& state() const { return *at<StepState>(control_.state); }
  LossState& losses() const { return *at<LossState>(control_.losses); }
  // The first unit with non-finite output; -1: none.
  int first_nonfinite_unit() const;
  // A classifier's scores of the rows that enter the loss, [rows, score_stride].
  std::span<const float> scores() const {
    return {at<float>(control_.scores), model_.loss_rows() * model_.loss_unit().score_stride()};
  }
  // Empty on a rank without the head.
  std::span<const float> logits() const {
    if (control_.scores < 0) return {};
    return {at<float>(control_.scores), model_.vocabulary};
  }

 private:
  template <typename T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(storage_.view(buffer, device::DType::fp32).data);
  }

  const StepPlan& plan_;
  const ControlBuffers& control_;
  const models::Model& model_;
  const Storage& storage_;
  device::StepScalars scalars_{};
  std::uint64_t requests_ = 0;
};

// Writes checkpoints: the work of the checkpoint lane's tasks. The issuing thread calls it to queue work in that lane.
class Saver {
 public:
  virtual ~Saver() = default;
  // Reads the unit's state in place (Storage::read_state); no task writes it meanwhile.
  virtual void save(device::Lane& lane, std::size_t unit) = 0;
  // Called after all units were saved: makes the checkpoint durable. No task of a step waits for it.
  virtual void publish(device::Lane& lane) = 0;
};

// Reads a unit's state for a checkpoint, if one begins in the step.
struct Save {
  int unit;
  OutputBuffer staging;  // host memory through which all state passes

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// Makes the checkpoint durable.
struct Publish {
  int staging;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
