#include "comm/collectives.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace strata::comm {

ShardedRange::Owned ShardedRange::owned(int rank) const {
  const std::size_t first = static_cast<std::size_t>(rank) * shard_bytes;
  return {std::clamp(first, begin, end), std::clamp(first + shard_bytes, begin, end)};
}

std::vector<std::string> Collectives::exchange_texts(const std::string& mine) {
  struct Round {
    std::uint64_t total;
    std::array<char, Communicator::kMaxExchange - sizeof(std::uint64_t)> text;
  };
  static_assert(sizeof(Round) == Communicator::kMaxExchange);
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  std::vector<Round> all(texts.size());
  Round round{mine.size(), {}};
  // The first round gives every rank all lengths, so all agree on the number of rounds.
  for (std::size_t at = 0, longest = 1; at < longest; at += round.text.size()) {
    const std::size_t begin = std::min(at, mine.size());
    std::memcpy(round.text.data(), mine.data() + begin, std::min(round.text.size(), mine.size() - begin));
    exchange(reinterpret_cast<const std::byte*>(&round), sizeof round, reinterpret_cast<std::byte*>(all.data()));
    for (std::size_t r = 0; r < all.size(); ++r) {
      const std::size_t left = all[r].total - texts[r].size();
      texts[r].append(all[r].text.data(), std::min(left, round.text.size()));
      longest = std::max<std::size_t>(longest, all[r].total);
    }
  }
  return texts;
}

const std::byte* own_piece(const ShardedRange& range, int rank, const std::byte* shard) {
  const auto own = range.owned(rank);
  return own.bytes() == 0 ? nullptr : shard + (own.begin - static_cast<std::size_t>(rank) * range.shard_bytes);
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, device::cpu::Team& team) {
  if (to == from || bytes == 0) return;
  constexpr std::size_t kGrain = std::size_t{1} << 20;
  team.for_range(bytes, kGrain,
                 [&](std::size_t begin, std::size_t end) { std::memcpy(to + begin, from + begin, end - begin); });
}

}  // namespace strata::comm
