#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "device/device.h"

namespace strata::device::cuda {

// Sets environment variables that CUDA reads when it starts. Must be called before any other CUDA call; use() calls it.
void prepare_to_start();

// Makes `device` current for this thread's CUDA calls. Call it before lanes, memory and events are created. The issuing
// thread calls it before each call that depends on the current device.
void use(Device device);

// A name of a GPU that is unique among all nodes, as nvidia-smi -L shows it: "GPU-2f3c...".
std::string uuid_text(const cudaUUID_t& uuid);

// Owners of CUDA objects. Errors on release are ignored, because a destructor cannot report them.
struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
Stream make_stream();

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};
using StreamEvent = std::unique_ptr<CUevent_st, DestroyEvent>;
StreamEvent make_ordering_event();  // costs least; records no time
StreamEvent make_timing_event();

struct FreeDevice {
  void operator()(std::byte* data) const noexcept { (void)cudaFree(data); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDevice>;

}  // namespace strata::device::cuda
