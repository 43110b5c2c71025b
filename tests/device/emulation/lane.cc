#include "tests/device/emulation/lane.h"

#include <cuda_runtime.h>

#include <map>

#include "base/error.h"
#include "device/cuda/launch.h"
#include "device/cuda/libraries/cudnn_attention.h"
#include "tests/device/emulation/block.h"
#include "tests/device/emulation/memory.h"

namespace strata::device {
namespace emulation {

bool EmulatedLane::capturing() {
  if (capture_ && capture_->over) capture_.reset();
  return capture_ != nullptr;
}

void EmulatedLane::require_running(const char* what) {
  if (capturing()) fail(Exit::failed, "lane {} {} during a capture", name, what);
}

void EmulatedLane::begin_capture(std::shared_ptr<Capture> capture) {
  require_running("begins another");
  capture_ = std::move(capture);
  last_ = capture_->work.add({}, {});
}

void EmulatedLane::add_captured(std::function<void()> work, std::vector<std::size_t> after) {
  last_ = capture_->work.add(std::move(work), std::move(after));
}

// As in CUDA, a captured event takes the lane that waits for it into the capture, and captured work waits only for
// captured work.
void EmulatedLane::wait(Event::State& event) {
  auto* const record = static_cast<CapturedRecord*>(event.twin.get());
  if (record && record->capture) {
    if (record->capture->over || (capturing() && capture_ != record->capture))
      fail(Exit::failed, "lane {} waits for an event of another capture", name);
    if (capturing()) return add_captured({}, {last_, record->at});
    capture_ = record->capture;
    return add_captured({}, {record->at});
  }
  if (event.issued == 0) return;
  require_running("waits for an event from outside");
  host_.wait(event);
}

void EmulatedLane::record(Event::State& event) {
  auto* const record = static_cast<CapturedRecord*>(event.twin.get());
  if (!capturing()) {
    if (record) record->capture.reset();
    return host_.record(event);
  }
  STRATA_CHECK(record != nullptr);
  if (record->host_waits) require_running("signals the host");
  record->capture = capture_;
  record->at = last_;
}

void EmulatedLane::stamp(std::int64_t* where) {
  require_running("is timed");
  host_.stamp(where);
}
void EmulatedLane::synchronize() {
  require_running("is synchronized");
  host_.synchronize();
}

void EmulatedLane::begin_range(const char* range) {
  if (on_range) on_range(range);
}

void EmulatedLane::submit(std::function<void()> work) {
  if (capturing()) return add_captured(std::move(work), {last_});
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

Lane& EmulatedLane::host_lane() {
  if (!inner_) inner_ = std::make_unique<Lane>(name, threads(), rank, abort);
  return *inner_;
}

cpu::HostLane& EmulatedLane::begin_host_work() {
  require_running("has host work");
  return host_;
}

namespace {

// Kernels that requested more dynamic shared memory than every kernel has.
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
