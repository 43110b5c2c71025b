#pragma once
// runtime/plan/layout/ determines which rank holds what, before there is a plan: the units of each stage and the units
// that run again in backward (stages.h), the elements of a unit that a rank owns (mesh.h, box.h), the state that lives
// from step to step and its tier (placement.h, the only file that uses ZeRO stages). A Layout (here) has this for all
// units and ranks.

#include <cstddef>
#include <optional>
#include <vector>

#include "device/numeric/storage_format.h"
#include "device/ops/step/gradient_sum.h"
#include "models/model.h"
#include "runtime/plan/layout/box.h"
#include "runtime/plan/layout/mesh.h"
#include "runtime/plan/layout/placement.h"

namespace strata::runtime {

using models::kPools, models::PoolKind;

// Shards begin and end at multiples of this many elements, which is one block of the gradient norm and a whole number
// of 8-bit blocks, 4 KiB pages and vectors.
inline constexpr std::size_t kShardAlignment = device::kSquareBlock;
// The same for quantised pools: one NF4 block.
inline constexpr std::size_t kQuantisedAlignment = device::kNf4Block;
static_assert(kQuantisedAlignment % kShardAlignment == 0);

// The elements of a pool that belong to one tensor, which the optimizer treats in the same way.
struct TensorRange {
  std::size_t begin, end;  // elements
  std::size_t parameter;   // index in the unit's parameters
  bool decay;
  device::StorageFormat moments;
  // The part of the tensor that these elements form, row-major; none: the whole tensor.
  std::optional<Box> box = {};
  models::Piece piece = {};  // the same part as blocks of the tensor, if a virtual shard has it
  // The end of the memory reserved for the piece: at least `end`, and larger if other shards' pieces are.
  std::size_t reserved_end = 0;

  // True if the tensor is cut into virtual shards.
  bool is_cut() const { return box.has_value(); }
  Box box_of(const models::Parameter& p) const { return box ? *box : Box::full({p.shape.begin(), p.shape.end()}); }
};

// A flat buffer of a unit's parameters of one kind (trained, frozen or quantised), padded and cut into equal shards.
struct Pool {
  std::size_t size = 0;  // elements, including gaps between parameters; 0: the unit has no such pool
  // One shard per data rank, however state is placed. A rank sums, measures, saves and hashes the elements of its own
  // shard, so each element is counted once.
  Cut shards;
  std::vector<TensorRange> ranges = {};  // in order; the gaps between them hold zeros
  // Elements before the first tensor that is cut into virtual shards: all ranks that share the unit's layers have them.
  std::size_t uncut = 0;

  std::size_t padded() const { return shards.elements; }
  std::size_t shard() const { return shards.size(); }
};

// The pools of a unit. The trained one is the base class; frozen and quantised parameters have no other state.
struct UnitLayout : Pool {
  Pool frozen = {}, quantised = {};
  device::StorageFormat moments = device::StorageFormat::fp32;  // the recipe's; used for blocks that no tensor covers
  // The elements of another unit (the holder) that this unit shares, in whole blocks: a tied table. The holder lists
  // the units that share its trained or its frozen elements.
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
  // Bytes of all the unit's parameters, unsharded, in `format`.
  std::size_t gathered_bytes(device::StorageFormat format) const {
    return stored_bytes(format, padded() + frozen.padded() + quantised.padded());
  }
  Pool& pool(PoolKind kind) {
    return kind == PoolKind::trained ? *this : kind == PoolKind::frozen ? frozen : quantised;
  }
  const Pool& pool(PoolKind kind) const { return const_cast<UnitLayout*>(this)->pool(kind); }
  bool has_frozen() const { return frozen.size + quantised.size > 0; }
  // True if the elements that this unit shares are trained.
  bool trains_shared() const { return shared && !shared->frozen; }

  // Bytes of one moment of elements [begin, end), which must begin at a block. Each block has the format of its tensor.
  // Moments follow each other without gaps, so this is also the distance between the moments of `begin` and of `end`.
  std::size_t moment_bytes(std::size_t begin, std::size_t end) const;
  // The offset, in bytes, of `element` in a rank's part of the state; that part starts at element `part`.
  std::size_t state_offset(StateKind kind, std::size_t part, std::size_t element) const {
    return kind == StateKind::master ? device::fp32_bytes(element - part) : moment_bytes(part, element);
  }
};

// Determines which rank of a mesh has which elements of the model.
struct Layout {
  Mesh mesh;
  std::vector<UnitLayout> units;
  bool adapted = false;  // the trained pools are an adapter's, the frozen ones its base model's
  // The format of quantised pools, and the format that determines their values (Model::quantised_as).
  device::StorageFormat quantised = device::StorageFormat::nf4, quantised_as = quantised;
};
// The layout of the model's units on the mesh. With 8-bit moments, the moments of small tensors (biases, gains, fewer
// than 4,096 elements) and of parameters that ask for it stay in fp32, as in "8-bit Optimizers via Block-wise
// Quantization" (Dettmers et al. 2022).
Layout make_layout(const models::Model& model, const Mesh& mesh,
                   device::StorageFormat moments = device::StorageFormat::fp32);

}  // namespace strata::runtime
