#include <algorithm>

#include "comm/communicator.h"

namespace strata::comm {

ShardedRange::Owned ShardedRange::owned(int rank) const {
  const std::size_t first = static_cast<std::size_t>(rank) * shard_bytes;
  return {std::clamp(first, begin, end), std::clamp(first + shard_bytes, begin, end)};
}

}  // namespace strata::comm
