#pragma once
#include <sched.h>

#include <cstdint>

#include "device/cpu/kernels/lanes/lanes16.h"

namespace strata::device::cpu::STRATA_ISA {

// Key tiles add to dq_sum in their order. A task waits only for tasks that started before it.
static void await_turn(const std::uint32_t* turn, std::uint32_t mine) {
  for (unsigned spins = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; ++spins) {
    if (spins < 1000)
      _mm_pause();
    else
      sched_yield();
  }
}

}  // namespace strata::device::cpu::STRATA_ISA
