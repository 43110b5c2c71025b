#pragma once
#include <algorithm>
#include <cstddef>

namespace strata::models {

// How a tensor is cut into virtual shards along one dimension, which consists of `segments` equal segments (q, k and v
// of a fused matrix): shard v has the v-th of `shards` equal parts of each segment, joined in order. The first
// dimension of a tensor with one segment (a vocabulary) need not be divisible: parts are rounded up to whole rows, and
// the last shards have fewer rows, or none. If `sharers` neighbouring shards use the same part (the keys of a head that
// several shards of queries read), the first has it and the others have none.
struct Slice {
  std::size_t dimension = 0, segments = 1;
  std::size_t shards = 1;  // 1: the tensor is whole
  std::size_t sharers = 1;

  bool operator==(const Slice&) const = default;
};

// Virtual shards [first, first + count) of `of`: those that a rank computes.
struct ShardRange {
  std::size_t first = 0, count = 1, of = 1;

  // The share of a width that is divided among all shards.
  std::size_t share(std::size_t width) const { return width / of * count; }
  bool operator==(const ShardRange&) const = default;
};

// The elements of the whole tensor that one shard's piece has: every `shards`-th stretch of `length` elements, from
// stretch `shard` on.
struct Piece {
  std::size_t shard = 0, shards = 1, length = 1;

  // The index in the whole tensor of element `i` of the piece.
  std::size_t in_whole(std::size_t i) const {
    return shards == 1 ? i : (i / length * shards + shard) * length + i % length;
  }
  // The number of the piece's elements that lie before element `i` of the whole tensor.
  std::size_t before(std::size_t i) const {
    if (shards == 1) return i;
    const std::size_t stretch = i / length, own = (stretch + shards - 1 - shard) / shards;
    return own * length + (stretch % shards == shard ? i % length : 0);
  }
  // Calls f(at, whole, count) for each stretch of elements [begin, end) of the piece. It begins at element `at` of the
  // piece, and at element `whole` of the tensor.
  template <typename F>
  void for_stretches(std::size_t begin, std::size_t end, F&& f) const {
    for (std::size_t at = begin; at < end;) {
      const std::size_t count = shards == 1 ? end - at : std::min(end - at, length - at % length);
      f(at, in_whole(at), count);
      at += count;
    }
  }
};

}  // namespace strata::models
