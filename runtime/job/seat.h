#pragma once
#include <cstddef>
#include <string>

#include "device/device.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a rank computes on: the device that device.kind led to, and how many ranks share the same GPU as far as the
// ranks have told each other.
struct Seat {
  device::Device device;
  std::string gpu;  // its UUID; empty on the CPU
  int sharing = 1;
};

// Returns the seat of rank `node_rank` of this node; ranks take the node's GPUs in turn. `automatic` takes GPUs if any
// can be used, else the CPU. Throws Error{usage} if device.kind = cuda and no GPU can be used.
Seat choose_seat(DeviceKind kind, int node_rank);

// The seat for planning alone: device.kind = cuda plans for a GPU even if this machine has none.
Seat planned_seat(DeviceKind kind);

// "AMD EPYC (AVX-512, ...)", "NVIDIA H200 (GPU 0, shared by 2 ranks)".
std::string describe(const Seat& seat);

// Bytes of the seat's device that its rank may use: what is free now, or the total if that cannot be queried, or 0 if
// it is unknown here. Calling it starts the GPU.
std::size_t device_memory(const Seat& seat);

}  // namespace strata::runtime
