#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"
#include "device/numeric/optimizer_update.h"
#include "device/numeric/philox.h"

namespace strata::device::cpu {

// gradient[0 .. n) = (+0 + first[i]) + second[i], in fp32; second may be null.
using ReadGradient = void (*)(const std::byte* first, const std::byte* second, float* gradient, std::size_t n);
// parameter[0 .. n) = master[i], rounded.
using WriteParameter = void (*)(const float* master, std::byte* parameter, std::size_t n);

// Elements from a multiple of kMomentBlock on. second, moment2 (except for adamw) and parameter may be null.
struct UpdateElements {
  ReadGradient read;
  WriteParameter write;
  const std::byte *first, *second;
  std::size_t element_bytes;  // size of an element of the gradients
  float* master;
  std::byte *moment1, *moment2, *parameter;
  std::size_t parameter_bytes;  // size of an element of the parameter
  RandomStream stream;          // element i uses number begin + i
  std::uint64_t begin;
};

// The update passes through memory once, block by block: while a block is in the L1 cache, its gradient is read and
// widened, the block is updated, and its parameters are written. So each dtype needs one kernel, not one per
// combination.
struct OptimizerKernels {
  ReadGradient read[3];     // by the gradients' DType
  WriteParameter write[3];  // by the parameter's
  // By Algorithm, then StorageFormat.
  void (*update[3][3])(const UpdateElements&, std::size_t n, const UpdateFactors&);
};
STRATA_KERNEL_TABLE(OptimizerKernels, optimizer_kernels)

}  // namespace strata::device::cpu
