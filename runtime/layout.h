#pragma once
#include <cstddef>
#include <vector>

#include "models/model.h"

namespace strata::runtime {

// Shard borders fall on multiples of this many elements: one block of the gradient norm, a whole number of 8-bit
// blocks, 4 KiB pages and vectors.
inline constexpr std::size_t kShardAlignment = 4096;

// A stretch of a unit's flat buffer that belongs to one tensor and is treated alike.
struct Run {
  std::size_t begin, end;  // elements
  std::size_t parameter;   // index in the unit's parameters
  bool decay;
};

// A unit's flat buffer, padded and cut into equal shards.
struct UnitLayout {
  std::size_t size;    // elements used, gaps between parameters included
  std::size_t padded;  // ranks * shard
  std::size_t shard;
  std::vector<Run> runs;  // in order; what lies between them holds zeros
};

// Where every element of the model lies, for a number of ranks.
struct Layout {
  int ranks;
  std::vector<UnitLayout> units;
  std::size_t tied;  // elements of unit 0 that the head shares
};
Layout make_layout(const models::Model& model, int ranks);

}  // namespace strata::runtime
