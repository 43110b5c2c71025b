#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "device/device.h"

namespace strata::device::cuda {

// Sets what CUDA reads from the environment when it starts. Comes before any other call of CUDA; use() calls it.
void prepare_to_start();

// Makes `device` the one that CUDA's calls of this thread are about. Lanes, memory and events are made after it; a
// thread that issues calls it before each call that goes by the current device.
void use(Device device);

// The name of a GPU among all of all nodes, as nvidia-smi -L has it: "GPU-2f3c...".
std::string uuid_text(const cudaUUID_t& uuid);

// Owners of what CUDA hands out; they give it back without a word, as a destructor cannot report.
struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
Stream make_stream();

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};
using StreamEvent = std::unique_ptr<CUevent_st, DestroyEvent>;
StreamEvent make_ordering_event();  // costs least; has no time
StreamEvent make_timing_event();

struct FreeDevice {
  void operator()(std::byte* data) const noexcept { (void)cudaFree(data); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDevice>;

}  // namespace strata::device::cuda
