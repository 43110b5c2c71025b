#pragma once
#include <cstdint>
#include <vector>

namespace strata::text {

// The token that two neighbouring tokens become, and the merge's rank.
struct Merge {
  std::uint32_t rank;
  std::uint32_t id;
};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

// Pairs of tokens and their merges: open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t count) {
    std::size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.resize(slots, {kEmpty, {kNoRank, 0}});
  }

  // A later merge of the same pair replaces the earlier one.
  void set(std::uint32_t left, std::uint32_t right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t at = slot_of(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, merge};
  }
  // rank is kNoRank if there is no merge.
  Merge find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = slot_of(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].merge;
      if (slots_[at].key == kEmpty) return {kNoRank, 0};
    }
  }

 private:
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15) >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace strata::text
