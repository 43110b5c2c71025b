#include "device/cuda/libraries/cudnn_attention.h"

// Used if the program is built without the headers of cuDNN or its frontend.
namespace strata::device::cuda {

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t) {
  return nullptr;
}

std::string cudnn_text() {
  return "";
}

std::string needs_own_kernels(const AttentionShape&, DType, const Dropout&) {
  return "this program was built without cuDNN";
}

std::size_t cudnn_attention_workspace(const AttentionShape&, DType) {
  return 0;
}

}  // namespace strata::device::cuda
