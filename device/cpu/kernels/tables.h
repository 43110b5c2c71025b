#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"
#include "device/numeric/optimizer_update.h"
#include "device/numeric/philox.h"

// The tables of kernels, one for each source file in this folder; attention's is in attention/attention.h.
namespace strata::device::cpu {

// Indexed by the function (device/ops/activation.h: GELUs, gates) and by DType. n elements, or one row of `width`
// outputs of a gated MLP. Outputs may overwrite inputs.
struct ActivationKernels {
  void (*forward[2][3])(const std::byte* x, std::byte* y, std::size_t n);
  void (*backward[2][3])(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n);
  void (*gated_forward[2][3])(const std::byte* gate_up, std::byte* y, std::size_t width);
  void (*gated_backward[2][3])(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up, std::size_t width);
};
STRATA_KERNEL_TABLE(ActivationKernels, activation_kernels)

// One block of rows of a norm; strides in elements. Centred: layer norm; otherwise RMS norm, which has no bias and no
// mean.
struct NormForward {
  std::size_t rows, groups, width, x_stride, y_stride;
  float eps;
  const std::byte *x, *gain, *bias;
  std::byte* y;
  float *mean, *rstd;
};
// dgain and dbias are this block's sums, fp32 [width], overwritten. residual may be null, and may be dx.
struct NormBackward {
  std::size_t rows, groups, width, x_stride, y_stride;
  const std::byte *dy, *x, *gain, *residual;
  const float *mean, *rstd;
  std::byte* dx;
  float *dgain, *dbias;
};

// Indexed by whether the norm is centred, and by the DType of x, y, the gain and the bias.
struct NormKernels {
  void (*forward[2][3])(const NormForward&);
  void (*backward[2][3])(const NormBackward&);
};
STRATA_KERNEL_TABLE(NormKernels, norm_kernels)

// Arrays are indexed by DType (of `from` or x, then of `to`).
struct ElementwiseKernels {
  void (*cast[3][3])(const std::byte* from, std::byte* to, std::size_t n);
  void (*add[3])(const std::byte* from, float* to, std::size_t n);
  void (*sum[3])(const std::byte* a, const std::byte* b, std::byte* out, std::size_t n);  // out = a + b
  void (*scale[3])(const std::byte* x, float factor, std::byte* out, std::size_t n);
  std::uint64_t (*count_nonfinite[3])(const std::byte* x, std::size_t n);
  // sums[j] = sum over the rows, in order, of x[r * stride + j], starting from +0.
  void (*column_sum[3])(const std::byte* x, std::size_t rows, std::size_t columns, std::size_t stride, float* sums);
  // out[j] = ((partials[0][j] + partials[1][j]) + ...), rounded once to out's dtype. Partials are `stride` apart.
  void (*add_partials[3])(const float* partials, std::size_t count, std::size_t stride, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels)

// Indexed by DType. Uses elements index .. index + n - 1 of the stream; index is a multiple of 4. residual may be null.
struct DropoutKernels {
  void (*dropout[3])(const RandomStream&, std::uint64_t index, std::uint32_t threshold, float scale, const std::byte* x,
                     const std::byte* residual, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(DropoutKernels, dropout_kernels)

// Indexed by DType; rows of `width` elements.
struct EmbeddingKernels {
  // out = ((rows[which[0]] + rows[which[1]]) + ...), in fp32, rounded once to out's dtype (second index); count >= 1.
  void (*sum_rows[3][3])(const std::byte* rows, const std::uint32_t* which, std::size_t count, std::byte* out,
                         std::size_t width);
};
STRATA_KERNEL_TABLE(EmbeddingKernels, embedding_kernels)

// Indexed by the DType of bias and out.
struct TreeSumKernels {
  // out[i] = the sum of partials[p * stride + i] over the tree, plus bias[i] unless bias is null, rounded once. `count`
  // is a power of two.
  void (*tree_sum[3])(const float* partials, std::size_t count, std::size_t stride, const std::byte* bias,
                      std::byte* out, std::size_t n);
  // The same sum with partials[p][begin + i].
  void (*tree_sum_of_pieces[3])(const std::byte* const* partials, std::size_t count, std::size_t begin,
                                const std::byte* bias, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(TreeSumKernels, tree_sum_kernels)

// Arrays are indexed by the DType of out.
struct UnpackKernels {
  // A block of nf4 (device/numeric/nf4.h) with its scales in fp32.
  void (*nf4[3])(const float* scales, const std::byte* codes, std::byte* out);
};
STRATA_KERNEL_TABLE(UnpackKernels, unpack_kernels)

// Arrays are indexed by the DType of operands other than float.
struct DoraKernels {
  // The sum of squares of w[i] + sum over r of scale b[r] a[r * n + i]: 16 partial sums, added in order.
  float (*row_square)(const std::byte* w, std::size_t n, const float* a, const float* b, std::size_t rank, float scale);
  // The same sums for `count` neighbouring columns of w[n, stride], with b[r * stride + column].
  void (*column_squares)(const std::byte* w, std::size_t n, std::size_t count, std::size_t stride, const float* a,
                         const float* b, std::size_t rank, float scale, float* sums);
  // out = x scales + bias + sign added; all but x may be null.
  void (*scale_row)(const std::byte* x, const float* scales, const std::byte* bias, const std::byte* added, float sign,
                    std::byte* out, std::size_t n);
  // sums[c] = sum over the rows, in order, of x y, starting from +0. y is of x's dtype, or fp32.
  using ColumnDots = void(const std::byte* x, const std::byte* y, std::size_t rows, std::size_t columns,
                          std::size_t x_stride, std::size_t y_stride, float* sums);
  ColumnDots *column_dots, *column_dots_fp32;
};
struct DoraKernelTable {
  DoraKernels of[3];
};
STRATA_KERNEL_TABLE(DoraKernelTable, dora_kernels)

// Conversions before and after an fp32 product of narrower operands, indexed by DType. Strides count elements between
// rows.
struct ProductKernels {
  // to[r, c] = from[r, c]; the result is dense.
  void (*widen[3])(const std::byte* from, std::size_t stride, std::size_t rows, std::size_t columns, float* to);
  // to[r, c] = from[r, c] rounded; the input is dense.
  void (*round[3])(const float* from, std::size_t rows, std::size_t columns, std::byte* to, std::size_t stride);
};
STRATA_KERNEL_TABLE(ProductKernels, product_kernels)

// Consecutive outputs [0, outputs) of a matrix times a vector; y is fp32. rows: each row of W is an output. columns:
// each row of W is an input. Rows are `stride` elements apart.
struct Matvec {
  std::size_t outputs, inputs, stride;
  const std::byte *w, *x;
  float* y;
};

// Indexed by the DType of W and x.
struct MatvecKernels {
  void (*rows[3])(const Matvec&);
  void (*columns[3])(const Matvec&);
};
STRATA_KERNEL_TABLE(MatvecKernels, matvec_kernels)

// The maximum of a row and the sum of e^(x - largest).
struct SoftmaxSum {
  float largest;
  double sum;
};

struct CrossEntropyKernels {
  // Continues `before` (-inf and 0 at the start) with the next n values.
  SoftmaxSum (*softmax_sum)(const float* x, std::size_t n, SoftmaxSum before);
  // Overwrites the row in place, from its start, with factor * (e^(x - largest) * scale - (i == label)) in the dtype of
  // the index. label >= n: the label is in another tile.
  void (*gradient[3])(float* x, std::size_t n, float largest, float scale, float factor, std::size_t label);
};
STRATA_KERNEL_TABLE(CrossEntropyKernels, cross_entropy_kernels)

// One row of `heads` vectors of 2 * half elements, in place; indexed by DType.
struct RopeKernels {
  void (*rotate[3])(std::byte* row, std::size_t heads, std::size_t half, const float* cos, const float* sin,
                    bool inverse);
};
STRATA_KERNEL_TABLE(RopeKernels, rope_kernels)

// One query of one head: positions [begin, end). Keys are stored in blocks of 16 positions, [head_dim, 16] each; values
// as [position, head_dim]. scores: fp32, room for `end` rounded up to 16.
struct CachedQuery {
  std::size_t begin, end, head_dim;
  float scale;
  const std::byte *q, *keys, *values;
  std::byte* o;
  float* scores;
};

// Indexed by the DType of q, the cache and o.
struct CachedAttentionKernels {
  void (*attend[3])(const CachedQuery&);
};
STRATA_KERNEL_TABLE(CachedAttentionKernels, cached_attention_kernels)

inline constexpr std::size_t kSquareBlock = 4096;

// Indexed by the gradients' DType.
struct GradientSumKernels {
  // sum[i] = ((sum[i] or +0) + pieces[0][offset + i]) + pieces[1][offset + i] ...
  void (*add_pieces[3])(const std::byte* const* pieces, std::size_t count, std::size_t offset, float* sum,
                        std::size_t n, bool first);
  // The same for runs of `length` pieces, each summed from +0 and rounded. partial[i] starts with the sum of the first
  // run's first `before` pieces, and ends with the sum of an incomplete last run. It may be null if no run is
  // incomplete.
  void (*add_runs[3])(const std::byte* const* pieces, std::size_t count, std::size_t offset, std::size_t length,
                      std::size_t before, float* partial, float* sum, std::size_t n, bool first);
  // The fp64 sum of squares of one block of 4,096; second may be null.
  double (*square_sum[3])(const std::byte* first, const std::byte* second);
};
STRATA_KERNEL_TABLE(GradientSumKernels, gradient_sum_kernels)

// gradient[0 .. n) = (+0 + first[i]) + second[i], in fp32; second may be null.
using ReadGradient = void (*)(const std::byte* first, const std::byte* second, float* gradient, std::size_t n);
// parameter[0 .. n) = master[i], rounded.
using WriteParameter = void (*)(const float* master, std::byte* parameter, std::size_t n);

// Elements that start at a multiple of kMomentBlock. second, moment2 (except for adamw) and parameter may be null.
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
  ReadGradient read[3];     // one per DType of gradients
  WriteParameter write[3];  // one per DType of parameters
  // One per Algorithm and StorageFormat.
  void (*update[3][3])(const UpdateElements&, std::size_t n, const UpdateFactors&);
};
STRATA_KERNEL_TABLE(OptimizerKernels, optimizer_kernels)

}  // namespace strata::device::cpu
