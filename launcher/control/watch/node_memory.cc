#include "launcher/control/watch/node_memory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/host/host.h"
#include "base/quote.h"

namespace strata::launcher::control {

struct NodeMemory::Words {
  enum : std::uint32_t { none, being_written, written };
  alignas(64) std::atomic<std::uint32_t> state{none};
  std::int32_t rank = -1;
  std::int64_t given = 0;
  std::array<char, 1024> text{};
  alignas(64) std::atomic<std::uint32_t> asked{0};
};

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t up(std::size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

NodeMap map_nodes(const std::vector<RankLocation>& ranks) {
  NodeMap out;
  std::map<std::pair<std::string, int>, int> seen;            // by host name and node rank: the number of ranks so far
  std::map<std::pair<std::string, int>, std::size_t> number;  // by host name: the index of its n-th node
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const int nth = seen[{ranks[rank].host, ranks[rank].node_rank}]++;
    const auto [found, is_new] = number.try_emplace({ranks[rank].host, nth}, out.nodes.size());
    if (is_new) out.nodes.push_back({ranks[rank].host, {}});
    out.nodes[found->second].ranks.push_back(static_cast<int>(rank));
    out.node_of.push_back(static_cast<int>(found->second));
  }
  return out;
}

NodeMemory::NodeMemory(comm::World& world) : rank_(world.rank()) {
  std::vector<RankLocation> where;
  for (const std::string& text : world.exchange(fmt::format("{} {}", world.node_rank(), host_name())))
    where.push_back({text.substr(text.find(' ') + 1), std::atoi(text.c_str())});
  map_ = map_nodes(where);
  const auto find = [&] {
    const std::vector<int>& ours = ranks();
    index_ = static_cast<int>(std::find(ours.begin(), ours.end(), rank_) - ours.begin());
  };
  find();
  const auto bytes = [](std::size_t n) {
    return up(sizeof(Words)) + n * (up(sizeof(runtime::RankProgress)) + up(sizeof(Answer)));
  };
  // The first rank of a node creates the memory, and the others map it.
  std::string mine, refusal;
  std::vector<bool> alone(where.size(), true);
  if (ranks().size() > 1 && index_ == 0) {
    try {
      mapping_ = comm::SharedMapping(fmt::format("strata-places-{}-{}", getpid(), rank_), bytes(ranks().size()));
      const comm::SharedMapping::Address address = mapping_.address();
      mine.assign(reinterpret_cast<const char*>(&address), sizeof address);
    } catch (const Error& error) {
      refusal = error.what();
    }
  }
  const std::vector<std::string> addresses = world.exchange(mine);
  if (ranks().size() > 1) {
    const std::string& text = addresses[static_cast<std::size_t>(ranks().front())];
    try {
      comm::SharedMapping::Address address{};
      if (text.size() == sizeof address) {
        std::memcpy(&address, text.data(), sizeof address);
        if (index_ != 0) mapping_ = comm::SharedMapping::of(address);
      }
    } catch (const Error& error) {
      refusal = error.what();
    }
  }
  const std::vector<std::string> refusals = world.exchange(refusal);
  if (mapping_.data()) mapping_.close_file();
  // Either all ranks of a node share the memory, or none does.
  for (const Node& node : map_.nodes) {
    const auto refused = std::find_if(node.ranks.begin(), node.ranks.end(),
                                      [&](int rank) { return !refusals[static_cast<std::size_t>(rank)].empty(); });
    const bool together = refused == node.ranks.end();
    for (const int rank : node.ranks) alone[static_cast<std::size_t>(rank)] = !together;
    if (!together && apart_.empty())
      apart_ = fmt::format("rank {} on {}: {}", *refused, node.name, refusals[static_cast<std::size_t>(*refused)]);
  }
  NodeMap apart;
  std::map<int, std::size_t> kept;
  for (std::size_t rank = 0; rank < where.size(); ++rank) {
    const int node = map_.node_of[rank];
    const auto [found, is_new] = alone[rank] ? std::pair(kept.end(), true) : kept.try_emplace(node, apart.nodes.size());
    if (is_new) apart.nodes.push_back({where[rank].host, {}});
    const std::size_t at = alone[rank] ? apart.nodes.size() - 1 : found->second;
    apart.nodes[at].ranks.push_back(static_cast<int>(rank));
    apart.node_of.push_back(static_cast<int>(at));
  }
  map_ = std::move(apart);
  find();
  if (ranks().size() > 1) {
    memory_ = mapping_.data();
  } else {
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlign, bytes(1)));
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, bytes(1));
    own_ = {memory, [](std::byte* p) { std::free(p); }};
    memory_ = memory;
  }
  // The memory is zeroed and ranks may already use it, so nothing may be constructed in it or overwritten.
  progress().pid.store(getpid());
}

NodeMemory::Words& NodeMemory::words() const {
  return *reinterpret_cast<Words*>(memory_);
}

runtime::RankProgress& NodeMemory::progress_of(std::size_t index) {
  return *reinterpret_cast<runtime::RankProgress*>(memory_ + up(sizeof(Words)) +
                                                   index * up(sizeof(runtime::RankProgress)));
}

NodeMemory::Answer& NodeMemory::answer(std::size_t index) {
  return *reinterpret_cast<Answer*>(memory_ + up(sizeof(Words)) + ranks().size() * up(sizeof(runtime::RankProgress)) +
                                    index * up(sizeof(Answer)));
}

std::atomic<std::uint32_t>& NodeMemory::asked() {
  return words().asked;
}

bool NodeMemory::give(const Verdict& verdict) {
  Words& w = words();
  std::uint32_t expected = Words::none;
  if (!w.state.compare_exchange_strong(expected, Words::being_written)) return false;
  w.rank = verdict.rank;
  w.given = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string_view text = beginning_of(verdict.text, w.text.size() - 1);  // protobuf requires whole characters
  std::memcpy(w.text.data(), text.data(), text.size());
  w.text[text.size()] = '\0';
  w.state.store(Words::written, std::memory_order_release);
  return true;
}

std::optional<NodeMemory::Verdict> NodeMemory::verdict() const {
  const Words& w = words();
  if (w.state.load(std::memory_order_acquire) != Words::written) return std::nullopt;
  return Verdict{w.text.data(), w.rank, w.given};
}

}  // namespace strata::launcher::control
