#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strata::device::cuda {

// A 64-bit number in pinned host memory that host threads and streams both read and write. It lets them wait for each
// other without a call that blocks either. Valid as long as anyone holds `page`.
struct Flag {
  std::shared_ptr<std::uint64_t> page;
  std::uint64_t* host = nullptr;
  CUdeviceptr device = 0;

  void set(std::uint64_t value) const { set(host, value); }
  std::uint64_t get() const { return get(host); }
  static void set(std::uint64_t* flag, std::uint64_t value) {
    std::atomic_ref(*flag).store(value, std::memory_order_release);
  }
  static std::uint64_t get(std::uint64_t* flag) { return std::atomic_ref(*flag).load(std::memory_order_acquire); }
};

// In the stream's order: waits until the flag is at least `value`; sets the flag once all earlier work has run and is
// visible.
void wait_for(cudaStream_t stream, const Flag& flag, std::uint64_t value);
void write(cudaStream_t stream, const Flag& flag, std::uint64_t value);

// A flag for as long as anyone holds it, initially zero. For set-up: pins memory if no flag is left.
Flag take_flag();

// The flags that one thread hands out, initially zero, and zero again after recycle(). If more are in use than were
// reserved, memory is pinned in the middle of a step. Pinning may wait for the device, and the device for a flag of the
// host.
class Flags {
 public:
  // Allocates the first 8192 flags. For the current device.
  void reserve();
  Flag take();
  // All flags may be handed out again: nobody waits for them, and nobody will set them.
  void recycle() { taken_ = 0; }

 private:
  void grow();

  std::vector<std::shared_ptr<std::uint64_t>> pages_;
  std::size_t taken_ = 0;
};

}  // namespace strata::device::cuda
