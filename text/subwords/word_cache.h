#pragma once
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace strata::text {

// Caches the ids of words, in 2 MiB. A word's hash selects one of a fixed number of slots, and a new word replaces the
// old one. Long words, and words with many ids, are not stored.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  // Appends the word's ids to `out`. If it is not cached, make() appends them.
  template <typename F>
  void append(std::string_view word, std::vector<std::uint32_t>& out, F&& make) {
    if (const auto cached = find(word); !cached.empty()) {
      out.insert(out.end(), cached.begin(), cached.end());
      return;
    }
    const std::size_t before = out.size();
    make();
    keep(word, std::span(out).subspan(before));
  }
  // Empty if the word is not cached.
  std::span<const std::uint32_t> find(std::string_view word) {
    if (word.size() > kMaxBytes) return {};
    const Slot& slot = slots_[slot_of(word)];
    if (slot.size != word.size() || std::memcmp(slot.word.data(), word.data(), word.size()) != 0) return {};
    return std::span(slot.ids).first(slot.count);
  }
  void keep(std::string_view word, std::span<const std::uint32_t> ids) {
    if (word.size() > kMaxBytes || ids.size() > kMaxIds) return;
    Slot& slot = slots_[slot_of(word)];
    slot.size = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::copy(word.begin(), word.end(), slot.word.begin());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 15, kMaxBytes = 26, kMaxIds = 9;
  struct alignas(64) Slot {
    std::array<std::uint32_t, kMaxIds> ids;
    std::uint8_t size = 0, count = 0;
    std::array<char, kMaxBytes> word;
  };
  static_assert(sizeof(Slot) == 64);
  static std::size_t slot_of(std::string_view word) { return XXH3_64bits(word.data(), word.size()) & (kSlots - 1); }

  std::vector<Slot> slots_;
};

}  // namespace strata::text
