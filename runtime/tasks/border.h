#pragma once
#include <cstdint>
#include <span>

#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/draft.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {

// What the host does between two steps: the tasks of its lane, over the plan's host_control, which is memory of the
// host on every device. Called by the thread that issues. All that it is made of outlives it.
class Border {
 public:
  Border(const StepPlan& plan, const models::Model& model, const Storage& storage);

  // carry: the scalars of the step before, if it left an update to be done, out of the way of those of this one.
  static void add_carry(Draft& draft);
  // host_write: batch, scalars, and counters at zero.
  static void add_write(Draft& draft);
  // host_read: what came of the step. The batch is the caller's from here on: whatever reads it has ended.
  static void add_read(Draft& draft);
  void run(const Task& task);

  // Micro-batch g of the next step. The caller's to write from the end of a step to the next.
  models::BatchRows batch(int micro_batch) const;
  // What the next host_write writes beside the batch.
  void set(const device::StepScalars& scalars, std::uint64_t requests);

  // Of the newest step, from its host_read to the next host_write.
  const StepState& state() const { return *at<StepState>(control_.state); }
  LossState& losses() const { return *at<LossState>(control_.losses); }
  // The first unit whose output was not finite; -1: none.
  int first_nonfinite_unit() const;
  // Of a classifier, of the rows that the loss takes.
  std::span<const float> scores() const {
    return {at<float>(control_.logits), model_.loss_rows() * model_.loss_unit().score_stride()};
  }
  std::span<const float> logits() const { return {at<float>(control_.logits), model_.vocabulary}; }

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

}  // namespace strata::runtime
