#include "device/gpu.h"

namespace strata::device {

void prepare_for_gpus() {}

Gpus find_gpus() {
  Gpus out;
  out.problem = "this strata was built without CUDA: build it with nvcc on the path";
  return out;
}

void probe_gpu(Gpu& gpu) {
  gpu.problem = find_gpus().problem;
}

std::optional<GpuMemory> gpu_memory(Device) {
  return std::nullopt;
}

bool Gpus::usable() const {
  return false;
}

}  // namespace strata::device
