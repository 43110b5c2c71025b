#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace strata::device::emulation {

// The most dynamic shared memory of a block on sm_90, and the most without asking for it.
inline constexpr std::size_t kSharedLimit = 227 * 1024, kSharedUnasked = 48 * 1024;

// Runs kernel() in every thread of every block. Blocks run one after another in a shuffled order. A block's threads are
// fibers, which switch when they wait for each other, also in a shuffled order. All shared memory is NaN (bytes of
// 0xff) before each block. Throws Error{failed}, with the thread and the line, if
//  - threads of a block wait at different barriers, or a thread has left while others wait for it;
//  - a warp's exchange names lanes that do not take part, or reads from one;
//  - dynamic shared memory is written beyond its end.
// Calls take turns: one kernel runs at a time.
void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

std::byte* dynamic_shared_memory();

// Asynchronous copies of the running thread. Each happens at once or as late as possible, as either may on a GPU.
// `zeros`: copies zeros. end_copy_group() makes a group of the copies since the last one. await_copies() returns when
// all groups except the newest `in_flight` have arrived.
struct alignas(16) Bytes16 {
  std::byte at[16];
};
void copy_async(Bytes16* to, const Bytes16* from, bool zeros);
void end_copy_group();
void await_copies(unsigned in_flight);

}  // namespace strata::device::emulation
