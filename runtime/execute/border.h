#pragma once
#include <cstdint>
#include <span>

#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/execute/storage.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {

// What the host does between two steps: the tasks of its lane, over the buffers that they use, which are memory of the
// host on every device. Called by the thread that issues. All that it is made of outlives it.
class Border {
 public:
  Border(const StepPlan& plan, const models::Model& model, const Storage& storage);

  // Micro-batch g of the next step: tokens, labels and positions, [tokens] each. The caller's to write from the end of
  // a step to the next.
  struct BatchSpans {
    std::span<std::uint32_t> tokens;
    std::span<std::int32_t> labels;
    std::span<std::uint32_t> positions;
  };
  BatchSpans batch(int micro_batch) const;
  // What the next host_write writes beside the batch.
  void set(const device::StepScalars& scalars, std::uint64_t requests);
  void run(const Task& task);

  // Of the newest step, from its host_read to the next host_write.
  const StepState& state() const { return *at<StepState>(state_); }
  LossState& losses() const { return *at<LossState>(losses_); }
  std::span<const float> logits() const { return {at<float>(logits_), model_.vocabulary}; }

 private:
  template <typename T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(storage_.view(buffer, device::DType::fp32).data);
  }

  const StepPlan& plan_;
  const models::Model& model_;
  const Storage& storage_;
  int batch_ = -1, state_ = -1, losses_ = -1, squares_ = -1, logits_ = -1;
  device::StepScalars scalars_{};
  std::uint64_t requests_ = 0;
};

}  // namespace strata::runtime
