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
  // Up to the first level that has one behind, and down again to the first below it.
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

BestFit::BestFit(std::uint32_t room) : room_(room), rooms_(room + std::uint64_t{1}), newest_(room + 1, kNone) {}

// Of the bins with the least room that takes it, the one that changed last; a new one where there is none.
std::uint32_t BestFit::take_bin(std::uint32_t length) {
  const std::uint64_t room = rooms_.next(length);
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

const BestFit::Bins& BestFit::pack(std::span<const std::uint32_t> lengths) {
  STRATA_CHECK_LT(lengths.size(), std::size_t{kNone});
  order_.resize(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    STRATA_CHECK(lengths[i] > 0 && lengths[i] <= room_);
    order_[i] = std::uint64_t{room_ - lengths[i]} << 32 | i;
  }
  std::sort(order_.begin(), order_.end());
  left_.clear();
  before_.clear();
  bin_of_.resize(lengths.size());
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::uint32_t length = lengths[static_cast<std::uint32_t>(order_[k])], bin = take_bin(length);
    bin_of_[k] = bin;
    const std::uint32_t room = left_[bin] -= length;
    if (room == 0) continue;  // full: nothing looks for it any more
    before_[bin] = newest_[room];
    newest_[room] = bin;
    if (before_[bin] == kNone) rooms_.insert(room);
  }
  for (const std::uint32_t room : left_) {
    if (room == 0 || newest_[room] == kNone) continue;
    newest_[room] = kNone;
    rooms_.erase(room);
  }
  // Items by bin, in the order in which they came to it.
  bins_.ends.assign(left_.size(), 0);
  for (const std::uint32_t bin : bin_of_) ++bins_.ends[bin];
  std::exclusive_scan(bins_.ends.begin(), bins_.ends.end(), bins_.ends.begin(), std::uint32_t{0});
  bins_.items.resize(lengths.size());
  for (std::size_t k = 0; k < order_.size(); ++k)
    bins_.items[bins_.ends[bin_of_[k]]++] = static_cast<std::uint32_t>(order_[k]);
  return bins_;
}

}  // namespace strata::runtime
