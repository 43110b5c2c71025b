#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "device/numeric/storage_format.h"
#include "device/ops/step/gradient_sum.h"
#include "models/model.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/state.h"

namespace strata::runtime {

using models::kPools, models::PoolKind;

// Shard borders fall on multiples of this many elements: one block of the gradient norm, a whole number of 8-bit
// blocks, 4 KiB pages and vectors.
inline constexpr std::size_t kShardAlignment = device::kSquareBlock;
// In the pool of what is quantised, a whole block.
inline constexpr std::size_t kQuantisedAlignment = device::kNf4Block;
static_assert(kQuantisedAlignment % kShardAlignment == 0);

// A stretch of a pool that belongs to one tensor and is treated alike.
struct Run {
  std::size_t begin, end;  // elements
  std::size_t parameter;   // index in the unit's parameters
  bool decay;
  device::StorageFormat moments;
};

// A flat buffer of a unit's parameters of one kind, padded and cut into equal shards.
struct Pool {
  std::size_t size = 0;  // elements used, gaps between parameters included; 0: there is none
  // Into a shard per data rank, however state is placed: a rank sums, measures, saves and hashes the elements of its
  // own, so that each is counted once.
  Cut shards;
  std::vector<Run> runs = {};  // in order; what lies between them holds zeros

  std::size_t padded() const { return shards.elements; }
  std::size_t shard() const { return shards.size(); }
};

// What a unit trains, and beside it what of it is frozen: that has parameters and no other state.
struct UnitLayout : Pool {
  Pool frozen = {}, quantised = {};
  device::StorageFormat moments = device::StorageFormat::fp32;  // the recipe's: of the blocks that no run reaches
  // Elements of a pool of another unit that this one shares, whole blocks of it; and the units that share some of what
  // this one trains, or of what of it is frozen.
  struct Shared {
    int unit;
    models::ElementRange elements;
    bool frozen = false;

    PoolKind pool() const { return frozen ? PoolKind::frozen : PoolKind::trained; }
  };
  std::optional<Shared> shared = {};
  std::vector<int> sharers = {}, frozen_sharers = {};

  bool trains() const { return size > 0; }
  const std::vector<int>& sharers_of(PoolKind kind) const {
    static const std::vector<int> kNone;
    return kind == PoolKind::trained ? sharers : kind == PoolKind::frozen ? frozen_sharers : kNone;
  }
  // Of all its parameters in the compute dtype, whole.
  std::size_t gathered_bytes(device::StorageFormat format) const {
    return stored_bytes(format, padded() + frozen.padded() + quantised.padded());
  }
  Pool& pool(PoolKind kind) {
    return kind == PoolKind::trained ? *this : kind == PoolKind::frozen ? frozen : quantised;
  }
  const Pool& pool(PoolKind kind) const { return const_cast<UnitLayout*>(this)->pool(kind); }
  bool has_frozen() const { return frozen.size + quantised.size > 0; }
  // Whether it learns what it shares.
  bool trains_shared() const { return shared && !shared->frozen; }

  // Bytes of one moment of elements [begin, end), whole blocks: each has the format of the run that it belongs to. A
  // rank's moments lie one behind the other, so this is also how far from its first block's a block's moments lie.
  std::size_t moment_bytes(std::size_t begin, std::size_t end) const;
  // Bytes from the beginning of a rank's part of the state, which starts at element `part`, to that of `element`.
  std::size_t state_offset(StateKind kind, std::size_t part, std::size_t element) const {
    return kind == StateKind::master ? device::fp32_bytes(element - part) : moment_bytes(part, element);
  }
};

// Where every element of the model lies, on the ranks of a mesh.
struct Layout {
  Mesh mesh;
  std::vector<UnitLayout> units;
  bool adapted = false;  // what is trained is an adapter's, and lies for itself; what is frozen is its base
  device::StorageFormat quantised = device::StorageFormat::nf4;  // of the pools of that kind
};
// Of 8-bit moments small tensors' (biases, gains, fewer than 4,096 elements) and those of parameters that say so stay
// in fp32, as in "8-bit Optimizers via Block-wise Quantization" (Dettmers et al. 2022).
Layout make_layout(const models::Model& model, const Mesh& mesh,
                   device::StorageFormat moments = device::StorageFormat::fp32);

}  // namespace strata::runtime
