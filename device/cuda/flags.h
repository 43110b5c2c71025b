#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strata::device::cuda {

// A 64-bit number in pinned memory of the host that host threads and streams both read and write: how the two wait for
// each other without a call that blocks either. Valid as long as a holder of `page` is.
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

// In the stream's order: waits until the flag is at least `value`; sets it once all before has run and can be seen.
void wait_for(cudaStream_t stream, const Flag& flag, std::uint64_t value);
void write(cudaStream_t stream, const Flag& flag, std::uint64_t value);

// A flag for as long as anybody holds it, zero at first. At set-up: memory is pinned if none is left.
Flag take_flag();

// The flags that one thread hands out, zero at first, and again after recycle(). If more are out than fit into what
// was reserved, memory grows in mid-step: pinning may wait for the device, and the device for a flag of the host's.
class Flags {
 public:
  // Takes the memory of the first 8192 flags. For the current device.
  void reserve();
  Flag take();
  // All flags may be handed out again: none is waited for or will be set any more.
  void recycle() { taken_ = 0; }

 private:
  void grow();

  std::vector<std::shared_ptr<std::uint64_t>> pages_;
  std::size_t taken_ = 0;
};

}  // namespace strata::device::cuda
