#include "models/parameter.h"

#include <numeric>

namespace strata::models {

std::size_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t n, std::int64_t d) { return n * static_cast<std::size_t>(d); });
}

Piece Parameter::piece(std::size_t piece) const {
  std::size_t inner = 1;
  for (std::size_t d = slice.dimension + 1; d < shape.size(); ++d) inner *= static_cast<std::size_t>(shape[d]);
  const std::size_t width = static_cast<std::size_t>(shape[slice.dimension]) / (slice.segments * slice.shards);
  return {first_shard + piece, slice.shards, width * inner};
}

}  // namespace strata::models
