#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace strata::comm {

// A group of ranks that communicate with each other: ranks of the world, in the order of the pieces that they own. All
// ranks of a world open communicators in the same order, each rank with a group that contains it. Groups that are
// opened at the same time must have the same members in the same order, or no member in common.
struct Group {
  std::vector<int> members;
  int index;  // this rank's place in `members`

  int size() const { return static_cast<int>(members.size()); }
  int rank(int member) const { return members[static_cast<std::size_t>(member)]; }
  // For each member, the number of members with a lower rank.
  std::vector<int> places() const {
    std::vector<int> out;
    for (const int rank : members)
      out.push_back(static_cast<int>(std::ranges::count_if(members, [&](int other) { return other < rank; })));
    return out;
  }
  bool operator==(const Group&) const = default;
};

// All ranks of a world, in order.
inline Group all_ranks(int rank, int size) {
  Group group{std::vector<int>(static_cast<std::size_t>(size)), rank};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

}  // namespace strata::comm
