#include "models/layers/block_work.h"

#include "base/error.h"

namespace strata::models {

Work block_work(const Unit& block, Pass pass, const ElementRange& elements, std::span<const Linear* const> linears,
                const device::AttentionShape& attention, std::size_t activation) {
  STRATA_CHECK_EQ(linears.size(), block.parts().size());
  const std::size_t saved = block.bytes().saved;
  double flops = 0;
  for (std::size_t part = 0; part < linears.size(); ++part)
    if (const std::size_t begin = block.parts()[part].begin; begin >= elements.begin && begin < elements.end)
      flops += linears[part]->forward_flops();
  // q k^T and its product with v, if causal below the diagonal; backward has five such products.
  const device::AttentionShape& a = attention;
  const double two_products = (a.causal ? 2 : 4) * static_cast<double>(a.batch * a.seq * a.seq * a.heads * a.head_dim);
  if (pass == Pass::forward)
    return {flops, block.share_of(two_products, elements),
            block.share_of(static_cast<double>(saved + 2 * activation), elements)};
  return {2 * flops, block.share_of(2.5 * two_products, elements),
          block.share_of(static_cast<double>(2 * saved), elements)};
}

}  // namespace strata::models
