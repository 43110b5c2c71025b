#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "device/lane.h"
#include "device/ops/elementwise.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/blocks/attention_part.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"
#include "models/model.h"
#include "models/parameter.h"

namespace strata::models {

// RMSNorm of each head's query and key before they are rotated (Qwen3; Henry et al. 2020). All heads share the gains. A
// component of a block. With several virtual shards, a gain's gradient is a sum over the shards' heads, added in fp32
// by a balanced tree.
class HeadNorms {
 public:
  struct Spec {
    std::size_t tokens, heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    float eps;
    std::size_t query_gain, key_gain;  // offsets
    ShardRange shards;
    std::size_t sharers;  // see SharedKeys: the first of this many shards has keys
  };
  // Adds its saved values and its memory in backward to the block's.
  HeadNorms(const Spec& spec, Slots& save, Slots& work);

  std::size_t scratch_bytes() const { return std::max(query_.scratch_bytes(), key_.scratch_bytes()); }
  // `rows` and `to` hold this rank's shards one after another, laid out as attention takes them. Writes the queries and
  // keys in `to`.
  void forward(device::Lane&, const AttentionPart&, const ParameterRange& parameters, device::ConstView rows,
               device::View to, const ActivationViews& saved) const;
  // d_rows: on entry the gradients of the normed queries and keys, on exit the gradients of the unnormed ones. With one
  // shard, writes the gains' gradients. With several, keeps them for sum_gains().
  void backward(device::Lane&, const AttentionPart&, const ParameterRange& parameters, device::ConstView rows,
                device::ConstView saved, device::View d_rows, const GradientRange& gradients, device::View workspace,
                device::View scratch) const;

  // The number of elements in both gains' gradients; 0: neither gain is trained.
  std::size_t gains() const {
    return is_frozen(spec_.query_gain) && is_frozen(spec_.key_gain) ? 0 : 2 * spec_.head_dim;
  }
  // Adds the gradients of this rank's shards: into `partials` if it is not empty, otherwise as the final gradients.
  void sum_gains(device::Lane&, device::View workspace, device::View partials, const GradientRange& gradients) const;
  // Takes the sums over all ranks' partials.
  void write_gains(device::Lane&, device::ConstView sums, const GradientRange& gradients) const;

 private:
  // Shard `v` of a stack of all the rank's shards.
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

// The keys and values of a layer with fewer key heads than virtual shards: neighbouring shards read the same key head.
// The first of these shards owns the head's weights and computes it, and all of them attend to a copy. Backward adds
// their gradients in fp32 by a balanced tree and rounds once, for the first shard. A component of a block. Does nothing
// if no shards share a head (any()).
class SharedKeys {
 public:
  struct Spec {
    std::size_t tokens, heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    ShardRange shards;
    device::DType dtype;
  };
  // Adds its saved values and its memory in backward to the block's.
  SharedKeys(const Spec& spec, Slots& save, Slots& work);

  bool any() const { return sharers_ > 1; }
  // The number of neighbouring shards that read the same key head.
  std::size_t sharers() const { return sharers_; }
  // True if this rank's shard `v` owns the weights of the keys that it reads.
  bool owns(std::size_t v) const { return (spec_.shards.first + v) % sharers_ == 0; }
  // The number of elements that ranks add if other ranks have shards that read the same head; otherwise 0.
  std::size_t crossing() const { return crosses() ? spec_.kv_heads * size() : 0; }

  // The keys and values that shard `v` attends to, [tokens, 2 head_dim], each row's keys first; and their gradients, in
  // fp32.
  template <typename Saved>
  device::ConstView keys(const Saved& saved, std::size_t v) const {
    return keys_.of(saved).sub(v / sharers_ * size(), size());
  }
  device::View gradients(device::View workspace, std::size_t v) const {
    return sums_.of(workspace).sub(v * size(), size());
  }
  // leave() copies keys and values from the rows of the shards' heads, or leaves them in `partial` for all ranks.
  // take() then reads the values that the ranks left.
  void leave(device::Lane&, device::ConstView heads, const ActivationViews& saved, device::View partial) const;
  void take(device::Lane&, device::ConstView total, const ActivationViews& saved) const;
  // The same for the gradients, whose sums go to the rows of the shards that own them.
  void write_partial_gradients(device::Lane&, device::View workspace, device::View d_heads, device::View partial) const;
  void take_gradients(device::Lane&, device::ConstView total, device::View d_heads) const;

