#pragma once
#include <cstddef>
#include <string>

#include "device/lane.h"
#include "device/ops/dropout.h"
#include "device/view.h"

namespace strata::device {

// Causal grouped-query attention over `batch` sequences of `seq` rows. q, k, v point at their first head inside rows
// that lie q_stride, k_stride, v_stride elements apart; o rows lie heads * head_dim apart. Query head h reads key head
// h / (heads / kv_heads). window > 0: a query sees at most the last `window` keys, itself included.
struct AttentionShape {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  std::size_t window = 0;
};

// o = dropout(softmax(scale q k^T)) v, tile by tile (FlashAttention-2, Dao 2023): never a seq x seq matrix.
// Saves lse, fp32 [batch, heads, seq]: log of the sum of exponentials.
void attention_forward(Lane&, const AttentionShape&, ConstView q, ConstView k, ConstView v, View o, View lse,
                       const Dropout&, View workspace);
// dq, dk, dv are laid out as q, k, v (same strides). Gradients of key heads sum their query heads in order.
void attention_backward(Lane&, const AttentionShape&, ConstView q, ConstView k, ConstView v, ConstView o, ConstView lse,
                        ConstView do_, View dq, View dk, View dv, const Dropout&, View workspace);

// Builds what calls of this shape need in the lane, so that none of them builds or allocates within a step, and says
// what will compute them: "own kernels" or a library, and why. Called at set-up; without it the first call builds.
std::string prepare_attention(Lane&, const AttentionShape&, DType dtype, const Dropout&);

// Bytes of workspace in a lane of `threads` threads of the device; dropout: whether its probability is above 0.
std::size_t attention_workspace(Device, const AttentionShape&, DType dtype, bool dropout, int threads);

}  // namespace strata::device
