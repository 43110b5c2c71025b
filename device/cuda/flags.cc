#include "device/cuda/flags.h"

#include <cudaTypedefs.h>

#include <mutex>
#include <vector>

#include "base/error.h"
#include "device/cuda/check.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kFlagsOfPage = 8192;

// The CUDA runtime has no equivalents, but returns pointers to the driver's functions.
template <typename F>
F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  STRATA_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || !found)
    fail(Exit::usage, "the NVIDIA driver here has no {}: install a newer driver", name);
  return reinterpret_cast<F>(found);
}

// The driver's error numbers are also the runtime's.
void check(CUresult result, const char* call, int line) {
  if (result != CUDA_SUCCESS) cuda_failed(static_cast<cudaError_t>(result), call, __FILE__, line);
}

// Keeps returned flags for reuse: pinning and freeing pinned memory is slow, and freeing waits for the device.
class FreeList {
 public:
  // Null if none is left.
  std::uint64_t* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    std::uint64_t* const one = free_.back();
    free_.pop_back();
    return one;
  }
  void give(std::uint64_t* one) {
    const std::lock_guard lock(mutex_);
    free_.push_back(one);
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t*> free_;
};
// Both live forever: at exit, CUDA may be gone before other objects are destroyed.
FreeList& pages() {
  static auto* const all = new FreeList();
  return *all;
}
FreeList& singles() {
  static auto* const all = new FreeList();
  return *all;
}

std::uint64_t* take_page() {
  if (std::uint64_t* const page = pages().take()) return page;
  void* page = nullptr;
  STRATA_CUDA(cudaHostAlloc(&page, kFlagsOfPage * sizeof(std::uint64_t), cudaHostAllocMapped | cudaHostAllocPortable));
  return static_cast<std::uint64_t*>(page);
}

// Takes a flag from a page that is cut up and never returned.
std::uint64_t* take_single() {
  if (std::uint64_t* const flag = singles().take()) return flag;
  std::uint64_t* const page = take_page();
  for (std::size_t i = 1; i < kFlagsOfPage; ++i) singles().give(page + i);
  return page;
}

// With unified addressing, both have the same address.
CUdeviceptr device_address(const std::uint64_t* host) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(host));
}

}  // namespace

void wait_for(cudaStream_t stream, const Flag& flag, std::uint64_t value) {
  static const auto call = driver_function<PFN_cuStreamWaitValue64_v11070>("cuStreamWaitValue64");
  check(call(stream, flag.device, value, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue64", __LINE__);
}

void write(cudaStream_t stream, const Flag& flag, std::uint64_t value) {
  static const auto call = driver_function<PFN_cuStreamWriteValue64_v11070>("cuStreamWriteValue64");
  check(call(stream, flag.device, value, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue64", __LINE__);
}

void Flags::grow() {
  pages_.emplace_back(take_page(), [](std::uint64_t* page) { pages().give(page); });
}

void Flags::reserve() {
  if (pages_.empty()) grow();
}

Flag Flags::take() {
  if (taken_ == pages_.size() * kFlagsOfPage) grow();
  const std::shared_ptr<std::uint64_t>& page = pages_[taken_ / kFlagsOfPage];
  std::uint64_t* const host = page.get() + taken_ % kFlagsOfPage;
  ++taken_;
  Flag::set(host, 0);
  return {page, host, device_address(host)};
}

Flag take_flag() {
  const std::shared_ptr<std::uint64_t> one(take_single(), [](std::uint64_t* flag) { singles().give(flag); });
  Flag::set(one.get(), 0);
  return {one, one.get(), device_address(one.get())};
}

}  // namespace strata::device::cuda
