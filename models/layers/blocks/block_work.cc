#include "models/layers/blocks/block_work.h"

#include <algorithm>

#include "base/error.h"

namespace strata::models {

namespace {

// The number of (query, key) pairs in a sequence that is one document. Causal attention counts half of the diagonal, as
// if positions were points on a line; a window counts what lies within it.
double seen_keys(const device::AttentionShape& a) {
  const auto seq = static_cast<double>(a.seq);
  const auto side = [&](std::size_t rows) {  // the keys on one side of the diagonal, at most this many rows away
    const double reach = std::min(static_cast<double>(rows), seq);
    return reach * seq - reach * reach / 2;
  };
  return side(a.window == 0 ? a.seq : a.causal ? a.window : a.window / 2) + (a.causal ? 0 : side(a.ahead()));
}

}  // namespace

Work block_work(const Unit& block, Pass pass, const PartRange& parts, std::span<const SplitLinear* const> linears,
                const device::AttentionShape& attention, std::size_t activation) {
  const bool one_part = block.parts().size() == 1;
  if (!one_part) STRATA_CHECK_EQ(linears.size(), block.parts().size());
  const std::size_t saved = block.bytes().saved;
  double flops = 0;
  for (const SplitLinear* linear :
       one_part&& parts.first < parts.last ? linears : linears.subspan(parts.first, parts.last - parts.first))
    flops += pass == Pass::forward ? linear->forward_flops() : linear->backward_flops();
  // q k^T and its product with v, for the keys that a query sees; backward has five such products.
  const device::AttentionShape& a = attention;
  const double two_products = 4 * seen_keys(a) * static_cast<double>(a.batch * a.heads * a.head_dim);
  if (pass == Pass::forward)
    return {flops, block.share_of(two_products, parts),
            block.share_of(static_cast<double>(saved + 2 * activation), parts)};
  return {flops, block.share_of(2.5 * two_products, parts), block.share_of(static_cast<double>(2 * saved), parts)};
}

}  // namespace strata::models
