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
  std::string uuid;           // a name that is unique among the GPUs of all nodes: "GPU-2f3c..."
  std::string capability;     // "9.0"
  std::size_t memory = 0;     // total bytes
  std::size_t available = 0;  // free bytes; only from probe_gpu()
  std::string problem;        // why it cannot be used and what to do; empty if it can
};

// A library that GPU work needs, as found on this machine.
struct GpuLibrary {
  std::string name;     // "cuBLASLt"
  std::string found;    // version and file; empty if it is missing
  std::string problem;  // one sentence if it is missing
  bool required;        // false: something else can do its work
};

// The GPUs, driver and libraries of this machine, for a program built with CUDA.
struct Gpus {
  bool built = false;   // built with CUDA
  std::string driver;   // the newest CUDA version that the driver supports: "13.0"; empty without a driver
  std::string runtime;  // the CUDA version that this program was built with
  std::string problem;  // why there is no GPU and what to do; empty if there is one
  std::vector<Gpu> gpus;
  std::vector<GpuLibrary> libraries;  // looked up only if there are GPUs

  // True if training can run on one of these GPUs, as far as can be determined without starting one.
  bool usable() const;
};

// Sets what GPU drivers read from the environment when they start. Call it before anything that may start them, such as
// MPI.
void prepare_for_gpus();
// Never throws because something is missing. Does not start a GPU: takes no GPU memory and little time.
Gpus find_gpus();
// Starts the GPU as a run does (about 500 MiB and one second), and fills in the free memory, or the problem.
void probe_gpu(Gpu& gpu);

// A GPU's memory as its driver counts it, over all processes.
struct GpuMemory {
  std::size_t available = 0, total = 0;
};
// Starts the GPU if necessary. Empty if the device is not a GPU, or only emulated.
std::optional<GpuMemory> gpu_memory(Device device);

}  // namespace strata::device
