#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "device/ops/attention/attention.h"

namespace strata::device::cuda {

// cuDNN's fused attention in one lane: causal, grouped-query, its backward deterministic. What it needs is built once
// for each shape, at the first call that names it; after that no call allocates on the GPU.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  // With its version.
  virtual std::string name() const = 0;
  // Empty if it computes this shape, else why it does not: no cuDNN here, one that cannot, or one that needs more
  // workspace than was planned.
  virtual const std::string& refusal(const AttentionShape& shape, DType dtype) = 0;

  // As attention_forward and attention_backward, of shapes that it does not refuse, without dropout; operands at
  // multiples of 16 bytes.
  virtual void forward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, View o, View lse,
                       View workspace) = 0;
  virtual void backward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, ConstView o, ConstView lse,
                        ConstView do_, View dq, View dk, View dv, View workspace) = 0;
};
// For the current device.
std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream);

// The lane's own; null if lanes have none.
CudnnAttention* cudnn_attention_of(const Lane& lane);

// "cuDNN 9.10.2", as it is found here; empty if there is none.
std::string cudnn_text();

// Why the own kernels compute such attention wherever it runs; empty if cuDNN is asked.
std::string needs_own_kernels(const AttentionShape& shape, DType dtype, const Dropout& dropout);

// Most bytes of workspace that cuDNN may need for a shape, wherever it runs; 0 if it is never asked. Its
// deterministic backward writes the gradients of all scores, in 16 bits.
std::size_t cudnn_attention_workspace(const AttentionShape& shape, DType dtype);

}  // namespace strata::device::cuda
