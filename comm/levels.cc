#include "comm/levels.h"

#include <algorithm>
#include <map>
#include <utility>

namespace strata::comm {

Levels::Levels(const Group& group, std::span<const int> nodes) {
  std::map<int, int> seen;
  int newest = -1, node = 0;  // the previous member's node in the world, and that node's index here
  node_of_.reserve(group.members.size());
  for (int member = 0; member < group.size(); ++member) {
    const int world_node = nodes.empty() ? 0 : nodes[static_cast<std::size_t>(group.rank(member))];
    if (std::exchange(newest, world_node) != world_node)  // consecutive members are mostly on one node
      node = seen.emplace(world_node, static_cast<int>(nodes_.size())).first->second;
    if (node == static_cast<int>(nodes_.size())) {
      nodes_.emplace_back();
      if (node > 0) nodes_.back().reserve(nodes_.front().size());
    }
    std::vector<int>& members = nodes_[static_cast<std::size_t>(node)];
    if (member == group.index) {
      node_ = node;
      place_ = static_cast<int>(members.size());
    }
    members.push_back(member);
    node_of_.push_back(node);
  }
  even_ = std::ranges::all_of(nodes_, [&](const auto& members) { return members.size() == nodes_[0].size(); });
  far_ = static_cast<std::uint64_t>(group.size()) - nodes_[static_cast<std::size_t>(node_)].size();
}

std::uint64_t Levels::gathered(std::uint64_t bytes) const {
  return bytes * (even_ ? nodes_.size() - 1 : far_);
}

std::uint64_t Levels::exchanged(const ShardedRange& range) const {
  std::uint64_t near = 0;
  for (const int member : nodes_[static_cast<std::size_t>(node_)]) near += range.owned(member).bytes();
  return far_ == 0 ? 0 : range.bytes() - near;
}

}  // namespace strata::comm
