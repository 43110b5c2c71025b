// The CUDA runtime, as far as device/cuda/*.cc calls it, without a GPU: a stream is a thread with a queue, the memory
// of the GPU is the host's. What lanes, events and flags promise can then be tested for real, deadlocks included.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

struct CUstream_st {
  // As CUDA's: whoever queues waits while so much is queued.
  static constexpr std::size_t kRoom = 1024;

  CUstream_st() : thread([this] { loop(); }) {}
  ~CUstream_st() {
    push({});
    thread.join();
  }
  void push(std::function<void()> work) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < kRoom; });
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
      queue.pop_front();  // only now: what runs is not done
      changed.notify_all();
      if (!work) return;
    }
  }

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

// Nothing may go by the device of a thread that has not said which.
thread_local int current_device = -1;
bool device_is_set() {
  if (current_device < 0) std::fputs("a CUDA call of a thread without a current device\n", stderr);
  return current_device >= 0;
}

CUresult stream_wait_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  if (!device_is_set() || flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_INVALID_VALUE;
  stream->push([flag = reinterpret_cast<std::uint64_t*>(address), value] {
    while (static_cast<std::int64_t>(std::atomic_ref(*flag).load() - value) < 0) std::this_thread::yield();
  });
  return CUDA_SUCCESS;
}
CUresult stream_write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  if (!device_is_set()) return CUDA_ERROR_INVALID_CONTEXT;
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
};

extern "C" {

cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = std::max(current_device, 0);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
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
  *stream = new CUstream_st;
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != cudaStreamPerThread) stream->drain();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto record = event->newest()) stream->push([record] { record->wait(); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream->push([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto record = std::make_shared<Record>();
  {
    const std::lock_guard lock(event->mutex);
    event->record = record;
  }
  stream->push([record] { record->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!device_is_set()) return cudaErrorInvalidDevice;
  const auto record = event->newest();
  return !record || record->is_done() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
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
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return device_is_set() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMalloc(data, bytes);
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
  if (stream == cudaStreamPerThread)
    std::memmove(to, from, bytes);
  else
    stream->push([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (stream == cudaStreamPerThread)
    std::memset(to, value, bytes);
  else
    stream->push([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
