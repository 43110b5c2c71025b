#pragma once
#include "runtime/forecast/machine.h"

namespace strata::runtime {

// A machine with round speeds, on which starting a task takes a microsecond.
inline Machine even_machine() {
  Machine m;
  m.task_overhead_us = 1;
  m.widths = {256};
  m.products_gflop_per_s.fill({100});
  m.attention_gflop_per_s.fill(1e3);
  m.elementwise_gb_per_s.fill({100});
  for (auto* speeds : {&m.loss_gb_per_s, &m.optimizer_gb_per_s}) speeds->fill(100);
  for (double* speed :
       {&m.triad_gb_per_s, &m.device_copy_gb_per_s, &m.host_copy_gb_per_s, &m.sum_gb_per_s, &m.norm_gb_per_s})
    *speed = 100;
  return m;
}

}  // namespace strata::runtime
