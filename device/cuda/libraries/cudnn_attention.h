#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "device/ops/attention/attention.h"

namespace strata::device::cuda {

// cuDNN's fused attention in one lane: causal, grouped-query, with a deterministic backward. The first call with a
// shape builds its graphs. Later calls allocate nothing on the GPU.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  // "cuDNN" with its version.
  virtual std::string name() const = 0;
  // Returns why cuDNN does not compute this shape: it is missing, its version does not support the shape, or it needs
  // more workspace than was planned. Empty if it does.
  virtual const std::string& refusal(const AttentionShape& shape, DType dtype) = 0;

  // Like attention_forward and attention_backward, for shapes that it does not refuse, without dropout. Operands start
  // at multiples of 16 bytes.
  virtual void forward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, View o, View lse,
                       View workspace) = 0;
  virtual void backward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, ConstView o, ConstView lse,
                        ConstView do_, View dq, View dk, View dv, View workspace) = 0;
};
// For the current device.
std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream);

// The lane's own instance; null if lanes have none.
CudnnAttention* cudnn_attention_of(const Lane& lane);

// "cuDNN 9.10.2", as found on this machine; empty if there is none.
std::string cudnn_text();

// The reason why our own kernels compute this attention on every machine; empty if cuDNN may compute it.
std::string needs_own_kernels(const AttentionShape& shape, DType dtype, const Dropout& dropout);

// The maximum workspace that cuDNN may need for a shape on any machine, in bytes; 0 if it is never used. Its
// deterministic backward writes the gradients of all scores, in 16 bits.
std::size_t cudnn_attention_workspace(const AttentionShape& shape, DType dtype);

}  // namespace strata::device::cuda
