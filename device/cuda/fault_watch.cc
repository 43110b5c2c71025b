#include "device/fault_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/thread.h"
#include "device/cuda/backend.h"
#include "device/cuda/check.h"
#include "device/cuda/context.h"

namespace strata::device::cuda {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(100);

class StreamFaultWatch final : public FaultWatch::Impl {
 public:
  StreamFaultWatch(Device device, int rank, AbortToken& abort) : device_(device), rank_(rank), abort_(abort) {
    use(device_);
    stream_ = make_stream();
    thread_ = start_thread("the thread that watches the GPU", [this] { run(); });
  }
  ~StreamFaultWatch() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

 private:
  // Queries a stream without work: after an error in any other stream, every CUDA call returns it.
  void run() {
    (void)cudaSetDevice(device_.ordinal);
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, kPollInterval, [&] { return stop_; })) {
      const cudaError_t state = cudaStreamQuery(stream_.get());
      if (state == cudaSuccess || state == cudaErrorNotReady) continue;
      abort_.set({rank_, fmt::format("work on GPU {} failed: {} ({})", device_.ordinal, cudaGetErrorString(state),
                                     cudaGetErrorName(state))});
      return;
    }
  }

  const Device device_;
  const int rank_;
  AbortToken& abort_;
  Stream stream_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<FaultWatch::Impl> make_fault_watch(Device device, int rank, AbortToken& abort) {
  return std::make_unique<StreamFaultWatch>(device, rank, abort);
}

}  // namespace strata::device::cuda
