#pragma once
#include <cstddef>

#include "device/numeric/dtype.h"
#include "models/layers/heads/head_adapter.h"
#include "models/layers/heads/head_parts.h"
#include "models/model.h"

namespace strata::models {

// The cost of a head, for forecasts. adapter: null if there is none.
struct HeadCosts {
  const HeadInput& input;
  const HeadAdapter* adapter;
  std::size_t rows, hidden;
  device::DType dtype;
  bool learns_table;

  // The work of the complete head with this many words of the table. `learns`: including gradients.
  Work loss_work(std::size_t words, bool learns) const;
  Work step_work(LossStep step, std::size_t elements) const;  // LossUnit::step_work()

 private:
  // Without norms.
  Work table_work(std::size_t elements, std::size_t words, bool learns) const;
  double flops_before_table(bool forward, bool backward) const;
};

}  // namespace strata::models