 private:
  bool crosses() const { return sharers_ > spec_.shards.count; }
  std::size_t width() const { return 2 * spec_.head_dim; }
  std::size_t size() const { return spec_.tokens * width(); }
  // The index of the key head that shard `v` reads.
  std::size_t head(std::size_t v) const { return (spec_.shards.first + v) / sharers_; }
  std::size_t query_width() const { return spec_.heads / spec_.shards.of * spec_.head_dim; }
  // The keys and values in the rows of shard `v`.
  template <typename AnyView>
  AnyView in_rows(AnyView heads, std::size_t v) const {
    const std::size_t of_shard = spec_.tokens * (query_width() + width());
    return heads.sub(v * of_shard + query_width(), of_shard - query_width());
  }

  Spec spec_;
  std::size_t sharers_;
  Slot keys_, sums_;
};

// The part of a block between the product that makes queries, keys and values and the projection, in this rank's
// virtual shards: a norm of each head, rotary positions, attention. It works on stacks with one matrix per shard, whose
// rows hold queries, keys and values side by side, or the heads' results.
class BlockAttention {
 public:
  struct Spec {
    std::size_t heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    std::size_t window = 0;                 // see AttentionSpec
    bool causal = true;
    float dropout = 0;                       // dropout of the probabilities
    std::optional<std::size_t> angles = {};  // the start of rotary positions' cos and sin in the constants
    std::size_t positions = 0;               // cos and sin are fp32 [positions, head_dim / 2]
    struct Norms {
      float eps;
      std::size_t query_gain, key_gain;  // offsets
    };
    std::optional<Norms> norms = {};
  };
  BlockAttention(const Spec& spec, const RunShape& run);
  // Adds its saved values and its memory in backward to the block's: the heads' results to `results`, and all else to
  // `heads`, which may be passing activations. Call place_saved() before anything below.
  void place_saved(Slots& heads, Slots& results);
  void place_work(Slots& work) { work_ = work.add_bytes(work_bytes_); }

  const device::AttentionShape& shape() const { return attention_.shape(); }  // for one shard
  float dropout() const { return spec_.dropout; }
  // The same functions as in AttentionPart.
  std::size_t cache_bytes() const { return attention_.cache_bytes(); }
  std::size_t scratch_bytes(int threads) const;
  std::string set_up(device::Lane& lane) const { return attention_.set_up(lane); }
  // The sizes of all shards' rows, in elements: rows of queries, keys and values, and rows of results.
  std::size_t rows_size() const { return tokens_ * shards_.count * attention_.shape().q_stride; }
  std::size_t mixed_size() const { return tokens_ * shards_.share(spec_.heads) * spec_.head_dim; }

  // The rows that the product writes, and the rows that the projection reads.
  device::View rows(const ActivationViews& saved) const { return (norms_ ? raw_ : rows_).of(saved); }
  template <typename Saved>
  auto mixed(const Saved& saved) const {
    return mixed_.of(saved);
  }
  // Norms and rotates the heads. Call it after the rows are written and before attend().
  void prepare(device::Lane&, const Context&, const ActivationViews& saved) const;
  void attend(device::Lane&, const Context&, const device::Dropout&, const ActivationViews& saved,
              device::View scratch) const;
  // The two halves of backward. d_rows: first the gradients of attend()'s input, then those of the product's output.
  void attend_backward(device::Lane&, const Context&, const device::Dropout&, device::ConstView saved,
                       device::ConstView d_mixed, device::View d_rows, device::View scratch) const;
  void finish_backward(device::Lane&, const Context&, device::ConstView saved, device::View d_rows,
                       const GradientRange& gradients, device::View scratch) const;
  // The number of elements that ranks add between prepare() and attend(), and between the two halves of backward, if
  // shards on several ranks read the same keys.
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
  template <typename Saved>
  device::ConstView keys(const Saved& saved, std::size_t v) const {
    return shared_->any() ? shared_->keys(saved, v) : device::ConstView{};
  }

  Spec spec_;
  std::size_t tokens_;
  ShardRange shards_;
  device::DType dtype_;
  AttentionPart attention_;
  std::optional<SharedKeys> shared_;  // none before place_saved()
  std::optional<HeadNorms> norms_;
  std::size_t work_bytes_ = 0;
  Slot rows_, raw_, mixed_, lse_, work_;  // raw: before the norms
};

}  // namespace strata::models
