#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "device/lane.h"
#include "device/ops/dropout.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/blocks/attention_part.h"
#include "models/layers/blocks/head_norms.h"
#include "models/layers/blocks/shared_keys.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// The part of a block between the product that makes queries, keys and values and the projection, in this rank's
// virtual shards: a norm of each head, rotary positions, attention. It works on stacks with one matrix per shard, whose
// rows hold queries, keys and values side by side, or the heads' results.
class BlockAttention {
 public:
  struct Spec {
    std::size_t heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    std::size_t window = 0;                 // see AttentionSpec
    bool causal = true;
    float dropout = 0;                       // of the probabilities
    std::optional<std::size_t> angles = {};  // the start of rotary positions' cos and sin in the constants
    std::size_t positions = 0;               // cos and sin are fp32 [positions, head_dim / 2]
    struct Norms {
      float eps;
      std::size_t query_gain, key_gain;  // offsets
    };
    std::optional<Norms> norms = {};
  };
  BlockAttention(const Spec& spec, const RunShape& run);
  // Adds what it saves, and its memory in backward, to the block's. Everything below is for after place_saved().
  void place_saved(Slots& save);
  void place_work(Slots& work) { work_ = work.add_bytes(work_bytes_); }

  const device::AttentionShape& shape() const { return attention_.shape(); }  // of one shard
  float dropout() const { return spec_.dropout; }
  // As those of AttentionPart.
  std::size_t cache_bytes() const { return attention_.cache_bytes(); }
  std::size_t scratch_bytes(int threads) const;
  std::string set_up(device::Lane& lane) const { return attention_.set_up(lane); }
  // The sizes of all shards' rows: of queries, keys and values, and of results. In elements.
  std::size_t rows_size() const { return tokens_ * shards_.count * attention_.shape().q_stride; }
  std::size_t mixed_size() const { return tokens_ * shards_.share(spec_.heads) * spec_.head_dim; }

  // The rows that the product writes, and those that the projection reads.
  device::View rows(device::View saved) const { return (norms_ ? raw_ : rows_).of(saved); }
  template <typename AnyView>
  AnyView mixed(AnyView saved) const {
    return mixed_.of(saved);
  }
  // Norms and rotates the heads. Call it after the rows are written and before attend().
  void prepare(device::Lane&, const Context&, device::View saved) const;
  void attend(device::Lane&, const Context&, const device::Dropout&, device::View saved, device::View scratch) const;
  // The halves of backward. d_rows: first the gradients of what attend() read, then of what the product wrote.
  void attend_backward(device::Lane&, const Context&, const device::Dropout&, device::ConstView saved,
                       device::ConstView d_mixed, device::View d_rows, device::View scratch) const;
  void finish_backward(device::Lane&, const Context&, device::ConstView saved, device::View d_rows,
                       const GradientRange& gradients, device::View scratch) const;
  // Elements that ranks add between prepare() and attend(), and between the two halves of backward, if shards on
  // several ranks read the same keys.
  std::size_t crossing_keys() const { return shared_->crossing(); }

  // The gradients of the norms' gains, which are sums over the shards' heads; see HeadNorms.
  std::size_t gains() const { return norms_ ? norms_->gains() : 0; }
  void sum_gains(device::Lane&, const Context&, device::View partials, const GradientRange& gradients) const;
  void write_gains(device::Lane&, device::ConstView sums, const GradientRange& gradients) const;

 private:
  // Matrix `v` of a stack.
  template <typename AnyView>
  AnyView shard(AnyView stack, std::size_t v) const {
    const std::size_t size = stack.size / shards_.count;
    return stack.sub(v * size, size);
  }
  void rotate(device::Lane&, const Context&, device::View rows, bool inverse) const;
  device::ConstView keys(device::ConstView saved, std::size_t v) const {
    return shared_->any() ? shared_->keys(saved, v) : device::ConstView{};
  }

  Spec spec_;
  std::size_t tokens_;
  ShardRange shards_;
  device::DType dtype_;
  AttentionPart attention_;
  std::optional<SharedKeys> shared_;  // after place_saved()
  std::optional<HeadNorms> norms_;
  std::size_t work_bytes_ = 0;
  Slot rows_, raw_, mixed_, lse_, work_;  // raw: before the norms
};

}  // namespace strata::models
