#pragma once
#include <algorithm>
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/blocks/attention_part.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"
#include "models/slice.h"

namespace strata::models {

// RMSNorm of each head's query and key before they are rotated (Qwen3; Henry et al. 2020), whose gains all heads share.
// A piece of a block. In several virtual shards, a gain's gradient is a sum over the shards' heads, which are added in
// fp32 by a balanced tree.
class HeadNorms {
 public:
  struct Spec {
    std::size_t tokens, heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    float eps;
    std::size_t query_gain, key_gain;  // offsets
    ShardRange shards;
    std::size_t sharers;  // see SharedKeys: the first of this many shards has keys
  };
  // Adds what it saves and its memory in backward to the block's.
  HeadNorms(const Spec& spec, Slots& save, Slots& work);

  std::size_t scratch_bytes() const { return std::max(query_.scratch_bytes(), key_.scratch_bytes()); }
  // `rows` and `to`: of each of this rank's shards, one after the other, laid out as attention takes them. Writes the
  // queries and keys in `to`.
  void forward(device::Lane&, const AttentionPart&, const ParameterRange& parameters, device::ConstView rows,
               device::View to, device::View saved) const;
  // d_rows: on entry the gradients of the normed queries and keys, on exit those of the unnormed ones. In one shard,
  // writes the gains' gradients; in several, keeps them for sum_gains().
  void backward(device::Lane&, const AttentionPart&, const ParameterRange& parameters, device::ConstView rows,
                device::ConstView saved, device::View d_rows, const GradientRange& gradients, device::View workspace,
                device::View scratch) const;

  // Elements of both gains' gradients.
  std::size_t gains() const { return 2 * spec_.head_dim; }
  // Adds those of this rank's shards: into `partials` if it is not empty, else as the gradients.
  void sum_gains(device::Lane&, device::View workspace, device::View partials, const GradientRange& gradients) const;
  // Takes the sums over all ranks' partials.
  void write_gains(device::Lane&, device::ConstView sums, const GradientRange& gradients) const;

 private:
  // Shard `v` of a stack of as many as the rank has.
  template <typename AnyView>
  AnyView shard(AnyView stack, std::size_t v) const {
    const std::size_t size = stack.size / spec_.shards.count;
    return stack.sub(v * size, size);
  }

  bool has_keys(std::size_t v) const { return (spec_.shards.first + v) % spec_.sharers == 0; }

  Spec spec_;
  NormPart query_, key_;
  Slot query_rstd_, key_rstd_, d_query_gain_, d_key_gain_;
};

}  // namespace strata::models
