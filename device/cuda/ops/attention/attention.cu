#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "device/cuda/kernels/attention_call.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/libraries/cudnn_attention.h"
#include "device/numeric/philox.h"
#include "device/ops/attention/attention.h"

namespace strata::device::cuda {
namespace {

template <typename T>
AttentionCall<T> describe(const AttentionShape& s, const RowRange* documents, ConstView q, ConstView k, ConstView v,
                          const Dropout& dropout) {
  AttentionCall<T> c{};
  c.batch = s.batch;
  c.seq = s.seq;
  c.heads = s.heads;
  c.layer_heads = s.layer_heads > 0 ? s.layer_heads : s.heads;
  c.first_head = s.first_head;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.behind = static_cast<unsigned>(std::min(s.behind(), s.seq));
  c.ahead = static_cast<unsigned>(std::min(s.ahead(), s.seq));
  c.documents = documents;
  c.q_stride = s.q_stride;
  c.k_stride = s.k_stride;
  c.v_stride = s.v_stride;
  c.scale = s.scale;
  c.q = q.as<T>();
  c.k = k.as<T>();
  c.v = v.as<T>();
  c.keep_scale = 1;
  c.aligned = true;
  for (const std::size_t elements : {s.head_dim, s.q_stride, s.k_stride, s.v_stride})
    c.aligned &= elements % Pack<T>::kSize == 0;
  if (dropout.probability > 0) {
    c.scalars = dropout.scalars;
    c.micro_batch = dropout.micro_batch;
    c.site = dropout.site;
    c.threshold = drop_threshold(dropout.probability);
    c.keep_scale = 1.0f / (1.0f - dropout.probability);
  }
  return c;
}

bool aligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  return true;
}

// cuDNN's attention if it computes this call, otherwise null.
CudnnAttention* fused(Lane& lane, const AttentionShape& shape, DType dtype, const Dropout& dropout,
                      std::initializer_list<const void*> operands) {
  if (!aligned(operands) || !needs_own_kernels(shape, dtype, dropout).empty()) return nullptr;
  CudnnAttention* const attention = cudnn_attention_of(lane);
  return attention && attention->refusal(shape, dtype).empty() ? attention : nullptr;
}

}  // namespace

std::size_t attention_workspace(const AttentionShape& s, DType dtype, bool dropout, int) {
  if (s.head_dim > kMaxHeadDim)
    fail(Exit::usage,
         "attention on a GPU supports heads of at most {} elements, but this model's have {}: train it on "
         "the CPU",
         kMaxHeadDim, s.head_dim);
  return std::max(s.batch * s.heads * s.seq * sizeof(float), dropout ? 0 : cudnn_attention_workspace(s, dtype));
}

std::string prepare_attention(Lane& lane, const AttentionShape& shape, DType dtype, const Dropout& dropout) {
  std::string why = needs_own_kernels(shape, dtype, dropout);
  if (CudnnAttention* const attention = why.empty() ? cudnn_attention_of(lane) : nullptr) {
    why = attention->refusal(shape, dtype);
    if (why.empty()) return attention->name();
  }
  return "own kernels: " + why;
}

void attention_forward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                       ConstView v, View o, View lse, const Dropout& dropout, View workspace) {
  if (auto* const cudnn =
          fused(lane, shape, q.dtype, dropout, {q.data, k.data, v.data, o.data, lse.data, workspace.data}))
    return cudnn->forward(shape, q, k, v, o, lse, workspace);
  visit(q.dtype, [&](auto zero) {
    using T = decltype(zero);
    AttentionCall<T> c = describe<T>(shape, documents, q, k, v, dropout);
    c.o = o.as<T>();
    c.lse = lse.as<float>();
    c.aligned &= aligned({c.q, c.k, c.v, c.o});
    launch_attention_forward(lane, c);
  });
}

void attention_backward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                        ConstView v, ConstView o, ConstView lse, ConstView do_, View dq, View dk, View dv,
                        const Dropout& dropout, View workspace) {
  if (auto* const cudnn =
          fused(lane, shape, q.dtype, dropout,
                {q.data, k.data, v.data, o.data, lse.data, do_.data, dq.data, dk.data, dv.data, workspace.data}))
    return cudnn->backward(shape, q, k, v, o, lse, do_, dq, dk, dv, workspace);
  visit(q.dtype, [&](auto zero) {
    using T = decltype(zero);
    AttentionCall<T> c = describe<T>(shape, documents, q, k, v, dropout);
    c.o_read = o.as<T>();
    c.d_o = do_.as<T>();
    c.dq = dq.as<T>();
    c.dk = dk.data;
    c.dv = dv.data;
    c.fp32_key_gradients = shape.fp32_key_gradients;
    c.lse = const_cast<float*>(lse.as<float>());
    c.delta = reinterpret_cast<float*>(workspace.data);
    c.aligned &= aligned({c.q, c.k, c.v, c.o_read, c.d_o, c.dq, c.dk, c.dv});
    launch_attention_backward(lane, c);
  });
}

}  // namespace strata::device::cuda
