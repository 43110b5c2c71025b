#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/numeric/storage_format.h"
#include "device/ops/step/gradient_sum.h"
#include "models/flat_range.h"

namespace strata::models {

// How a tensor is cut into virtual shards along one dimension, which consists of `segments` equal segments (q, k and v
// of a fused matrix): shard v has the v-th of `shards` equal parts of each segment, joined in order. The first
// dimension of a tensor with one segment (a vocabulary) need not be divisible: parts are rounded up to whole rows, and
// the last shards have fewer rows, or none. If `sharers` neighbouring shards use the same part (the keys of a head that
// several shards of queries read), only the first has it.
struct Slice {
  std::size_t dimension = 0, segments = 1;
  std::size_t shards = 1;  // 1: the tensor is whole
  std::size_t sharers = 1;

  bool operator==(const Slice&) const = default;
};

// The virtual shards that a rank computes: [first, first + count) of `of`.
struct ShardRange {
  std::size_t first = 0, count = 1, of = 1;

  // The share of a width that is divided among all shards.
  std::size_t share(std::size_t width) const { return width / of * count; }
  bool operator==(const ShardRange&) const = default;
};

// The elements of the full tensor that one shard's piece has: every `shards`-th block of `length` elements, starting
// with block `shard`.
struct Piece {
  std::size_t shard = 0, shards = 1, length = 1;

  // The index in the full tensor of element `i` of the piece.
  std::size_t full_index(std::size_t i) const {
    return shards == 1 ? i : (i / length * shards + shard) * length + i % length;
  }
  // The number of the piece's elements that lie before element `i` of the full tensor.
  std::size_t before(std::size_t i) const {
    if (shards == 1) return i;
    const std::size_t block = i / length, own = (block + shards - 1 - shard) / shards;
    return own * length + (block % shards == shard ? i % length : 0);
  }
  // Calls f(at, full, count) for each contiguous range of elements [begin, end) of the piece. It begins at element
  // `at` of the piece, and at element `full` of the tensor.
  template <typename F>
  void for_contiguous(std::size_t begin, std::size_t end, F&& f) const {
    for (std::size_t at = begin; at < end;) {
      const std::size_t count = shards == 1 ? end - at : std::min(end - at, length - at % length);
      f(at, full_index(at), count);
      at += count;
    }
  }
};

// How a parameter is initialised in a run with random weights: a constant (gains, biases), normal(0, deviation), or
// uniform in [-bound, bound).
struct Init {
  float constant = 0;
  float deviation = 0;  // > 0: normal, and the constant is unused
  float bound = 0;      // > 0: uniform, and the others are unused

  bool is_random() const { return deviation > 0 || bound > 0; }
};

// One tensor of a unit, with its Hugging Face name and layout.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset;  // place of the first element in its pool (flat_range.h); a multiple of kParameterAlignment
  bool decay;          // weight decay applies: matrices and embeddings
  Init init;
  bool fp32_moments;        // fp32 moments even if the optimizer's are 8-bit: a table whose rows are looked up
  bool of_adapter = false;  // a factor of a low-rank adapter, which is not in the model's files
  // If the tensor is cut into virtual shards, `offset` is the offset of the first piece here, and `shape` is still the
  // whole tensor's.
  Slice slice = {};
  // The places of the pieces of shards first_shard, first_shard + 1, ...; empty: the tensor is whole.
  std::vector<std::size_t> offsets = {};
  std::size_t first_shard = 0;

  bool trained() const { return !is_frozen(offset); }
  PoolKind pool() const { return pool_of(offset); }
  std::size_t size() const;  // elements of the whole tensor
  // piece_capacity(): the elements reserved for each piece. piece_size(): the elements of a piece here, fewer if shards
  // are unequal, and none if another shard has the shared part.
  std::size_t piece_capacity() const;
  std::size_t piece_size(std::size_t piece) const;
  // The number of pieces here, and the place of each in the unit and in the tensor. A shared part has a place even if
  // another shard holds it.
  std::size_t pieces() const { return offsets.empty() ? 1 : offsets.size(); }
  std::size_t offset_of(std::size_t piece) const { return offsets.empty() ? offset : offsets[piece]; }
  Piece piece(std::size_t piece) const;

 private:
  std::size_t slice_parts() const { return slice.shards / slice.sharers; }
  std::size_t part_of_dimension() const;  // indices of each part in each segment, rounded up
};
// Each virtual shard of a unit's pool begins at a multiple of this many elements.
constexpr std::size_t shard_alignment_of(PoolKind pool) {
  return pool == PoolKind::quantised ? device::kNf4Block : device::kSquareBlock;
}
inline constexpr std::size_t kParameterAlignment = 256;
// In the quantised pool, each tensor begins with a complete block.
constexpr std::size_t alignment_of(PoolKind pool) {
  return pool == PoolKind::quantised ? device::kNf4Block : kParameterAlignment;
}

// True if one of the patterns matches the tensor's complete name: globs in which * stands for any characters, ? for one
// character and [...] for any listed character.
bool is_frozen_by(std::span<const std::string> patterns, std::string_view name);
// A glob of the same tensor in all layers: "model.layers.*.mlp.up_proj.weight".
std::string glob_of_layers(std::string_view name);

}  // namespace strata::models
