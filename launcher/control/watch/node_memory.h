#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/shared_mapping.h"
#include "runtime/execute/places.h"

namespace strata::launcher::control {

// Which ranks share a machine: those that see each other's memory. The same on every rank.
struct Node {
  std::string name;        // its host's
  std::vector<int> ranks;  // rising
};
struct NodeMap {
  std::vector<Node> nodes;   // by their first ranks
  std::vector<int> node_of;  // by rank
  const Node& of(int rank) const { return nodes[static_cast<std::size_t>(node_of[static_cast<std::size_t>(rank)])]; }
};
// From what each rank says of itself: its host's name, and its place among the ranks that MPI put on its node. Hosts
// may bear one name: the second rank that is, say, the third of a host called "node" is the third of another one.
struct Whereabouts {
  std::string host;
  int node_rank;
};
NodeMap map_nodes(const std::vector<Whereabouts>& ranks);

// What the ranks of one node share: where each is, and words for all of them. Every field is written by whole.
class NodeMemory {
 public:
  // Collective. If ranks of a machine cannot map each other's memory (containers), each is a node of its own.
  explicit NodeMemory(comm::World& world);

  const NodeMap& map() const { return map_; }
  // Why ranks of one machine are nodes of their own, in the words of the first that cannot map it; empty: none are.
  const std::string& apart() const { return apart_; }
  int node() const { return map_.node_of[static_cast<std::size_t>(rank_)]; }
  const std::vector<int>& ranks() const { return map_.of(rank_).ranks; }
  int index() const { return index_; }  // of this rank among them

  runtime::RankPlaces& places() { return places_of(static_cast<std::size_t>(index_)); }
  runtime::RankPlaces& places_of(std::size_t index);

  // Why the run ends, for all ranks of the node: the first one stays. True for who gave it.
  struct Verdict {
    std::string text;
    int rank = -1;           // whose fault it is; -1: rank 0 is not heard of
    std::int64_t given = 0;  // when, in ns of the steady clock; set by give()
  };
  bool give(const Verdict& verdict);
  std::optional<Verdict> verdict() const;

  // The number of times that ranks were asked what their threads do, and each one's answer to the newest.
  std::atomic<std::uint32_t>& asked();
  struct Answer;
  Answer& answer(std::size_t index);

 private:
  struct Words;
  Words& words() const;

  int rank_ = 0, index_ = 0;
  NodeMap map_;
  std::string apart_;
  comm::SharedMapping mapping_;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> own_{nullptr, [](std::byte*) {}};
  std::byte* memory_ = nullptr;
};

// What a rank's threads do, by themselves: instruction addresses, which mean something in that process alone, as text.
struct NodeMemory::Answer {
  static constexpr std::size_t kMost = 48 << 10;
  std::atomic<std::uint32_t> number{0};  // of the question that it answers
  std::atomic<std::uint32_t> size{0};
  std::array<char, kMost> text;
};

}  // namespace strata::launcher::control
