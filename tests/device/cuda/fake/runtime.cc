// The CUDA runtime without a GPU, as far as device/cuda/*.cc and comm/nccl*.cc call it. A stream is a thread with a
// queue, and the memory of its four GPUs is the host's. So the guarantees of lanes, events and flags can be tested,
// including deadlocks.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/device/recorded_work.h"

// A graph during its capture and afterwards.
struct CUgraph_st {
  strata::device::testing::RecordedWork work;
  CUstream_st* origin;
  bool over = false, broken = false;
};
using Graph = std::shared_ptr<CUgraph_st>;
struct CUgraphExec_st {
  Graph graph;
};

struct CUstream_st {
  // As in CUDA, queueing blocks while this many entries are queued.
  static constexpr std::size_t kCapacity = 1024;

  CUstream_st() : thread([this] { loop(); }) {}
  ~CUstream_st() {
    push({});
    thread.join();
  }
  bool capturing() {
    if (capture && capture->over) capture.reset();
    return capture != nullptr;
  }
  // Later work is captured, to run after this stream's earlier work and after `also`.
  void join(const Graph& graph, std::size_t also) {
    if (capturing())
      last = capture->work.add({}, {last, also});
    else
      capture = graph, last = graph->work.add({}, {also});
  }
  void push(std::function<void()> work) {
    if (capturing()) {
      last = capture->work.add(std::move(work), {last});
      return;
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < kCapacity; });
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex);
    return queue.empty();
  }
  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty(); });
  }
  void loop() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !queue.empty(); });
      const auto work = queue.front();
      lock.unlock();
      if (work) work();
      lock.lock();
      queue.pop_front();  // only now, because running work is not done
      changed.notify_all();
      if (!work) return;
    }
  }

  Graph capture;  // of the thread that queues, as `last`: the newest of this stream in it
  std::size_t last = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::thread thread;
};

namespace {

using Clock = std::chrono::steady_clock;

struct Record {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  Clock::time_point at;

  void reach() {
    const std::lock_guard lock(mutex);
    done = true;
    at = Clock::now();
    reached.notify_all();
  }
  bool is_done() {
    const std::lock_guard lock(mutex);
    return done;
  }
  void wait() {
    std::unique_lock lock(mutex);
    reached.wait(lock, [&] { return done; });
  }
};

constexpr int kGpus = 4;
std::atomic<int> host_allocations{0};
std::atomic<bool> failed{false};  // streams then write nothing, and report the failure

// A thread must choose a device before it makes calls that depend on it.
thread_local int current_device = -1;

// As on a real GPU, a caller that waits for room in a stream or loads a kernel may block every other call for that GPU.
std::recursive_mutex contexts[kGpus];
std::unique_lock<std::recursive_mutex> enter() {
  return std::unique_lock(contexts[std::max(current_device, 0)]);
}

bool device_is_set() {
  if (current_device < 0) std::fputs("a CUDA call of a thread without a current device\n", stderr);
  return current_device >= 0;
}

CUresult stream_wait_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  const auto in = enter();
  if (!device_is_set() || flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_INVALID_VALUE;
  stream->push([flag = reinterpret_cast<std::uint64_t*>(address), value] {
    while (static_cast<std::int64_t>(std::atomic_ref(*flag).load() - value) < 0) std::this_thread::yield();
  });
  return CUDA_SUCCESS;
}
CUresult stream_write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  const auto in = enter();
  if (!device_is_set()) return CUDA_ERROR_INVALID_CONTEXT;
  if (failed) return CUDA_SUCCESS;
  stream->push([flag = reinterpret_cast<std::uint64_t*>(address), value] { std::atomic_ref(*flag).store(value); });
  return CUDA_SUCCESS;
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<Record> newest() {
    const std::lock_guard lock(mutex);
    return record;
  }
  std::mutex mutex;
  std::shared_ptr<Record> record;
  Graph capture;  // that the newest record is part of, at `at`; else null
  std::size_t at = 0;
};

