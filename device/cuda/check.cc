#include "device/cuda/check.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace strata::device::cuda {
namespace {

// "GPU 1 (NVIDIA H200)". If no GPU is current, it makes no call that could fail again.
std::string current_gpu() {
  int ordinal = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&ordinal) != cudaSuccess || cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess)
    return "no GPU";
  return fmt::format("GPU {} ({})", ordinal, properties.name);
}

std::string_view within_tree(std::string_view file) {
  const std::size_t at = file.rfind("device/cuda/");
  return at == std::string_view::npos ? file : file.substr(at);
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string explain(cudaError_t error) {
  int driver = 0;
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "there is no NVIDIA driver here (libcuda.so.1): install one, start the container with --gpus all, or "
               "use device.kind = cpu";
      return fmt::format(
          "the NVIDIA driver here is for CUDA {}, but this program was built with CUDA {}: install a newer driver, "
          "or build with an older toolkit",
          version_text(driver), version_text(CUDART_VERSION));
    case cudaErrorUnsupportedPtxVersion:
      return fmt::format(
          "the NVIDIA driver here cannot translate what CUDA {} compiled for this GPU: install a newer driver, or name "
          "the GPU in STRATA_CUDA_ARCHITECTURES when building",
          version_text(CUDART_VERSION));
    case cudaErrorNoDevice:
      return "there is an NVIDIA driver, but it shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, start "
             "the container with --gpus all, or use device.kind = cpu";
    case cudaErrorInvalidDevice:
      return "there is no GPU with that number: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
      return "this program contains no code for this GPU: build it with the GPU's number added to "
             "STRATA_CUDA_ARCHITECTURES, such as 80-real";
    case cudaErrorDevicesUnavailable:
      return "another process has taken this GPU (its compute mode is exclusive): wait until that process ends, or "
             "choose another GPU with CUDA_VISIBLE_DEVICES";
    case cudaErrorInitializationError:
      return "CUDA cannot start here: check nvidia-smi and dmesg; after a driver update, load its kernel module "
             "again";
    case cudaErrorSystemNotReady:
      return "this machine's GPUs are not ready: start nvidia-fabricmanager";
    default:
      return {};
  }
}

void cuda_failed(cudaError_t error, const char* call, const char* file, int line) {
  (void)cudaGetLastError();  // otherwise this thread's next call would report it again
  if (const std::string text = explain(error); !text.empty()) fail(Exit::usage, "{}", text);
  fail(error == cudaErrorMemoryAllocation ? Exit::does_not_fit : Exit::failed, "CUDA: {} on {}: {} ({}) at {}:{}", call,
       current_gpu(), cudaGetErrorString(error), cudaGetErrorName(error), within_tree(file), line);
}

}  // namespace strata::device::cuda
