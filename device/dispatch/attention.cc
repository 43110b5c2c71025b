#include "device/ops/attention/attention.h"

#include "device/backend.h"
#include "device/operations.h"

namespace strata::device {
namespace {

void check(const AttentionShape& s) {
  STRATA_CHECK(s.batch > 0 && s.seq > 0 && s.head_dim > 0 && s.kv_heads > 0);
  STRATA_CHECK_EQ(s.heads % s.kv_heads, 0u);
  STRATA_CHECK_LE(s.heads * s.head_dim, s.q_stride);
  STRATA_CHECK_LE(s.kv_heads * s.head_dim, s.k_stride);
  STRATA_CHECK_LE(s.kv_heads * s.head_dim, s.v_stride);
  STRATA_CHECK_LE(s.seq, std::size_t{1} << 30);  // sums of two rows fit into 32 bits
}

// `heads` heads in each of the batch * seq rows, which are `stride` apart.
void check(const AttentionShape& s, ConstView x, std::size_t heads, std::size_t stride, DType dtype) {
  STRATA_CHECK(x.dtype == dtype);
  STRATA_CHECK_LE((s.batch * s.seq - 1) * stride + heads * s.head_dim, x.size);
}

void check(const AttentionShape& s, ConstView q, ConstView k, ConstView v, ConstView o, ConstView lse) {
  check(s);
  check(s, q, s.heads, s.q_stride, q.dtype);
  check(s, k, s.kv_heads, s.k_stride, q.dtype);
  check(s, v, s.kv_heads, s.v_stride, q.dtype);
  check(s, o, s.heads, s.heads * s.head_dim, q.dtype);
  STRATA_CHECK(lse.dtype == DType::fp32);
  STRATA_CHECK_LE(s.batch * s.heads * s.seq, lse.size);
}

}  // namespace

std::size_t attention_workspace(Device device, const AttentionShape& shape, DType dtype, bool dropout, int threads) {
  check(shape);
  // For a GPU's plan made by a program without CUDA: the workspace of our own kernels
  // (device/cuda/ops/attention/attention.cu).
  if (device.kind == Kind::cuda && !cuda_backend()) return shape.batch * shape.heads * shape.seq * sizeof(float);
  return backend(device.kind).attention_workspace(shape, dtype, dropout, threads);
}

std::string prepare_attention(Lane& lane, const AttentionShape& shape, DType dtype, const Dropout& dropout) {
  check(shape);
  return lane.operations().prepare_attention(lane, shape, dtype, dropout);
}

void attention_forward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                       ConstView v, View o, View lse, const Dropout& dropout, View workspace) {
  check(shape, q, k, v, o, lse);
  STRATA_CHECK_LE(attention_workspace(lane.device(), shape, q.dtype, dropout.probability > 0, lane.threads()),
                  workspace.bytes());
  lane.operations().attention_forward(lane, shape, documents, q, k, v, o, lse, dropout, workspace);
}

void attention_backward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                        ConstView v, ConstView o, ConstView lse, ConstView do_, View dq, View dk, View dv,
                        const Dropout& dropout, View workspace) {
  check(shape, q, k, v, o, lse);
  check(shape, dq, shape.heads, shape.q_stride, q.dtype);
  const DType of_keys = shape.fp32_key_gradients ? DType::fp32 : q.dtype;
  check(shape, dk, shape.kv_heads, shape.k_stride, of_keys);
  check(shape, dv, shape.kv_heads, shape.v_stride, of_keys);
  check(shape, do_, shape.heads, shape.heads * shape.head_dim, q.dtype);
  STRATA_CHECK_LE(attention_workspace(lane.device(), shape, q.dtype, dropout.probability > 0, lane.threads()),
                  workspace.bytes());
  lane.operations().attention_backward(lane, shape, documents, q, k, v, o, lse, do_, dq, dk, dv, dropout, workspace);
}

std::size_t cache_elements(const CachedAttentionShape& s) {
  return 2 * s.kv_heads * s.head_dim * s.rounded_capacity();
}

std::size_t cached_attention_workspace(const CachedAttentionShape& s, int threads) {
  return static_cast<std::size_t>(threads) * s.rounded_capacity() * sizeof(float);
}

void cached_attention(Lane& lane, const CachedAttentionShape& s, std::size_t first, std::size_t rows, ConstView q,
                      ConstView k, ConstView v, View cache, View o, View workspace) {
  STRATA_CHECK_LE(first + rows, s.capacity);
  STRATA_CHECK_LE(cache_elements(s), cache.size);
  STRATA_CHECK_LE(rows * s.heads * s.head_dim, o.size);
  STRATA_CHECK_LE(cached_attention_workspace(s, lane.threads()), workspace.bytes());
  STRATA_CHECK(q.dtype == cache.dtype && k.dtype == cache.dtype && v.dtype == cache.dtype && o.dtype == cache.dtype);
  if (rows == 0) return;
  STRATA_CHECK_LE((rows - 1) * s.q_stride + s.heads * s.head_dim, q.size);
  STRATA_CHECK_LE((rows - 1) * s.k_stride + s.kv_heads * s.head_dim, k.size);
  STRATA_CHECK_LE((rows - 1) * s.v_stride + s.kv_heads * s.head_dim, v.size);
  lane.operations().cached_attention(lane, s, first, rows, q, k, v, cache, o, workspace);
}

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim;
  STRATA_CHECK_EQ(shape.head_dim % 2, 0u);
  STRATA_CHECK_LE(used, shape.stride);
  if (shape.rows > 0) STRATA_CHECK_LE((shape.rows - 1) * shape.stride + used, x.size);
  STRATA_CHECK_EQ(cos.size, sin.size);
  STRATA_CHECK(cos.dtype == DType::fp32 && sin.dtype == DType::fp32);
  lane.operations().rope(lane, shape, x, positions, cos, sin, inverse);
}

}  // namespace strata::device
