#pragma once
#include "device/ops/activation.h"
#include "device/ops/attention/attention.h"
#include "device/ops/dora.h"
#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "device/ops/losses/losses.h"
#include "device/ops/norm.h"
#include "device/ops/products/product.h"
#include "device/ops/step/consensus.h"
#include "device/ops/step/gradient_sum.h"
#include "device/ops/step/optimizer.h"

// Every operation that a twin provides, by the name that device/ops/ declares. A twin defines them in its own
// namespace. device/dispatch/ checks the operands, once for all twins, and calls the function of the lane's twin.
// clang-format off
#define STRATA_OPERATIONS(X) \
  X(activation_backward) X(activation_forward) X(add) X(attention_backward) X(attention_forward) X(cached_attention) \
  X(cast) X(cast_columns) X(class_loss) X(column_dot) X(column_sum) X(combine_statistics) X(count_nonfinite) \
  X(cross_entropy_gradient) X(cross_entropy_losses) X(dora_scales) X(dora_squares) X(dropout) X(embedding_add) \
  X(embedding_backward) X(embedding_forward) X(gated_backward) X(gated_forward) X(gradient_square_sum) \
  X(gradient_sum) X(layernorm_backward) X(layernorm_forward) X(matvec) X(pack_message) X(prepare_attention) \
  X(resolve_step) X(rmsnorm_backward) X(rmsnorm_forward) X(rope) X(scale) X(scale_columns) X(softmax_statistics) \
  X(sum_losses) X(tree_sum) X(tree_sum_of_pieces) X(unpack) X(update) X(zero)
// clang-format on

namespace strata::device {

// The functions of one twin.
struct Operations {
#define X(name) decltype(device::name)* name;  // NOLINT(bugprone-macro-parentheses)
  STRATA_OPERATIONS(X)
#undef X
};

}  // namespace strata::device
