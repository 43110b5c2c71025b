#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strata::device::cuda {

// A 64-bit number in pinned host memory that host threads and streams both read and write, so that they can wait for
// each other without a blocking call. Valid as long as `page` has an owner.
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

// Both act in the stream's order. wait_for() waits until the flag is at least `value`. write() sets the flag once all
// earlier work has run and is visible.
void wait_for(cudaStream_t stream, const Flag& flag, std::uint64_t value);
void write(cudaStream_t stream, const Flag& flag, std::uint64_t value);

// Returns an unused flag, initially zero; it is free again when its last copy is destroyed. For set-up only, because
// this pins memory if no flag is left.
Flag take_flag();

// The flags that one thread hands out, initially zero, and zero again after recycle(). Reserve enough: otherwise memory
// is pinned in the middle of a step, and pinning may wait for the device while the device waits for a flag of the host.
class Flags {
 public:
  // Allocates the first 8192 flags. For the current device.
  void reserve();
  Flag take();
  // Makes all flags available again. Precondition: no thread or stream waits for them or will set them.
  void recycle() { taken_ = 0; }

 private:
  void grow();

  std::vector<std::shared_ptr<std::uint64_t>> pages_;
  std::size_t taken_ = 0;
};

}  // namespace strata::device::cuda
