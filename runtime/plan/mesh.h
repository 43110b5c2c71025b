#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "models/flat_range.h"

namespace strata::runtime {

// What state is cut over. A rank is nothing but its coordinates, one per axis.
enum class Axis : std::uint8_t {
  none,  // whole on every rank
  data,  // over the ranks that each take other micro-batches of a step
};

struct Coordinates {
  int world = 0;  // the rank as processes are numbered
  int data = 0;
  int shard = 0;  // of a flat buffer in a shard per data rank, the one that is this rank's
};

// The ranks of a run. Kinds of state may be cut over groups of neighbouring ranks instead of all of them, each group
// holding a copy. Shards are dealt out so that what a rank holds of one kind lies within what it holds of a kind with
// smaller groups: then an owner's part of a copy never leaves the ranks that have that piece of it.
struct Mesh {
  int world = 1;
  // Ranks per group, ascending, each a divisor of the next and of data(), if they are neither 1 nor all.
  std::vector<int> groups = {};
  int node = 0;  // ranks on each node, which are neighbours; 0: all are on one, or nodes are not alike

  int data() const { return world; }
  // The node of each rank, as comm::World has it; empty: all are on one.
  std::vector<int> nodes() const;
  Coordinates at(int rank) const;
  // The ranks among the `within` neighbours of `rank` (a group, or all) whose shards lie in the same one of `pieces`
  // pieces (1: any) as its own, in the order of their shards.
  comm::Group group(int rank, int within, int pieces) const;
  // The global index of a rank's micro-batch g of a step that begins with micro-batch `first`. It orders gradients and
  // says which data a rank reads, so it counts the data ranks, however state is cut.
  std::uint64_t micro_batch(std::uint64_t first, std::uint64_t g, const Coordinates& rank) const {
    return first + g * static_cast<std::uint64_t>(data()) + static_cast<std::uint64_t>(rank.data);
  }
  bool operator==(const Mesh&) const = default;
};

// Of ranks on nodes (comm::World::nodes): as many as each has, if the ranks of each are neighbours and all have as
// many; else 0. None given: all `ranks` are on one.
int ranks_per_node(const std::vector<int>& nodes, int ranks);

// A flat buffer in equal pieces. Only here does a rank become elements.
struct Cut {
  int pieces = 1;
  int copies = 1;            // data ranks that hold the same piece
  std::size_t elements = 0;  // of all pieces

  std::size_t size() const { return elements / static_cast<std::size_t>(pieces); }
  models::ElementRange piece(int index) const {
    const std::size_t begin = size() * static_cast<std::size_t>(index);
    return {begin, begin + size()};
  }
  models::ElementRange piece(const Coordinates& rank) const { return piece(rank.shard / copies); }
  // What the rank's piece has of the range; [x, x) if nothing.
  models::ElementRange piece_of(const models::ElementRange& range, const Coordinates& rank) const;
  // The same buffer in fewer pieces.
  Cut in_pieces(int fewer) const { return {fewer, copies * pieces / fewer, elements}; }
};

// The elements of a piece in a range: of the first piece, of the piece that has least, of the piece that has most.
struct Portions {
  std::size_t first, least, most;
};
Portions portions_of(const models::ElementRange& range, const Cut& cut);

}  // namespace strata::runtime
