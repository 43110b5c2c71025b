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

// Shard borders fall on multiples of this many elements: one block of the gradient norm, a whole number of 8-bit
// blocks, 4 KiB pages and vectors.
inline constexpr std::size_t kShardAlignment = device::kSquareBlock;

// A stretch of a unit's flat buffer that belongs to one tensor and is treated alike.
struct Run {
  std::size_t begin, end;  // elements
  std::size_t parameter;   // index in the unit's parameters
  bool decay;
  device::StorageFormat moments;
};

// A unit's flat buffer, padded and cut into equal shards.
struct UnitLayout {
  std::size_t size;  // elements used, gaps between parameters included
  // Into a shard per data rank, however state is placed: a rank sums, measures, saves and hashes the elements of its
  // own, so that each is counted once.
  Cut shards;
  std::vector<Run> runs;          // in order; what lies between them holds zeros
  device::StorageFormat moments;  // the recipe's: of the blocks that no run reaches
  // Elements of another unit's buffer that this one shares, whole blocks of it; and the units that share some of its.
  struct Shared {
    int unit;
    models::ElementRange elements;
  };
  std::optional<Shared> shared = {};
  std::vector<int> sharers = {};

  std::size_t padded() const { return shards.elements; }
  std::size_t shard() const { return shards.size(); }

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
};
// Of 8-bit moments small tensors' (biases, gains, fewer than 4,096 elements) and those of parameters that say so stay
// in fp32, as in "8-bit Optimizers via Block-wise Quantization" (Dettmers et al. 2022).
Layout make_layout(const models::Model& model, const Mesh& mesh,
                   device::StorageFormat moments = device::StorageFormat::fp32);

}  // namespace strata::runtime
