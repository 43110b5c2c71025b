#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "models/flat_range.h"

namespace strata::runtime {

// The axis over which state is sharded. A rank has one coordinate per axis.
enum class Axis : std::uint8_t {
  none,    // every rank holds all of it
  data,    // over the data-parallel ranks, which take different micro-batches of a step
  tensor,  // over the ranks that share each layer
  stage,   // over the pipeline stages
};

struct Coordinates {
  int world = 0;  // the number of the rank's process
  int data = 0;
  int shard = 0;  // the rank's shard of a flat buffer that has one shard per data rank
  int tensor = 0;
  int stage = 0;
};

// The ranks of a run, numbered with the tensor axis fastest, then data, then stage: those that exchange the most are
// neighbours. State is sharded over the data ranks of one tensor coordinate and stage. A kind of state may be sharded
// over groups of consecutive data ranks instead of all of them; each group then holds a copy. Shards are assigned so
// that a rank's piece of one kind lies within its piece of any kind with smaller groups. An owner therefore exchanges
// its part only with ranks that hold the same piece.
struct Mesh {
  int world = 1;
  // Group sizes in ranks, ascending, each a divisor of the next and of data(). Sizes 1 and data() are left out.
  std::vector<int> groups = {};
  int node = 0;  // consecutive ranks per node; 0: one node, or nodes that differ

  int tensor = 1;
  int stages = 1;  // tensor * stages divides world

  int data() const { return world / (tensor * stages); }
  int ranks_per_stage() const { return data() * tensor; }
  // The node of each rank, as in comm::World; empty: all ranks are on one node.
  std::vector<int> nodes() const;
  // The node of a rank; 0 if all ranks are on one.
  int node_of(int rank) const { return node > 0 && node < world ? rank / node : 0; }
  bool has_group(int ranks) const { return std::ranges::find(groups, ranks) != groups.end(); }
  // The number of data ranks of one tensor coordinate and stage per node; 0: it differs between nodes.
  int data_per_node() const;
  Coordinates at(int rank) const;
  // The mesh of a single stage: the same as in a pipeline with one stage.
  Mesh in_one_stage() const {
    const int node_ranks = data_per_node() * tensor;
    return {ranks_per_stage(), groups, node_ranks, tensor, 1};
  }
  // The inverse of at().
  int rank_of(int data_rank, int tensor_rank, int stage) const {
    return (stage * data() + data_rank) * tensor + tensor_rank;
  }
  // The rank's index among the ranks of its stage, in their order.
  int place_in_stage(const Coordinates& rank) const { return rank_of(rank.data, rank.tensor, 0); }
  // The ranks that differ from `rank` only in the coordinate of the axis, in its order.
  comm::Group along(Axis axis, int rank) const;
  // Returns ranks of the block of `within` consecutive data ranks (a group, or all data ranks) that contains `rank`:
  // those whose shards lie in the same piece of `pieces` as its own (1: all ranks), in the order of their shards.
  comm::Group group(int rank, int within, int pieces) const;
  // The global index of the rank's micro-batch g in a step that begins with micro-batch `first`. It fixes the order in
  // which gradients are added and the data that a rank reads, so it does not depend on how state is sharded.
  std::uint64_t micro_batch(std::uint64_t first, std::uint64_t g, const Coordinates& rank) const {
    return first + g * static_cast<std::uint64_t>(data()) + static_cast<std::uint64_t>(rank.data);
  }
  // "rank 5"; if several ranks hold the model together, with its coordinates: "rank 5 (data 1, stage 1)".
  std::string name_of(int rank) const;
  // "data 0 to 1, stage 1": where these ranks lie; empty if each rank holds the whole model.
  std::string coordinates_text(std::span<const int> ranks) const;
  bool operator==(const Mesh&) const = default;
};

// Ranks per node, if every node has the same number and its ranks are consecutive; otherwise 0. `nodes`: each rank's
// node (comm::World::nodes); empty: all `ranks` are on one.
int ranks_per_node(const std::vector<int>& nodes, int ranks);

// A flat buffer in equal pieces. Only a Cut turns a rank's coordinates into elements.
struct Cut {
  int pieces = 1;
  int copies = 1;            // data ranks that hold the same piece
  std::size_t elements = 0;  // elements of all pieces

  std::size_t size() const { return elements / static_cast<std::size_t>(pieces); }
  models::ElementRange piece(int index) const {
    const std::size_t begin = size() * static_cast<std::size_t>(index);
    return {begin, begin + size()};
  }
  models::ElementRange piece(const Coordinates& rank) const { return piece(rank.shard / copies); }
  // The elements of `range` in the rank's piece; an empty range if there are none.
  models::ElementRange piece_of(const models::ElementRange& range, const Coordinates& rank) const;
  // The same buffer in fewer pieces.
  Cut in_pieces(int fewer) const { return {fewer, copies * pieces / fewer, elements}; }
};

// The number of elements of a range in the first piece of a cut, in the piece with the fewest and in the one with the
// most.
struct Portions {
  std::size_t first, least, most;
};
Portions portions_of(const models::ElementRange& range, const Cut& cut);

}  // namespace strata::runtime
