#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"

namespace strata::device {

// A GPU that this process sees.
struct Gpu {
  Device device;
  std::string name;           // "NVIDIA H200"
  std::string uuid;           // its name among all GPUs of all nodes: "GPU-2f3c..."
  std::string capability;     // "9.0"
  std::size_t memory = 0;     // bytes in all
  std::size_t available = 0;  // bytes free; of probe_gpu() alone
  std::string problem;        // why it cannot be used and what to do; empty: it can
};

// A library that work on GPUs needs, as found on this machine.
struct GpuLibrary {
  std::string name;     // "cuBLASLt"
  std::string found;    // version and file; empty: it is missing
  std::string problem;  // one sentence, if it is missing
  bool required;        // false: something else does its work
};

// What this machine offers to a program built with CUDA.
struct Gpus {
  bool built = false;   // with CUDA
  std::string driver;   // the newest CUDA that the driver knows: "13.0"; empty without a driver
  std::string runtime;  // the CUDA that this program was built with
  std::string problem;  // why there is none and what to do; empty: there are GPUs
  std::vector<Gpu> gpus;
  std::vector<GpuLibrary> libraries;  // looked for if there are GPUs

  // Whether training can run on one of them, as far as that is known without starting it.
  bool usable() const;
};

// Sets what GPUs' drivers read from the environment when they start: comes before whatever may start them, such as MPI.
void prepare_for_gpus();
// Never throws for what is missing. Starts no GPU: takes no memory and little time.
Gpus find_gpus();
// Starts the GPU, as a run does (some 500 MiB of it, a second): fills in what is free, or the problem.
void probe_gpu(Gpu& gpu);

// Bytes of a GPU as its driver counts them, whoever took them.
struct GpuMemory {
  std::size_t available = 0, total = 0;
};
// Starts the GPU where it is not. Nothing if the device is none, or only emulated.
std::optional<GpuMemory> gpu_memory(Device device);

}  // namespace strata::device
