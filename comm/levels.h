#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"

namespace strata::comm {

// The members of a group by node, as seen by one of them. In an all-gather between nodes, every byte is sent once per
// node: from the member that owns it to the member with the same place on the other node, which passes it on there.
// This requires the same number of members on each node. An all-to-all sends each piece to a single rank.
class Levels {
 public:
  // `nodes`: the node of each rank of the world; empty: all ranks are on one.
  Levels(const Group& group, std::span<const int> nodes);

  // Members by node: nodes in the order of their first members, and each node's members in the group's order.
  const std::vector<std::vector<int>>& nodes() const { return nodes_; }
  // This rank is nodes()[node()][place()].
  int node() const { return node_; }
  int place() const { return place_; }
  bool far(int member) const { return node_of_[static_cast<std::size_t>(member)] != node_; }
  bool even() const { return even_; }
  // Whether there are several nodes, all with the same number of members, which is at least two.
  bool two() const { return even_ && nodes_.size() > 1 && nodes_[0].size() > 1; }

  // Bytes that this rank sends to other nodes: for an all-gather with `bytes` from this rank, for an all-to-all over
  // `range`, for `bytes` to each member, and for `bytes` to one member.
  std::uint64_t gathered(std::uint64_t bytes) const;
  std::uint64_t exchanged(const ShardedRange& range) const;
  std::uint64_t sent_to_all(std::uint64_t bytes) const { return bytes * far_; }
  std::uint64_t sent(std::uint64_t bytes, int to) const { return far(to) ? bytes : 0; }

 private:
  std::vector<std::vector<int>> nodes_;
  std::vector<int> node_of_;  // per member: its index in nodes_
  int node_ = 0, place_ = 0;
  bool even_ = true;
  std::uint64_t far_ = 0;  // members on other nodes
};

}  // namespace strata::comm
