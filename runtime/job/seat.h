#pragma once
#include <cstddef>
#include <string>

#include "device/device.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a rank computes on, which device.kind came to, and how many ranks do so on the same GPU, as far as they have
// told each other.
struct Seat {
  device::Device device;
  std::string gpu;  // its uuid; empty: none
  int sharing = 1;
};

// The seat of rank `node_rank` of this node: the ranks take its GPUs in turn. auto: GPUs if there are some that can
// be used, else the CPU. Throws Error{usage} if device.kind = cuda and no GPU can be used.
Seat choose_seat(DeviceKind kind, int node_rank);

// The seat of a plan, which needs no GPU: with device.kind = cuda it is for one, whether this machine has any or not.
Seat planned_seat(DeviceKind kind);

// "AMD EPYC (AVX-512, ...)", "NVIDIA H200 (GPU 0, shared by 2 ranks)".
std::string describe(const Seat& seat);

// Bytes of the seat's device that its rank may use: those free now, or, where they cannot be asked, all it has; 0: not
// known here. Asking starts the GPU.
std::size_t device_memory(const Seat& seat);

}  // namespace strata::runtime
