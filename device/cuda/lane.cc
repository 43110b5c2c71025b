#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "device/backend.h"
#include "device/cuda/check.h"
#include "device/cuda/lane_impl.h"
#include "device/cuda/launch.h"

namespace strata::device::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A wait polls without a pause for a short while, then in intervals.
constexpr int kEagerQueries = 200;
constexpr auto kQuery = std::chrono::microseconds(20);
// How long a stream may still run after an abort: issued kernels end on their own, and collectives end when their
// communicator is torn down.
constexpr auto kDrain = std::chrono::seconds(5);

void back_off(std::int64_t query) {
  if (query < kEagerQueries)
    __builtin_ia32_pause();
  else
    std::this_thread::sleep_for(kQuery);
}

EventTwin& twin_of(Event::State& event) {
  STRATA_CHECK(event.twin != nullptr);  // created for Device{}: an event of host lanes only
  return static_cast<EventTwin&>(*event.twin);
}

}  // namespace

cudaStream_t stream_of(const Lane& lane) {
  STRATA_CHECK(lane.device().kind == Kind::cuda);
  return static_cast<StreamLane&>(lane.impl()).stream();
}

CudnnAttention* cudnn_attention_of(const Lane& lane) {
  return static_cast<StreamLane&>(lane.impl()).cudnn_attention();
}

StreamLane::StreamLane(std::string lane_name, Device lane_device, int threads, int lane_rank, AbortToken& token)
    : Impl(std::move(lane_name), lane_device, lane_rank, token, cuda_backend()->operations), threads_(threads) {
  use(device);
  stream_ = make_stream();
  clock_ = make_timing_event();
  flags_.reserve();
  arrived_ = turn_flags_.take();
  finished_ = turn_flags_.take();
}

// This terminates, because host lanes run the host work that the stream waits for even after an abort.
StreamLane::~StreamLane() {
  (void)cudaSetDevice(device.ordinal);
  const cudaError_t state = cudaStreamSynchronize(stream_.get());
  if (state == cudaSuccess) return;
  // Set so that host work no longer waits for the stream.
  abort.set({rank, fmt::format("lane {}: {} ({})", name, cudaGetErrorString(state), cudaGetErrorName(state))});
}

cudaStream_t StreamLane::stream() {
  use(device);
  return stream_.get();
}

cublasLtHandle_t StreamLane::cublaslt_handle() {
  if (!cublaslt_) {
    use(device);
    cublaslt_ = make_cublaslt_handle();
  }
  return cublaslt_.get();
}

CudnnAttention* StreamLane::cudnn_attention() {
  if (!cudnn_attention_) {
    use(device);
    cudnn_attention_ = make_cudnn_attention(stream_.get());
  }
  return cudnn_attention_.get();
}

void StreamLane::record(Event::State& event) {
  EventTwin& twin = twin_of(event);
  cudaStream_t const here = stream();
  if (twin.host_waits()) require_running("signals the host");
  event.recorder = Kind::cuda;
  twin.record(here, ++event.issued);
}

void StreamLane::wait(Event::State& event) {
  const std::uint64_t n = event.issued;
  if (n == 0) return;
  if (event.recorder == Kind::cuda) {
    STRATA_CUDA(cudaStreamWaitEvent(stream(), twin_of(event).newest(), cudaEventWaitDefault));
    return;
  }
  cudaStream_t const here = stream();
  require_running("waits for the host");
  const Flag flag = flags_.take();  // without the mutex: the call may wait for the device, and the device for the host
  {
    const std::lock_guard lock(event.mutex);
    if (event.done >= n) return;
    twin_of(event).set_at(n, flag);
  }
  wait_for(here, flag, 1);
}

void StreamLane::stamp(std::int64_t* where) {
  cudaStream_t const here = stream();
  require_running("is timed");
  if (stamps_.size() == stamp_events_.size()) stamp_events_.push_back(make_timing_event());
  STRATA_CUDA(cudaEventRecord(stamp_events_[stamps_.size()].get(), here));
  stamps_.push_back(where);
}

// Flags and times belong to one run of the work: a graph's second launch would find its flags already set.
void StreamLane::require_running(const char* what) {
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  STRATA_CUDA(cudaStreamIsCapturing(stream_.get(), &state));
  if (state != cudaStreamCaptureStatusNone)
    fail(Exit::failed, "lane {} {}, which no CUDA graph can contain", name, what);
}

void StreamLane::begin_range(const char* range) {
  nvtxRangePushA(range);
}
void StreamLane::end_range() {
  nvtxRangePop();
}

void StreamLane::synchronize() {
  drain();
  abort.throw_if_set();
  resolve_stamps();
  flags_.recycle();
}

void StreamLane::drain() {
  use(device);
  Clock::time_point aborted{};
  for (std::int64_t query = 0;; ++query) {
    const cudaError_t state = cudaStreamQuery(stream_.get());
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) {
      abort.set({rank, fmt::format("lane {}: work in this lane, or in another lane of GPU {}, failed: {} ({})", name,
                                   device.ordinal, cudaGetErrorString(state), cudaGetErrorName(state))});
      return;
    }
    if (abort.is_set()) {
      if (aborted == Clock::time_point{}) aborted = Clock::now();
      if (Clock::now() - aborted > kDrain) return;
    }
    back_off(query);
  }
}

// CUDA reports times only relative to each other. So they are measured against an event that is recorded and awaited
// now, whose time the host knows.
void StreamLane::resolve_stamps() {
  if (stamps_.empty()) return;
  STRATA_CUDA(cudaEventRecord(clock_.get(), stream_.get()));
  STRATA_CUDA(cudaEventSynchronize(clock_.get()));
  const std::int64_t now = Clock::now().time_since_epoch().count();
  for (std::size_t i = 0; i < stamps_.size(); ++i) {
    float ms = 0;
    STRATA_CUDA(cudaEventElapsedTime(&ms, stamp_events_[i].get(), clock_.get()));
    *stamps_[i] = now - static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
  }
  stamps_.clear();
}

cpu::HostLane& StreamLane::begin_host_work() {
  cudaStream_t const here = stream();
  require_running("has host work");
  if (!host_) host_ = std::make_unique<cpu::HostLane>(name, threads_, rank, abort);
  const std::uint64_t n = ++turns_;
  write(here, arrived_, n);
  host_->submit([flag = arrived_.host, n, token = &abort](cpu::Team&) {
    for (std::int64_t query = 0; Flag::get(flag) < n; ++query) {
      token->throw_if_set();
      back_off(query);
    }
  });
  return *host_;
}

void StreamLane::end_host_work() {
  const std::uint64_t n = turns_;
  host_->submit_always([flag = finished_.host, n](cpu::Team&) { Flag::set(flag, n); });
  wait_for(stream(), finished_, n);
}

namespace {

StreamEvent make_event(Device device) {
  use(device);
  return make_ordering_event();
}

}  // namespace

EventTwin::EventTwin(Device device, bool host_waits) : event_(make_event(device)) {
  if (host_waits) recorded_ = take_flag();
}

void EventTwin::record(cudaStream_t stream, std::uint64_t n) {
  STRATA_CUDA(cudaEventRecord(event_.get(), stream));
  if (recorded_) write(stream, *recorded_, n);
}

void EventTwin::signal(std::uint64_t n) {
  std::erase_if(waiting_, [n](const Waiting& w) {
    if (w.record <= n) w.flag.set(1);
    return w.record <= n;
  });
}

}  // namespace strata::device::cuda