namespace {

// A call that is not allowed in a capture breaks it.
cudaError_t refuse(CUstream_st& stream, cudaError_t error) {
  stream.capture->broken = true;
  return error;
}

}  // namespace

extern "C" {

cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return device >= 0 && device < kGpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = std::max(current_device, 0);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  if (device < 0 || device >= kGpus) return cudaErrorInvalidDevice;
  properties->uuid.bytes[15] = static_cast<char>(device);
  std::strcpy(properties->name, "Fake GPU");
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorString(cudaError_t) {
  return "of the fake";
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool waits = std::string(name) == "cuStreamWaitValue64";
  *function = waits ? reinterpret_cast<void*>(stream_wait_value) : reinterpret_cast<void*>(stream_write_value);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto in = enter();
  *stream = new CUstream_st;
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto in = enter();
  if (failed) return cudaErrorLaunchFailure;
  if (stream->capturing()) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == cudaStreamPerThread) return cudaSuccess;
  if (stream->capturing()) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  stream->drain();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto in = enter();
  if (event->capture) {
    if (event->capture->over || (stream->capturing() && stream->capture != event->capture))
      return cudaErrorStreamCaptureIsolation;
    stream->join(event->capture, event->at);
    return cudaSuccess;
  }
  const auto record = event->newest();
  if (!record) return cudaSuccess;
  if (stream->capturing()) return refuse(*stream, cudaErrorStreamCaptureIsolation);
  stream->push([record] { record->wait(); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capturing()) return cudaErrorIllegalState;
  stream->capture = std::make_shared<CUgraph_st>();
  stream->capture->origin = stream;
  stream->last = stream->capture->work.add({}, {});
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capturing() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->capturing() || stream->capture->origin != stream) return cudaErrorIllegalState;
  const Graph captured = std::move(stream->capture);
  captured->over = true;
  if (captured->broken) return cudaErrorStreamCaptureInvalidated;
  if (!captured->work.all_before(stream->last)) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st(*captured);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{std::make_shared<CUgraph_st>(*graph)};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const auto in = enter();
  stream->push([graph = executable->graph] { graph->work.run(); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const auto in = enter();
  stream->push([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto in = enter();
  *event = new CUevent_st;
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto in = enter();
  if (stream->capturing()) {
    event->capture = stream->capture;
    event->at = stream->last;
    return cudaSuccess;
  }
  event->capture.reset();
  const auto record = std::make_shared<Record>();
  {
    const std::lock_guard lock(event->mutex);
    event->record = record;
  }
  stream->push([record] { record->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto in = enter();
  if (!device_is_set()) return cudaErrorInvalidDevice;
  if (event->capture) return cudaErrorCapturedEvent;
  const auto record = event->newest();
  return !record || record->is_done() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture) return cudaErrorCapturedEvent;
  if (const auto record = event->newest()) record->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const auto first = begin->newest(), last = end->newest();
  if (!first || !last || !first->is_done() || !last->is_done()) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(last->at - first->at).count();
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = std::size_t{1} << 30;
  *total = std::size_t{2} << 30;
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const auto in = enter();
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaFree(void* data) {
  const auto in = enter();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  ++host_allocations;
  return cudaMalloc(data, bytes);
}
void fake_fail(bool fails) {
  failed = fails;
}
void fake_load_kernel(cudaStream_t stream) {
  const auto in = enter();
  stream->drain();
}
int fake_host_allocations() {
  return host_allocations;
}
cudaError_t cudaFreeHost(void* data) {
  return cudaFree(data);
}
cudaError_t cudaHostRegister(void*, std::size_t bytes, unsigned) {
  return bytes < std::size_t{1} << 32 ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostUnregister(void*) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const auto in = enter();
  if (stream == cudaStreamPerThread)
    std::memmove(to, from, bytes);
  else
    stream->push([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const auto in = enter();
  if (stream == cudaStreamPerThread)
    std::memset(to, value, bytes);
  else
    stream->push([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
