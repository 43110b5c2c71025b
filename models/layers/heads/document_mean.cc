#include "models/layers/heads/document_mean.h"

#include "device/ops/elementwise.h"

namespace strata::models {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

DocumentMean::DocumentMean(std::size_t hidden, std::size_t heads, const RunShape& run, Slots& workspace)
    : shape_{.batch = run.batch,
             .seq = run.seq,
             .heads = heads,
             .kv_heads = heads,
             .head_dim = hidden / heads,
             .q_stride = hidden,
             .k_stride = hidden,
             .v_stride = hidden,
             .scale = 1,
             .causal = false,
             .packed = run.packed} {
  const std::size_t all = run.tokens() * hidden, learnt = run.training ? all : 0;
  scratch_ = workspace.add_bytes(device::attention_workspace(run.device, shape_, run.dtype, false, run.threads));
  zeros_ = workspace.add(all, run.dtype);
  mean_ = workspace.add(all, run.dtype);
  lse_ = workspace.add(run.tokens() * heads, DType::fp32);
  d_queries_ = workspace.add(learnt, run.dtype);
  d_keys_ = workspace.add(learnt, run.dtype);
  dx_ = workspace.add(learnt, run.dtype);
}

View DocumentMean::forward(Lane& lane, const Context& c, ConstView x) const {
  const View zeros = zeros_.of(c.workspace), mean = mean_.of(c.workspace);
  zero(lane, zeros);
  attention_forward(lane, shape_, c.batch.documents, zeros, zeros, x, mean, lse_.of(c.workspace), {},
                    scratch_.of(c.workspace));
  return mean;
}

View DocumentMean::backward(Lane& lane, const Context& c, ConstView x, ConstView dy) const {
  const View zeros = zeros_.of(c.workspace), dx = dx_.of(c.workspace);
  attention_backward(lane, shape_, c.batch.documents, zeros, zeros, x, mean_.of(c.workspace), lse_.of(c.workspace), dy,
                     d_queries_.of(c.workspace), d_keys_.of(c.workspace), dx, {}, scratch_.of(c.workspace));
  return dx;
}

}  // namespace strata::models
