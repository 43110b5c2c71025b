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
#include "runtime/execute/rank_progress.h"

namespace strata::launcher::control {

// The ranks that share a machine, that is, that see each other's memory. The same on every rank.
struct Node {
  std::string name;        // the name of the host
  std::vector<int> ranks;  // in ascending order
};
struct NodeMap {
  std::vector<Node> nodes;   // ordered by their first ranks
  std::vector<int> node_of;  // per rank: its node
  const Node& of(int rank) const { return nodes[static_cast<std::size_t>(node_of[static_cast<std::size_t>(rank)])]; }
};
// A rank's report about itself: the name of its host, and its index among the ranks that MPI placed on its node.
// Several hosts may have the same name. For example, two ranks that are both the third rank on host "node" are on
// different hosts.
struct RankLocation {
  std::string host;
  int node_rank;
};
NodeMap map_nodes(const std::vector<RankLocation>& ranks);

// Shared memory of one node's ranks: where each rank is, and messages for all of them.
class NodeMemory {
 public:
  // Collective. If the ranks of a machine cannot map each other's memory (in containers), each becomes a separate node.
  explicit NodeMemory(comm::World& world);

  const NodeMap& map() const { return map_; }
  // Why ranks of one machine are separate nodes: the reason of the first rank that cannot map the memory; empty if no
  // ranks are separate.
  const std::string& apart() const { return apart_; }
  int node() const { return map_.node_of[static_cast<std::size_t>(rank_)]; }
  const std::vector<int>& ranks() const { return map_.of(rank_).ranks; }
  int index() const { return index_; }  // this rank's place among ranks()

  runtime::RankProgress& progress() { return progress_of(static_cast<std::size_t>(index_)); }
  runtime::RankProgress& progress_of(std::size_t index);

  // Why the run ends, for all ranks of the node. Only the first verdict is kept, and give() returns true to its caller.
  struct Verdict {
    std::string text;
    int rank = -1;           // the rank at fault; -1: rank 0 was lost
    std::int64_t given = 0;  // ns on the steady clock; set by give()
  };
  bool give(const Verdict& verdict);
  std::optional<Verdict> verdict() const;

  // How often the ranks were asked for the state of their threads, and each rank's answer to the newest request.
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

// A rank's answer about its threads. It is text, because instruction addresses are meaningful only in that process.
struct NodeMemory::Answer {
  static constexpr std::size_t kMost = 48 << 10;
  std::atomic<std::uint32_t> number{0};  // the request that it answers
  std::atomic<std::uint32_t> size{0};
  std::array<char, kMost> text;
};

}  // namespace strata::launcher::control
