#include "device/gpu.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/context.h"
#include "device/cuda/libraries/library.h"
#include "device/cuda/probe.h"

namespace strata::device {
namespace {

using cuda::Library;
using cuda::LibraryName;

std::string sentence(cudaError_t error, const char* call) {
  (void)cudaGetLastError();
  const std::string known = cuda::explain(error);
  return known.empty() ? fmt::format("{}: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)) : known;
}

template <typename Version>
GpuLibrary look_for(const LibraryName& name, bool required, Version version) {
  GpuLibrary out{name.title, {}, {}, required};
  try {
    const Library library = Library::open(name);
    out.found = fmt::format("{}, {}", version(library), library.path());
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

std::vector<GpuLibrary> find_libraries() {
  return {
      look_for(cuda::cublaslt_name(), true,
               [](const Library& l) {
                 return cuda::library_version_text(l.function<std::size_t()>("cublasLtGetVersion")());
               }),
      look_for(
          cuda::cudnn_name(), false,
          [](const Library& l) { return cuda::library_version_text(l.function<std::size_t()>("cudnnGetVersion")()); }),
      look_for(cuda::nccl_name(), false,
               [](const Library& l) {
                 int version = 0;
                 (void)l.function<int(int*)>("ncclGetVersion")(&version);
                 return cuda::library_version_text(static_cast<std::size_t>(version));
               }),
  };
}

}  // namespace

void prepare_for_gpus() {
  cuda::prepare_to_start();
}

Gpus find_gpus() {
  cuda::prepare_to_start();
  Gpus out;
  out.built = true;
  out.runtime = cuda::version_text(CUDART_VERSION);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0) out.driver = cuda::version_text(driver);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    out.problem = sentence(error, "cudaGetDeviceCount");
  else if (count == 0)
    out.problem = cuda::explain(cudaErrorNoDevice);
  for (int i = 0; i < count; ++i) {
    Gpu& gpu = out.gpus.emplace_back();
    gpu.device = {Kind::cuda, i};
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      gpu.problem = sentence(error, "cudaGetDeviceProperties");
      continue;
    }
    gpu.name = properties.name;
    gpu.uuid = cuda::uuid_text(properties.uuid);
    gpu.capability = fmt::format("{}.{}", properties.major, properties.minor);
    gpu.memory = properties.totalGlobalMem;
    if (properties.major * 10 + properties.minor < STRATA_CUDA_OLDEST)
      gpu.problem = cuda::explain(cudaErrorNoKernelImageForDevice);
    int mode = cudaComputeModeDefault;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, i) == cudaSuccess && mode == cudaComputeModeProhibited)
      gpu.problem = "its compute mode forbids all programs: change it with nvidia-smi -c DEFAULT";
  }
  if (out.problem.empty()) out.libraries = find_libraries();
  return out;
}

void probe_gpu(Gpu& gpu) {
  try {
    cuda::use(gpu.device);
    std::size_t total = 0;
    STRATA_CUDA(cudaMemGetInfo(&gpu.available, &total));
    cudaFuncAttributes attributes{};
    STRATA_CUDA(cudaFuncGetAttributes(&attributes, cuda::probe_kernel()));
  } catch (const Error& error) {
    gpu.problem = error.what();
  }
}

std::optional<GpuMemory> gpu_memory(Device device) {
  if (device.kind != Kind::cuda) return std::nullopt;
  cuda::use(device);
  GpuMemory out;
  STRATA_CUDA(cudaMemGetInfo(&out.available, &out.total));
  return out;
}

bool Gpus::usable() const {
  return problem.empty() && std::any_of(gpus.begin(), gpus.end(), [](const Gpu& g) { return g.problem.empty(); }) &&
         std::none_of(libraries.begin(), libraries.end(),
                      [](const GpuLibrary& l) { return l.required && l.found.empty(); });
}

}  // namespace strata::device
