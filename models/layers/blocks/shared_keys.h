#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"
#include "models/layers/slots.h"
#include "models/slice.h"

namespace strata::models {

// Keys and values of a layer that has fewer heads of keys than virtual shards: several neighbouring shards read the
// same head. The first of them has its weights and computes it, and all attend to a copy. Backward adds the gradients
// of all of them in fp32 by a balanced tree and rounds once, for the first. A piece of a block. Without such shards
// (any()), it does nothing.
class SharedKeys {
 public:
  struct Spec {
    std::size_t tokens, heads, kv_heads, head_dim;  // heads and kv_heads: of all shards
    ShardRange shards;
    device::DType dtype;
  };
  // Adds what it saves and its memory in backward to the block's.
  SharedKeys(const Spec& spec, Slots& save, Slots& work);

  bool any() const { return sharers_ > 1; }
  // Neighbouring shards that read the same head of keys.
  std::size_t sharers() const { return sharers_; }
  // Whether this rank's shard `v` has the weights of the keys that it reads.
  bool owns(std::size_t v) const { return (spec_.shards.first + v) % sharers_ == 0; }
  // Elements that the ranks add, if the shards that read a head are not all here; otherwise 0.
  std::size_t crossing() const { return crosses() ? spec_.kv_heads * size() : 0; }

  // The keys and values that shard `v` attends to, [tokens, 2 head_dim], each row's keys first; and their gradients, in
  // fp32.
  device::ConstView keys(device::ConstView saved, std::size_t v) const {
    return keys_.of(saved).sub(v / sharers_ * size(), size());
  }
  device::View gradients(device::View workspace, std::size_t v) const {
    return sums_.of(workspace).sub(v * size(), size());
  }
  // Copies keys and values from the rows of the shards' heads, or leaves them in `partial` for all ranks; then takes
  // what the ranks left.
  void leave(device::Lane&, device::ConstView heads, device::View saved, device::View partial) const;
  void take(device::Lane&, device::ConstView total, device::View saved) const;
  // The same of the gradients, whose sums go to the rows of the shards that own them.
  void leave_gradients(device::Lane&, device::View workspace, device::View d_heads, device::View partial) const;
  void take_gradients(device::Lane&, device::ConstView total, device::View d_heads) const;

 private:
  bool crosses() const { return sharers_ > spec_.shards.count; }
  std::size_t width() const { return 2 * spec_.head_dim; }
  std::size_t size() const { return spec_.tokens * width(); }
  // The number of the head of keys that shard `v` reads.
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

}  // namespace strata::models
