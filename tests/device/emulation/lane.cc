#include "tests/device/emulation/lane.h"

#include <cuda_runtime.h>

#include <map>

#include "device/cuda/cudnn_attention.h"
#include "device/cuda/launch.h"
#include "device/error.h"
#include "tests/device/emulation/block.h"
#include "tests/device/emulation/memory.h"

namespace strata::device {
namespace emulation {

void EmulatedLane::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queued_.push_back(std::move(work));
  }
  host_.submit([this](cpu::Team&) {
    std::unique_lock lock(mutex_);
    const std::function<void()> next = std::move(queued_.front());
    queued_.pop_front();
    lock.unlock();
    const Access access;
    next();
  });
}

void EmulatedLane::begin_device_work() {
  host_.submit([](cpu::Team&) { open_memory(); });
}
void EmulatedLane::end_device_work() {
  host_.submit([](cpu::Team&) { close_memory(); });
}

namespace {

// Kernels that asked for more dynamic shared memory than all have.
std::mutex asked_mutex;
std::map<const void*, std::size_t> asked;

bool may_have_shared(const void* kernel, std::size_t bytes) {
  if (bytes <= kSharedUnasked) return true;
  const std::lock_guard lock(asked_mutex);
  const auto found = asked.find(kernel);
  return found != asked.end() && bytes <= found->second;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const auto some = [](dim3 d) { return d.x > 0 && d.y > 0 && d.z > 0; };
  if (!some(grid) || grid.x > 0x7fffffffu || grid.y > 0xffffu || grid.z > 0xffffu) return cudaErrorInvalidConfiguration;
  if (!some(block) || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      std::size_t{block.x} * block.y * block.z > 1024)
    return cudaErrorInvalidConfiguration;
  if (!may_have_shared(kernel, config.dynamicSmemBytes)) return cudaErrorInvalidValue;
  config.stream->submit([grid, block, bytes = config.dynamicSmemBytes, run_thread = std::move(thread)] {
    run(grid, block, bytes, run_thread);
  });
  return cudaSuccess;
}

}  // namespace emulation

namespace cuda {

cudaStream_t stream_of(const Lane& lane) {
  return static_cast<emulation::EmulatedLane*>(&lane.impl());
}

CudnnAttention* cudnn_attention_of(const Lane&) {
  return nullptr;
}

void cuda_failed(cudaError_t error, const char* call, const char* file, int line) {
  fail(Exit::failed, "{}:{}: {}: {}", file, line, call,
       error == cudaErrorInvalidConfiguration ? "no GPU has such a grid" : "invalid value");
}

}  // namespace cuda
}  // namespace strata::device

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  using namespace strata::device::emulation;
  if (value < 0 || static_cast<std::size_t>(value) > kSharedLimit) return cudaErrorInvalidValue;
  const std::lock_guard lock(asked_mutex);
  asked[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream->submit([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  stream->submit([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
