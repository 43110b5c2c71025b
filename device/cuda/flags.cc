#include "device/cuda/flags.h"

#include <cudaTypedefs.h>

#include <mutex>
#include <vector>

#include "device/cuda/check.h"
#include "device/error.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kFlagsOfPage = 8192;

// The runtime has no call for these; it knows the driver's.
template <typename F>
F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  STRATA_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || !found)
    fail(Exit::usage, "the NVIDIA driver here has no {}: install a newer driver", name);
  return reinterpret_cast<F>(found);
}

// The driver's errors have the numbers of the runtime's.
void check(CUresult result, const char* call, int line) {
  if (result != CUDA_SUCCESS) cuda_failed(static_cast<cudaError_t>(result), call, __FILE__, line);
}

// Pages that lanes gave back are the next lanes': pinning and freeing pinned memory takes long, and freeing it waits
// for the device.
class Pages {
 public:
  std::uint64_t* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::uint64_t* const page = free_.back();
        free_.pop_back();
        return page;
      }
    }
    void* page = nullptr;
    STRATA_CUDA(
        cudaHostAlloc(&page, kFlagsOfPage * sizeof(std::uint64_t), cudaHostAllocMapped | cudaHostAllocPortable));
    return static_cast<std::uint64_t*>(page);
  }
  void give(std::uint64_t* page) {
    const std::lock_guard lock(mutex_);
    free_.push_back(page);
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t*> free_;
};
// For ever: at exit CUDA may be gone before what else is destroyed.
Pages& pages() {
  static auto* const all = new Pages();
  return *all;
}

// Flags of pages that are never given back, one by one.
class Singles {
 public:
  std::uint64_t* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      std::uint64_t* const page = pages().take();
      for (std::size_t i = 0; i < kFlagsOfPage; ++i) free_.push_back(page + i);
    }
    std::uint64_t* const one = free_.back();
    free_.pop_back();
    return one;
  }
  void give(std::uint64_t* flag) {
    const std::lock_guard lock(mutex_);
    free_.push_back(flag);
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t*> free_;
};
Singles& singles() {
  static auto* const all = new Singles();
  return *all;
}

// Unified addressing: one address for both.
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
  pages_.emplace_back(pages().take(), [](std::uint64_t* page) { pages().give(page); });
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
  const std::shared_ptr<std::uint64_t> one(singles().take(), [](std::uint64_t* flag) { singles().give(flag); });
  Flag::set(one.get(), 0);
  return {one, one.get(), device_address(one.get())};
}

}  // namespace strata::device::cuda
