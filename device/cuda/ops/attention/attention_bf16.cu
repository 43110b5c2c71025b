#include "device/cuda/kernels/attention_kernels.cuh"

namespace strata::device::cuda {

template void launch_attention_forward(Lane&, const AttentionCall<bf16>&);
template void launch_attention_backward(Lane&, const AttentionCall<bf16>&);

}  // namespace strata::device::cuda
