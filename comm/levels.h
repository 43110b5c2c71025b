#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"

namespace strata::comm {

// How a group of ranks lies on nodes, seen from one of its members. Between nodes every byte of an all-gather travels
// once per node, from the member that owns it to the one in the same place of the other node, which passes it on there;
// that needs as many members on each node. What an all-to-all sends is for one rank alone.
class Levels {
 public:
  // `nodes`: the node of each rank of the world; empty: all are on one.
  Levels(const Group& group, std::span<const int> nodes);

  // Members by node, each node's in the group's order; nodes in the order of their first members.
  const std::vector<std::vector<int>>& nodes() const { return nodes_; }
  // Where this rank is: nodes()[node()][place()].
  int node() const { return node_; }
  int place() const { return place_; }
  bool far(int member) const { return node_of_[static_cast<std::size_t>(member)] != node_; }
  bool even() const { return even_; }
  // Several nodes, and several members on each.
  bool two() const { return even_ && nodes_.size() > 1 && nodes_[0].size() > 1; }

  // Bytes that this rank sends to other nodes: of its `bytes` in an all-gather; in an all-to-all over the range; of
  // `bytes` to each member.
  std::uint64_t gathered(std::uint64_t bytes) const;
  std::uint64_t exchanged(const ShardedRange& range) const;
  std::uint64_t told(std::uint64_t bytes) const { return bytes * far_; }

 private:
  std::vector<std::vector<int>> nodes_;
  std::vector<int> node_of_;  // by member, in nodes_
  int node_ = 0, place_ = 0;
  bool even_ = true;
  std::uint64_t far_ = 0;  // members on other nodes
};

}  // namespace strata::comm
