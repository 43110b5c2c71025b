#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace strata::device::emulation {

// What a block of sm_90 may have of dynamic shared memory, and what it has without asking.
inline constexpr std::size_t kSharedLimit = 227 * 1024, kSharedUnasked = 48 * 1024;

// Runs kernel() in every thread of every block, one after another: blocks in a shuffled order, the threads of a block
// as fibers that change places where they wait for each other, in an order that is shuffled too. Before each block all
// shared memory is made NaN (bytes of 0xff). Throws Error{failed}, naming the thread and the line, where
//  - threads of a block wait at different barriers, or a thread has left while others wait for it;
//  - a warp's exchange names lanes that do not take part, or reads from one;
//  - dynamic shared memory is written beyond its end.
// Calls take turns: one kernel runs at a time.
void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

std::byte* dynamic_shared_memory();

}  // namespace strata::device::emulation
