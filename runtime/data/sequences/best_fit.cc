#include "runtime/data/sequences/best_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

NumberSet::NumberSet(std::uint64_t size) : size_(size) {
  do {
    size = (size + 63) / 64;
    levels_.emplace_back(size);
  } while (size > 1);
}

void NumberSet::insert(std::uint64_t x) {
  for (auto& level : levels_) {
    level[x / 64] |= std::uint64_t{1} << x % 64;
    x /= 64;
  }
}

void NumberSet::erase(std::uint64_t x) {
  for (auto& level : levels_) {
    level[x / 64] &= ~(std::uint64_t{1} << x % 64);
    if (level[x / 64] != 0) return;
    x /= 64;
  }
}

std::uint64_t NumberSet::next(std::uint64_t x) const {
  // Ascend to the first level with a number after x, then descend to the first number below it.
  for (std::size_t height = 0; height < levels_.size(); ++height) {
    if (x / 64 >= levels_[height].size()) return size_;
    const std::uint64_t word = levels_[height][x / 64] >> x % 64;
    if (word == 0) {
      x = x / 64 + 1;
      continue;
    }
    x += static_cast<std::uint64_t>(std::countr_zero(word));
    while (height > 0) x = x * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[--height][x]));
    return x;
  }
  return size_;
}

std::uint64_t NumberSet::last() const {
  if (levels_.back()[0] == 0) return size_;
  std::uint64_t x = 0;
  for (std::size_t height = levels_.size(); height-- > 0;)
    x = x * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero(levels_[height][x]));
  return x;
}

BestFit::BestFit(std::uint32_t room) : room_(room), rooms_(room + std::uint64_t{1}), newest_(room + 1, kNone) {}

// Among the bins with the least sufficient room, or with the most room, the one that changed last; a new one if the
// item fits none.
std::uint32_t BestFit::take_bin(std::uint32_t length, bool emptiest) {
  const std::uint64_t most = emptiest ? rooms_.last() : 0;
  const std::uint64_t room = most >= length && most <= room_ ? most : rooms_.next(length);
  if (room > room_) {
    left_.push_back(room_);
    before_.push_back(kNone);
    return static_cast<std::uint32_t>(left_.size() - 1);
  }
  const std::uint32_t bin = newest_[room];
  newest_[room] = before_[bin];
  if (newest_[room] == kNone) rooms_.erase(room);
  return bin;
}

void BestFit::put_back(std::uint32_t bin) {
  const std::uint32_t room = left_[bin];
  if (room == 0) return;  // full: it is never searched for again
  before_[bin] = newest_[room];
  newest_[room] = bin;
  if (before_[bin] == kNone) rooms_.insert(room);
}

void BestFit::place(std::uint32_t first, std::uint64_t spread) {
  left_.assign(first, room_);
  before_.assign(first, kNone);
  for (std::uint32_t bin = first; bin-- > 0;) put_back(bin);  // the first one is taken first
  bin_of_.resize(order_.size());
  std::uint64_t placed = 0;
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::uint32_t length = room_ - static_cast<std::uint32_t>(order_[k] >> 32);
    const std::uint32_t bin = bin_of_[k] = take_bin(length, placed < spread);
    left_[bin] -= length;
    put_back(bin);
    placed += length;
  }
  for (const std::uint32_t room : left_) {
    if (room == 0 || newest_[room] == kNone) continue;
    newest_[room] = kNone;
    rooms_.erase(room);
  }
}

const BestFit::Bins& BestFit::pack(std::span<const std::uint32_t> lengths) {
  STRATA_CHECK_LT(lengths.size(), std::size_t{kNone});
  order_.resize(lengths.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    STRATA_CHECK(lengths[i] > 0 && lengths[i] <= room_);
    order_[i] = std::uint64_t{room_ - lengths[i]} << 32 | i;
    total += lengths[i];
  }
  std::sort(order_.begin(), order_.end());
  place(0, 0);
  const std::size_t fewest = left_.size();
  std::swap(bin_of_, other_);
  place(static_cast<std::uint32_t>((total + room_ - 1) / room_), total - total / 4);
  if (left_.size() > fewest + fewest / 200) {
    std::swap(bin_of_, other_);
    left_.resize(fewest);
  }
  // Sorts items by bin, keeping their order within each.
  bins_.ends.assign(left_.size(), 0);
  for (const std::uint32_t bin : bin_of_) ++bins_.ends[bin];
  std::exclusive_scan(bins_.ends.begin(), bins_.ends.end(), bins_.ends.begin(), std::uint32_t{0});
  bins_.items.resize(lengths.size());
  for (std::size_t k = 0; k < order_.size(); ++k)
    bins_.items[bins_.ends[bin_of_[k]]++] = static_cast<std::uint32_t>(order_[k]);
  return bins_;
}

}  // namespace strata::runtime
