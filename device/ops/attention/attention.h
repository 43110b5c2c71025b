#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/lane.h"
#include "device/ops/elementwise.h"
#include "device/row_range.h"
#include "device/view.h"

namespace strata::device {

// Grouped-query attention within the documents of `batch` sequences of `seq` rows. q, k, v point at their first head
// inside rows that are q_stride, k_stride, v_stride elements apart; o rows are heads * head_dim apart. Query head h
// reads key head h / (heads / kv_heads). A query sees keys of its document. If causal, these are the keys up to its
// own, and with window > 0 the last `window` of them. Otherwise they are all keys, and with window > 0 the keys at most
// window / 2 rows away.
struct AttentionShape {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  std::size_t window = 0;
  bool causal = true;
  // Sequences can hold more or less than one document, so implementations for whole sequences are not used.
  bool packed = false;
  // If the shape has only some of the layer's heads: the number of heads in the layer (0: `heads`), and the index of
  // the first one here. Only dropout needs them, because it numbers heads within the layer.
  std::size_t layer_heads = 0, first_head = 0;
  // If true, the gradients of keys and values are fp32: they are sums over only some of the query heads that read them,
  // and other sums will be added.
  bool fp32_key_gradients = false;

  // Rows before and after its own that a query sees in its document; `seq` if there is no limit.
  std::size_t behind() const { return window == 0 ? seq : causal ? window - 1 : window / 2; }
  std::size_t ahead() const { return causal ? 0 : window == 0 ? seq : window / 2; }
};

// o = dropout(softmax(scale q k^T)) v, tile by tile (FlashAttention-2, Dao 2023), without a seq x seq matrix. Saves
// lse, fp32 [batch, heads, seq]: the log of the sum of exponentials. documents: [batch * seq], read when the work runs.
// Tiles are counted from a document's first row, so its bits (without dropout) depend neither on its place nor on its
// neighbours. Tiles between documents cost nothing. In rows outside of documents, o and lse are 0.
void attention_forward(Lane&, const AttentionShape&, const RowRange* documents, ConstView q, ConstView k, ConstView v,
                       View o, View lse, const Dropout&, View workspace);
// dq, dk, dv have the layout (and strides) of q, k, v, and their dtype, except with fp32_key_gradients. Gradients of
// key heads sum their query heads in order. Rows outside of documents are 0.
void attention_backward(Lane&, const AttentionShape&, const RowRange* documents, ConstView q, ConstView k, ConstView v,
                        ConstView o, ConstView lse, ConstView do_, View dq, View dk, View dv, const Dropout&,
                        View workspace);

// Prepares the lane for calls of this shape, so that none of them builds or allocates anything within a step. Returns
// the name of the implementation ("own kernels", or a library) and the reason. Call it at set-up; otherwise the first
// call prepares.
std::string prepare_attention(Lane&, const AttentionShape&, DType dtype, const Dropout&);

// Bytes of workspace in a lane of `threads` threads on the device. dropout: true if its probability is above 0.
std::size_t attention_workspace(Device, const AttentionShape&, DType dtype, bool dropout, int threads);

// `rows` rows, each with `heads` contiguous vectors of head_dim elements; rows are `stride` elements apart.
struct RopeShape {
  std::size_t rows, heads, head_dim, stride;
};

// Rotates in place by each row's position (Su et al. 2021), pairing element i with i + head_dim/2 as Hugging Face does.
// positions: uint32 [rows]; cos, sin: fp32 [max position, head_dim/2]. inverse = true rotates back, which is the
// backward of the forward.
void rope(Lane&, const RopeShape&, View x, const std::uint32_t* positions, ConstView cos, ConstView sin, bool inverse);

// Causal grouped-query attention of one sequence over a cache of the keys and values of its earlier positions. Heads,
// strides, scale and window are as in AttentionShape. The cache has room for `capacity` positions.
struct CachedAttentionShape {
  std::size_t heads, kv_heads, head_dim;
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  std::size_t window, capacity;

  // Positions come in blocks of 16 on every device.
  std::size_t rounded_capacity() const { return (capacity + 15) / 16 * 16; }
};

// Elements of a cache, in the dtype of q, k and v. Positions are written in ascending order, from 0.
std::size_t cache_elements(const CachedAttentionShape&);

// Writes k and v of `rows` rows to the cache at positions [first, first + rows). Then each row attends to all positions
// up to its own. o rows are heads * head_dim apart. Computes in fp32, in the same order of sums for any number of
// threads.
void cached_attention(Lane&, const CachedAttentionShape&, std::size_t first, std::size_t rows, ConstView q, ConstView k,
                      ConstView v, View cache, View o, View workspace);

// Bytes of workspace in a lane of `threads` threads.
std::size_t cached_attention_workspace(const CachedAttentionShape&, int threads);

}  // namespace strata::device
