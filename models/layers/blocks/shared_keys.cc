#include "models/layers/blocks/shared_keys.h"

#include <algorithm>

#include "device/ops/elementwise.h"
#include "device/ops/tree_sum.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

// Other ranks' numbers are added to -0, which changes none; +0 would change -0.
void fill_negative_zero(Lane& lane, View x) {
  zero(lane, x);
  scale(lane, x, -1, x);
}

}  // namespace

SharedKeys::SharedKeys(const Spec& spec, Slots& save, Slots& work)
    : spec_(spec), sharers_(std::max<std::size_t>(1, spec.shards.of / spec.kv_heads)) {
  if (!any()) return;
  keys_ = save.add(std::max<std::size_t>(1, spec.shards.count / sharers_) * size(), spec.dtype);
  sums_ = work.add(spec.shards.count * size(), device::DType::fp32);
}

void SharedKeys::leave(Lane& lane, ConstView heads, View saved, View partial) const {
  if (!any()) return;
  if (crosses()) fill_negative_zero(lane, partial.sub(0, crossing()));
  for (std::size_t v = 0; v < spec_.shards.count; ++v) {
    if (!owns(v)) continue;
    const View to =
        crosses() ? partial.sub(head(v) * size(), size()) : keys_.of(saved).sub(v / sharers_ * size(), size());
    cast_columns(lane, spec_.tokens, width(), query_width() + width(), in_rows(heads, v), width(), to);
  }
}

void SharedKeys::take(Lane& lane, ConstView total, View saved) const {
  if (crosses()) cast(lane, total.sub(head(0) * size(), size()), keys_.of(saved));
}

void SharedKeys::leave_gradients(Lane& lane, View workspace, View d_heads, View partial) const {
  if (!any()) return;
  const View sums = sums_.of(workspace);
  if (crosses()) {
    fill_negative_zero(lane, partial.sub(0, crossing()));
    return tree_sum(lane, spec_.shards.count, sums, {}, partial.sub(head(0) * size(), size()));
  }
  for (std::size_t v = 0; v < spec_.shards.count; v += sharers_) {
    const View sum = gradients(workspace, v);
    tree_sum(lane, sharers_, sums.sub(v * size(), sharers_ * size()), {}, sum);
    cast_columns(lane, spec_.tokens, width(), width(), sum, query_width() + width(), in_rows(d_heads, v));
  }
}

void SharedKeys::take_gradients(Lane& lane, ConstView total, View d_heads) const {
  if (crosses() && owns(0))
    cast_columns(lane, spec_.tokens, width(), width(), total.sub(head(0) * size(), size()), query_width() + width(),
                 in_rows(d_heads, 0));
}

}  // namespace strata::models
