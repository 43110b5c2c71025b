#include "device/cuda/kernels/attention_kernels.cuh"

namespace strata::device::cuda {

template void launch_attention_forward(Lane&, const AttentionCall<float>&);
template void launch_attention_backward(Lane&, const AttentionCall<float>&);

}  // namespace strata::device::cuda
