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

// Asynchronous copies of the running thread, each at once or as late as it may: both happen on a GPU. Zeros in place of
// `from` where told; end_copy_group() makes a group of those since the last one, await_copies() returns when all groups
// but the newest `in_flight` have arrived.
struct alignas(16) Bytes16 {
  std::byte at[16];
};
void copy_async(Bytes16* to, const Bytes16* from, bool zeros);
void end_copy_group();
void await_copies(unsigned in_flight);

}  // namespace strata::device::emulation
