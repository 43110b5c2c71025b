#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"

// Kernels that test what the emulation does and refuses.
namespace strata::device::emulation {

// out[block] = sum of in's 200 numbers at 200 * block: by shuffles, static and dynamic shared memory and a barrier.
void sum_blocks(Lane&, unsigned blocks, const std::uint32_t* in, std::uint32_t* out);
// order[n] = the block that was the n-th to run.
void note_order(Lane&, unsigned blocks, std::uint32_t* order, unsigned* count);
// Bits of shared memory that was never written.
void read_fresh_shared(Lane&, unsigned blocks, std::uint32_t* out);
// out[i] = in[n - 1 - i] through shared memory, without the necessary barrier.
void reverse_without_barrier(Lane&, unsigned n, const float* in, float* out);
// out = in, 128 numbers by asynchronous copies through shared memory, awaited or not.
void copy_through_shared(Lane&, bool await, const float* in, float* out);

// The fault of a kernel with 64 threads.
enum class Wrong : int {
  divergent_barrier,
  left_before_barrier,
  lane_stays_away,
  lane_reads_absent,
  shared_overrun,
  trap
};
void misbehave(Lane&, Wrong);

void too_many_threads(Lane&);
void too_much_shared(Lane&);

}  // namespace strata::device::emulation
