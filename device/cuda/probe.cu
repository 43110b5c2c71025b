#include <cuda_runtime.h>

#include "device/cuda/probe.h"

namespace strata::device::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

const void* probe_kernel() {
  return reinterpret_cast<const void*>(&nothing);
}

}  // namespace strata::device::cuda
