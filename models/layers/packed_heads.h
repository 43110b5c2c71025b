#pragma once
#include <cmath>
#include <cstddef>

#include "device/ops/attention/attention.h"
#include "models/model.h"

namespace strata::models {

// Attention whose queries, keys and values, `hidden` wide each, lie side by side in every row.
inline device::AttentionShape packed_attention(const RunShape& run, std::size_t hidden, std::size_t heads,
                                               bool causal) {
  return {run.batch,  run.seq,        heads,
          heads,      hidden / heads, 3 * hidden,
          3 * hidden, 3 * hidden,     1.0f / std::sqrt(static_cast<float>(hidden / heads)),
          0,          causal,         run.packed};
}

// Queries (0), keys (1) or values (2) of such rows.
template <typename AnyView>
AnyView packed_part(AnyView rows, std::size_t hidden, std::size_t which) {
  return rows.sub(which * hidden, rows.size - which * hidden);
}

}  // namespace strata::models
