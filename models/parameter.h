#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/numeric/storage_format.h"
#include "device/ops/step/gradient_sum.h"
#include "models/flat_range.h"
#include "models/slice.h"

namespace strata::models {

// How a parameter is initialised in a run with random weights: a constant (gains, biases), normal(0, deviation), or
// uniform in [-bound, bound).
struct Init {
  float constant = 0;
  float deviation = 0;  // > 0: normal, and the constant is unused
  float bound = 0;      // > 0: uniform, and the others are unused

  bool drawn() const { return deviation > 0 || bound > 0; }
};

// One tensor of a unit, with its Hugging Face name and layout.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset;  // of the first element, in its pool (flat_range.h); a multiple of kParameterAlignment
  bool decay;          // weight decay applies: matrices and embeddings
  Init init;
  bool fp32_moments;        // fp32 moments even if the optimizer's are 8-bit: a table whose rows are looked up
  bool of_adapter = false;  // a factor of a low-rank adapter, which is not in the model's files
  // If the tensor is cut into virtual shards, `offset` is that of the first piece here, and `shape` is still the whole
  // tensor's.
  Slice slice = {};
  std::vector<std::size_t> offsets = {};  // of the pieces of shards first_shard, first_shard + 1, ...; empty: whole
  std::size_t first_shard = 0;

  bool trained() const { return !is_frozen(offset); }
  PoolKind pool() const { return pool_of(offset); }
  std::size_t size() const;  // of the whole tensor
  // piece_room(): the elements for which each piece has room. piece_size(): those that a piece here has, which are
  // fewer if shards are unequal, and none if another shard has the shared part.
  std::size_t piece_room() const;
  std::size_t piece_size(std::size_t piece) const;
  // The number of pieces here, and the place of each in the unit and in the tensor. A shared part has a place even if
  // another shard holds it.
  std::size_t pieces() const { return offsets.empty() ? 1 : offsets.size(); }
  std::size_t offset_of(std::size_t piece) const { return offsets.empty() ? offset : offsets[piece]; }
  Piece piece(std::size_t piece) const;

 private:
  std::size_t slice_parts() const { return slice.shards / slice.sharers; }
  std::size_t part_of_dimension() const;  // of each part in each segment, rounded up
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

}  // namespace strata::models
