#include "device/cuda/context.h"

#include <fmt/format.h>

#include <cstdlib>

#include "device/cuda/check.h"

namespace strata::device::cuda {
namespace {

// A stream that waits for the host (flags.h) blocks everything in the same hardware queue, including work that the host
// needs before it can continue: a deadlock that CUDA cannot see. By default there are 8 queues for all streams. With
// 32, each lane has its own, as do NCCL's streams and those of copies. CUDA reads this when it starts. Smaller
// settings, made for other programs, are raised: 1 would put all lanes into one queue.
bool ask_for_queues() {
  return setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1) == 0;  // NOLINT(concurrency-mt-unsafe): before lanes exist
}

}  // namespace

void prepare_to_start() {
  [[maybe_unused]] static const bool asked = ask_for_queues();
}

void use(Device device) {
  prepare_to_start();
  STRATA_CUDA(cudaSetDevice(device.ordinal));
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  STRATA_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

StreamEvent make_ordering_event() {
  cudaEvent_t event = nullptr;
  STRATA_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return StreamEvent(event);
}

StreamEvent make_timing_event() {
  cudaEvent_t event = nullptr;
  STRATA_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return StreamEvent(event);
}

}  // namespace strata::device::cuda
